"""Ingestion: the pipeline from bytes to a live build, forgetting, and the upkeep around both."""
