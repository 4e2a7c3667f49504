"""A vector store for Stackroom in a SQLite file."""

from stackroom_sqlite.store import SqliteSettings, SqliteStore

__all__ = ["SqliteSettings", "SqliteStore"]
