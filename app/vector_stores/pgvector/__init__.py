"""pgvector: one chunk table for every Work, exact for small Works, an index of their own for large ones."""

from app.vector_stores.pgvector.settings import PgvectorSettings
from app.vector_stores.pgvector.store import PgvectorStore

__all__ = ["PgvectorSettings", "PgvectorStore"]
