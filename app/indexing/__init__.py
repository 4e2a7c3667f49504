"""Indexing: generations, coordinates, intents and go-live; the way from a Work to its vector store."""
