"""Errors of the search."""

from app.errors import Invalid, Unavailable


class TwoWorks(Invalid):
    """A search is over one Work: the named objects belong to several."""

    code = "two_works"


class VectorSearchUnavailable(Unavailable):
    """Vector search can't answer at the moment; mode 'lexical' or 'hybrid' can."""

    code = "vector_search_unavailable"
