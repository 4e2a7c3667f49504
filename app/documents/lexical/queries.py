"""What a query asks the lexical index for: groups of alternative terms, and phrases to verify on text."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from app.documents.lexical.language import detect_query_language
from app.documents.lexical.segmentation import (
    fold_accents,
    identifiers,
    inner_identifiers,
    normalize,
    words_and_runs,
)
from app.documents.lexical.vocabulary import SIMPLE, Vocabulary, bounded, identifier_term, vocabulary

_MOST_GROUPS: Final = 256
_IDENTIFIER_WEIGHT: Final = 4.0
_SOMETIMES_STOP_WORD_WEIGHT: Final = 0.3

# Straight quotes must stand at the edges of words, so that 5" and 6" are inches.
_PHRASE: Final = re.compile(r'(?:(?<=[\s(\[{])|^)"([^"]+)"(?!\w)|[“„]([^“”„]+)[”“]|«([^«»]+)»|「([^「」]+)」')


@dataclass(frozen=True)
class TermGroup:
    """One word of the query: terms any of which answers it; a chunk counts the largest frequency among them.

    `exact` is the term, among `terms`, that only the word as written has; None where stem and word are the same.
    `weight` multiplies the group's share of a score.
    """

    terms: tuple[str, ...]
    exact: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class QueryTerms:
    """What to look for. Without groups it matches nothing.

    `phrases` are the quoted parts as the user wrote them, for `phrase_matches`; their words are in `groups` too.
    """

    groups: tuple[TermGroup, ...]
    phrases: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """All terms to fetch, ascending, without doubles."""
        return tuple(sorted({term for group in self.groups for term in group.terms}))


def analyze_query(text: str, languages: Collection[str | None]) -> QueryTerms:
    """Give what `text` asks for in documents of these languages (None: documents of unknown language).

    Every sign is data; only quotation marks in pairs mean something: a phrase. Stop words are left out unless there is
    nothing else. No more than 256 different words and identifiers are looked for; those after are left out.
    """
    tokens = normalize(text).split()
    pieces = [piece for token in tokens for piece in words_and_runs(token)]
    own = detect_query_language(text)
    reader = _Reader(languages, own, alone=len(pieces) == 1)
    groups = [group for token in tokens for group in reader.token_groups(token)]
    if not groups:
        groups = [_as_written(fold_accents(piece)) for piece, _ in pieces if fold_accents(piece)]
    return QueryTerms(tuple(_merged(groups))[:_MOST_GROUPS], _phrases(text))


def phrase_matches(text: str, phrase: str) -> bool:
    """Whether the words of `phrase` stand in `text` one after another, whatever signs and spaces are between them.

    Compares unstemmed words without case and accents, stop words included. False for a phrase without words.
    """
    wanted = _sequence(phrase)
    return bool(wanted) and wanted in _sequence(text)


class _Reader:
    """Reads a query's words as documents of several languages would have been read."""

    def __init__(self, languages: Collection[str | None], own: str | None, *, alone: bool) -> None:
        self._vocabularies: list[Vocabulary] = [vocabulary(code) for code in sorted({c for c in languages if c})]
        self._own = vocabulary(own) if own is not None else None
        self._alone = alone

    def token_groups(self, token: str) -> Iterator[TermGroup]:
        """Groups of what in a token is no stop word; the parts of an identifier weigh, together, one word."""
        names = identifiers(token)
        yield from (TermGroup((identifier_term(name),), weight=_IDENTIFIER_WEIGHT) for name in names)
        parts = [TermGroup((identifier_term(inner),)) for name in names for inner in inner_identifiers(name)]
        for piece, is_run in words_and_runs(token):
            if is_run:
                yield from (TermGroup((term,)) for term in _query_terms_of_run(piece))
            else:
                parts += self._word_groups(piece)
        share = 1 / len(parts) if names and parts else 1.0
        yield from (replace(part, weight=part.weight * share) for part in parts)

    def _word_groups(self, word: str) -> list[TermGroup]:
        """No group for a stop word, else one: the word's stem in each language, unstemmed, and exactly as written."""
        folded = fold_accents(word)
        stopping = [] if self._alone else [words for words in self._vocabularies if words.is_stop_word(folded)]
        if not folded or (not self._alone and self._is_stop_word(folded, len(stopping))):
            return []
        stems = {bounded(words.stem(word)) for words in self._vocabularies if words not in stopping}
        # Where it is a stop word it stands nearly everywhere and says nothing: so not as written in those documents.
        exact = None if stopping else bounded(SIMPLE + folded)
        weight = _SOMETIMES_STOP_WORD_WEIGHT if stopping and self._own is None else 1.0
        terms = {*stems, bounded(folded), *([exact] if exact else [])}
        return [TermGroup(tuple(sorted(terms)), exact, weight)]

    def _is_stop_word(self, folded: str, stopping: int) -> bool:
        """By the query's own language; where that is unknown, by all languages of the documents."""
        if self._own is not None:
            return self._own.is_stop_word(folded)
        return 0 < stopping == len(self._vocabularies)


def _query_terms_of_run(run: str) -> list[str]:
    return [SIMPLE + run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _as_written(folded: str) -> TermGroup:
    return TermGroup((bounded(SIMPLE + folded), bounded(folded)))


def _merged(groups: Iterable[TermGroup]) -> list[TermGroup]:
    """One group for each set of terms, in order of appearance; a word said twice weighs twice."""
    merged: dict[tuple[str, ...], TermGroup] = {}
    for group in groups:
        earlier = merged.get(group.terms)
        merged[group.terms] = group if earlier is None else replace(earlier, weight=earlier.weight + group.weight)
    return list(merged.values())


def _phrases(text: str) -> tuple[str, ...]:
    found = (next(filter(None, match.groups())) for match in _PHRASE.finditer(text))
    return tuple(dict.fromkeys(phrase for phrase in found if _sequence(phrase)))


def _sequence(text: str) -> str:
    """The words of a text between single spaces, one also at each end; empty without words."""
    words: list[str] = []
    for piece, is_run in words_and_runs(normalize(text)):
        words += piece if is_run else filter(None, [fold_accents(piece)])
    return f" {' '.join(words)} " if words else ""
