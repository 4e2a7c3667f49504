"""Stores over a double of Pinecone, for tests of what the suite can't ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.vector_stores.pinecone import (
    PineconeIntegratedSettings,
    PineconeIntegratedStore,
    PineconeSettings,
    PineconeStore,
)
from tests.contract.vector_stores.pinecone_double import API_KEY, Namespace, PineconeDouble


@asynccontextmanager
async def pinecone(double: PineconeDouble, **settings: Any) -> AsyncIterator[PineconeStore]:
    store = PineconeStore(PineconeSettings(**{"api_key": API_KEY, "api_url": double.url, **settings}))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def integrated(double: PineconeDouble, **settings: Any) -> AsyncIterator[PineconeIntegratedStore]:
    values = {"api_key": API_KEY, "api_url": double.url, **settings}
    store = PineconeIntegratedStore(PineconeIntegratedSettings(**values))
    try:
        yield store
    finally:
        await store.close()


def only_namespace(double: PineconeDouble) -> Namespace:
    [index] = double.indexes.values()
    [namespace] = index.namespaces.values()
    return namespace
