"""The database: declarative base, engine, transactions, cursors and the embedded server. No table, no query."""
