"""Stackroom: a self-hostable knowledge-base service."""

__version__ = "0.1.0"
