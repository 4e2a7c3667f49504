"""LanceDB: a table for each Work and space, on a disk that processes share or in object storage."""

from app.vector_stores.lancedb.settings import LanceDbSettings
from app.vector_stores.lancedb.store import LanceDbStore

__all__ = ["LanceDbSettings", "LanceDbStore"]
