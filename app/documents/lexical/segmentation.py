"""Unicode text to pieces: one normal form, words, runs of scripts written without spaces, identifiers."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# Han, kana, bopomofo, Hangul, Thai, Lao, Khmer, Burmese: letters and signs, without their digits and punctuation.
SPACELESS: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\u1100-\u11ff\u1780-\u17d3\u17d7\u17dc\u17dd\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97c\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_SPACELESS_RUN: Final = re.compile(f"[{SPACELESS}]+")

# Vowel signs and other marks belong to a word; `\w` leaves them out. Beyond 0x1e94a only variation selectors follow.
_MARKS: Final = "".join(chr(c) for c in range(0x300, 0x1E94B) if unicodedata.category(chr(c))[0] == "M")
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_WORD: Final = re.compile(f"[\\w{_MARKS}]+")

# What is folded away: accents of Latin, Greek and Cyrillic letters, Hebrew points, Arabic vowel signs and tatweel.
# Marks of other scripts are vowels and stay.
_ACCENTS: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_LETTERS_WITHOUT_DECOMPOSITION: Final = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i", "ŋ": "n", "ŧ": "t"}
)

_INVISIBLE: Final = re.compile("[\u00ad\u200c-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]+")
_ZERO_WIDTH_SPACE: Final = "\u200b"

# A candidate: words joined by up to three signs, with a leading dot or `--`, or ending in `++` or `#`.
# Possessive, and without nested search: linear in the length of any token.
_CANDIDATE: Final = re.compile(r"(?:(?<![\w.])\.|(?<![\w-])--)?\w++(?:[-./\\@:+#]{1,3}\w++)*+(?:\+\+|#)?")
_DECISIVE_SIGN: Final = re.compile(r"[._/\\@:+#]|^--")
_LETTER_OR_DIGIT: Final = re.compile(r"[^\W_]")
_DIGIT: Final = re.compile(r"\d")
_SEGMENT: Final = re.compile(r"[/\\@:#]+")


def normalize(text: str) -> str:
    """Give the form in which texts are compared: NFKC, case-folded, invisible characters gone; accents stay."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _INVISIBLE.sub("", text).replace(_ZERO_WIDTH_SPACE, " ")


def fold_accents(word: str) -> str:
    """Take the accents off a normalised word; vowel signs of Indic and other scripts stay. May leave nothing."""
    if word.isascii():
        return word
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", word))
    return unicodedata.normalize("NFC", bare).translate(_LETTERS_WITHOUT_DECOMPOSITION)


def words_and_runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a normalised text in order: a word, or (True) a run of a script without spaces.

    A word is letters, marks and digits; everything else, `_` too, separates.
    """
    if text.isascii():
        for word in _ASCII_WORD.findall(text):
            yield word, False
        return
    text = text.replace("_", " ")
    position = 0
    for run in _SPACELESS_RUN.finditer(text):
        for word in _WORD.findall(text, position, run.start()):
            yield word, False
        yield run.group(), True
        position = run.end()
    for word in _WORD.findall(text, position):
        yield word, False


def identifiers(token: str) -> list[str]:
    """List what in a normalised token without spaces is one name: `err-4711`, `3.11.7`, `etc/x.conf`, `a_b`, `c++`.

    Letters joined by hyphens alone are words, not names. Surrounding signs are no part of it, but for `.net`, `--flag`,
    `c++` and `c#`. In the token's order.
    """
    if token.isalnum():
        return []
    if not token.isascii():
        token = _SPACELESS_RUN.sub(" ", token)
    return [name for name in _CANDIDATE.findall(token) if _is_name(name)]


def inner_identifiers(name: str) -> list[str]:
    """List the names inside a path, an address or a scoped name: `x.conf` in `etc/x.conf`."""
    return [segment for segment in _SEGMENT.split(name) if segment != name and _is_name(segment)]


def _is_name(name: str) -> bool:
    decisive = _DECISIVE_SIGN.search(name) or ("-" in name and _DIGIT.search(name))
    return bool(decisive) and _LETTER_OR_DIGIT.search(name) is not None
