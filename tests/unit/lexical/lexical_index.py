"""A lexical index in memory, of documents made for a test."""

from collections.abc import Collection, Sequence

from app.documents.lexical.analysis import analyze_document, analyze_query, detect_language
from app.documents.lexical.postings import pack
from app.documents.lexical.scoring import LexicalHit, score

DETECT = "detect"


class LexicalIndex:
    """Documents numbered from 1, each a list of chunks; `languages` are those of its documents."""

    def __init__(self, *documents: Sequence[str], language: str | None = DETECT) -> None:
        self.rows: list[tuple[str, int, int, bytes]] = []
        self.languages: set[str | None] = set()
        self.n_chunks = self.total_length = 0
        for number, chunks in enumerate(documents, start=1):
            own = detect_language("\n".join(chunks)) if language == DETECT else language
            terms = analyze_document(chunks, own)
            self.languages.add(own)
            self.n_chunks += len(chunks)
            self.total_length += terms.total_length
            self.rows += [(term, number, 1, data) for term, data in pack(terms)]

    def search(
        self, query: str, *, top_k: int = 10, languages: Collection[str | None] | None = None
    ) -> list[LexicalHit[int]]:
        terms = analyze_query(query, self.languages if languages is None else languages)
        wanted = set(terms.terms)
        return score(
            terms,
            [row for row in self.rows if row[0] in wanted],
            n_chunks=self.n_chunks,
            average_length=self.total_length / max(self.n_chunks, 1),
            top_k=top_k,
        )

    def documents(self, query: str) -> list[int]:
        return list(dict.fromkeys(hit.document for hit in self.search(query)))
