"""Documents: uploads, rows, status, spans and the lexical index."""
