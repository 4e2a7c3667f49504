"""Documents: uploads, document rows, status, spans and the lexical index."""
