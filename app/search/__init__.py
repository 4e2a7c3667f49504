"""Search: vector, lexical and hybrid; fusion; the `kb_search` tool. Writes nothing."""
