"""From a piece of text to the terms it is found by, in the language of its document."""

import hashlib
import re
import threading
from collections.abc import Iterable
from operator import add
from typing import Final, NamedTuple

import Stemmer

from app.documents.lexical.segmentation import fold_accents, identifiers, inner_identifiers, words_and_runs
from app.documents.lexical.stop_words import STOP_WORDS

SIMPLE: Final = "="
"""Opens a term that stands for a word as written: where its stem differs, for stop words and single characters."""
IDENTIFIER: Final = "@"
"""Opens a term that stands for a whole identifier. All other terms (stems, bigrams) stand bare."""

STEMMERS: Final = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish", "fi": "finnish",
    "fr": "french", "hi": "hindi", "hy": "armenian", "it": "italian", "nl": "dutch", "no": "norwegian",
    "pt": "portuguese", "ru": "russian", "sv": "swedish", "ta": "tamil",
}  # fmt: skip
"""ISO 639-1 code → Snowball algorithm. A language outside it is indexed unstemmed."""

_DIGIT: Final = re.compile(r"\d")
# Printed in Russian dictionaries; NFC cannot compose it with Cyrillic letters, and stemmers do not expect it.
_STRESS_MARK: Final = "\u0301"

_LONGEST_TERM: Final = 64
_KEPT_OF_LONGER: Final = 40
_LONGEST_CACHED_TOKEN: Final = 40
_CACHED_TOKENS: Final = 50_000

_FOLDED_STOP_WORDS: Final = {code: frozenset(map(fold_accents, words)) for code, words in STOP_WORDS.items()}
_NO_WORDS: Final[frozenset[str]] = frozenset()


class TokenTerms(NamedTuple):
    """The terms of a token, repeated as often as they occur in it, and how many words it adds to a chunk's length.

    Stop words, whole identifiers and single characters of longer runs add none.
    """

    terms: tuple[str, ...]
    length: int


class Vocabulary:
    """Turns the tokens of documents in one language into terms. One instance serves one thread."""

    def __init__(self, language: str | None) -> None:
        algorithm = STEMMERS.get(language or "")
        self._stem_word = Stemmer.Stemmer(algorithm, maxCacheSize=0).stemWord if algorithm else None
        self._stop_words = _FOLDED_STOP_WORDS.get(language or "", _NO_WORDS)
        self._known: dict[str, TokenTerms] = {}

    def terms_of(self, tokens: Iterable[str]) -> list[TokenTerms]:
        """Give the terms of normalised tokens, that is, of what stands between two spaces."""
        known = self._known
        return [known.get(token) or self._learn(token) for token in tokens]

    def is_stop_word(self, folded: str) -> bool:
        """Whether the language ranks without this word."""
        return folded in self._stop_words

    def stem(self, word: str) -> str:
        """Stem a normalised word, then fold its accents; words with digits, and unknown languages, stay whole."""
        if self._stem_word is None or _DIGIT.search(word):
            return fold_accents(word)
        stemmed: str = self._stem_word(word.replace(_STRESS_MARK, ""))
        return fold_accents(stemmed) or fold_accents(word)

    def _learn(self, token: str) -> TokenTerms:
        learnt = self._analyze(token)
        if len(token) <= _LONGEST_CACHED_TOKEN:
            if len(self._known) >= _CACHED_TOKENS:
                self._known.clear()
            self._known[token] = learnt
        return learnt

    def _analyze(self, token: str) -> TokenTerms:
        terms: list[str] = []
        length = 0
        for piece, is_run in words_and_runs(token):
            if is_run:
                terms += run_terms(piece)
                length += max(len(piece) - 1, 1)
                continue
            folded = fold_accents(piece)
            if not folded:
                continue
            if folded in self._stop_words:
                terms.append(SIMPLE + folded)
                continue
            stem = self.stem(piece)
            terms.append(bounded(stem))
            length += 1
            if stem != folded:
                terms.append(bounded(SIMPLE + folded))
        for name in identifiers(token):
            terms.append(identifier_term(name))
            terms += map(identifier_term, inner_identifiers(name))
        return TokenTerms(tuple(terms), length)


def run_terms(run: str) -> list[str]:
    """Terms of a run without spaces: its bigrams, and each character for queries of one character."""
    return [*map(add, run, run[1:]), *map(SIMPLE.__add__, run)]


def identifier_term(name: str) -> str:
    """Term of a whole identifier."""
    return bounded(IDENTIFIER + fold_accents(name))


def bounded(term: str) -> str:
    """Keep a term under 64 characters: a longer one ends in a digest of the whole, so that it stays distinct."""
    if len(term) <= _LONGEST_TERM:
        return term
    return term[:_KEPT_OF_LONGER] + hashlib.blake2b(term.encode(), digest_size=12).hexdigest()


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.vocabularies: dict[str | None, Vocabulary] = {}


_per_thread = _PerThread()


def vocabulary(language: str | None) -> Vocabulary:
    """Give this thread's vocabulary of a language; unknown languages share the one without stemming."""
    known = language if language in STEMMERS else None
    found = _per_thread.vocabularies.get(known)
    if found is None:
        found = _per_thread.vocabularies[known] = Vocabulary(known)
    return found
