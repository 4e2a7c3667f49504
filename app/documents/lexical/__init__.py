"""The lexical index: text to terms, terms to packed postings, postings to a BM25 ranking. Pure functions, no I/O."""
