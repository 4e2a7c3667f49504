"""The Qdrant plugin: a server by its URL, or a directory that one process opens."""

from app.vector_stores.qdrant.settings import QdrantSettings
from app.vector_stores.qdrant.store import QdrantStore

__all__ = ["QdrantSettings", "QdrantStore"]
