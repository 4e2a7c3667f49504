"""Migrations of the pgvector plugin: an Alembic branch of their own."""
