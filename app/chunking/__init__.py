"""Chunking: text to chunks with exact offsets. Pure functions."""
