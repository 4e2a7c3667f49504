"""Extraction: bytes to text with structure, one module per format family, in a sandboxed process."""
