"""Pinecone: one index per vector width, in it one namespace per Work and space; text goes there only to be embedded."""

from app.vector_stores.pinecone.integrated import PineconeIntegratedStore
from app.vector_stores.pinecone.settings import PineconeIntegratedSettings, PineconeSettings
from app.vector_stores.pinecone.store import PineconeStore

__all__ = ["PineconeIntegratedSettings", "PineconeIntegratedStore", "PineconeSettings", "PineconeStore"]
