"""Which language a text is in, told by its script and its function words."""

import re
from collections import Counter, defaultdict
from typing import Final

from app.documents.lexical.segmentation import normalize
from app.documents.lexical.stop_words import STOP_WORDS

_SAMPLE_CHARACTERS: Final = 6000
_SAMPLE_PLACES: Final = 3
_SHARE_OF_FUNCTION_WORDS: Final = 0.12
_LEAD: Final = 1.15

_WORD: Final = re.compile(r"[^\W\d_]+")

# One script, one language that has a stemmer or is written without spaces.
_SCRIPTS: Final = {
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
    "ja": re.compile("[\u3041-\u309f\u30a1-\u30fa]"),
    "ko": re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]"),
    "th": re.compile("[\u0e01-\u0e3a]"),
    "lo": re.compile("[\u0e81-\u0ebd]"),
    "km": re.compile("[\u1780-\u17b3]"),
    "my": re.compile("[\u1000-\u102a]"),
    "he": re.compile("[\u05d0-\u05ea]"),
    "hy": re.compile("[\u0531-\u0587]"),
    "ta": re.compile("[\u0b85-\u0bb9]"),
}
_KANA_SHARE_OF_JAPANESE: Final = 0.1
# Characters of a script without spaces carry more than a letter does.
_WEIGHT_OF_SPACELESS: Final = 3

# Letters that show another language of the same script.
_FOREIGN_LETTERS: Final = {
    "ru": re.compile("[іїєґўјљњћџђѓќәғқңөұүһ]"),
    "ar": re.compile("[پچژگکیےٹڈڑں]"),
}
_FOREIGN_SHARE: Final = 0.01

# Indic vowel signs are no word characters for `\w`; the profile of Hindi is matched on what stands between spaces.
_DEVANAGARI: Final = re.compile("[\u0900-\u097f]+")

_LANGUAGES_OF: Final[dict[str, tuple[str, ...]]] = {}
for _language, _words in STOP_WORDS.items():
    for _word in _words:
        _LANGUAGES_OF[_word] = (*_LANGUAGES_OF.get(_word, ()), _language)


def detect_language(text: str) -> str | None:
    """Tell the ISO 639-1 code of the language of `text`, or None when the signs are too few or contradict each other.

    Looks at no more than 6,000 characters from three places. A text in several languages gets that of most of it.
    """
    sample = normalize(_sample(text))
    return _by_script(sample) or _by_function_words(sample, least_different=3)


def detect_query_language(text: str) -> str | None:
    """Tell the language of a short text, where two function words are evidence enough."""
    sample = normalize(text[:_SAMPLE_CHARACTERS])
    return _by_script(sample) or _by_function_words(sample, least_different=2)


def _sample(text: str) -> str:
    if len(text) <= _SAMPLE_CHARACTERS:
        return text
    size = _SAMPLE_CHARACTERS // _SAMPLE_PLACES
    step = (len(text) - size) // (_SAMPLE_PLACES - 1)
    return " ".join(text[place * step : place * step + size] for place in range(_SAMPLE_PLACES))


def _by_script(sample: str) -> str | None:
    """The language of the script that prevails, where that decides it."""
    if sample.isascii():
        return None
    letters = sum(map(len, _WORD.findall(sample)))
    counts = Counter({language: len(script.findall(sample)) for language, script in _SCRIPTS.items()})
    if counts["ja"] > _KANA_SHARE_OF_JAPANESE * counts["zh"]:
        counts["ja"] += counts.pop("zh", 0)
    else:
        counts.pop("ja")
    language, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    spaced = language in {"he", "hy", "ta"}
    weight = 1 if spaced else _WEIGHT_OF_SPACELESS
    return language if count and count * weight > max(letters - count, 0) else None


def _words_of(sample: str) -> list[str]:
    return _DEVANAGARI.findall(sample) + _WORD.findall(sample)


def _by_function_words(sample: str, *, least_different: int) -> str | None:
    """The language whose function words are frequent, various and clearly ahead.

    A word of several languages counts in parts; a word said often counts less each time (a list of names in Spanish).
    """
    words = Counter(_words_of(sample))
    lead: defaultdict[str, float] = defaultdict(float)
    hits: Counter[str] = Counter()
    different: Counter[str] = Counter()
    for word, count in words.items():
        languages = _LANGUAGES_OF.get(word, ())
        for language in languages:
            lead[language] += count**0.75 / len(languages)
            hits[language] += count
            different[language] += 1
    ranked = sorted(lead, key=lambda language: (-lead[language], language))
    if not ranked:
        return None
    best, second = ranked[0], lead[ranked[1]] if len(ranked) > 1 else 0.0
    enough = different[best] >= least_different and hits[best] >= _SHARE_OF_FUNCTION_WORDS * words.total()
    foreign = best in _FOREIGN_LETTERS and len(_FOREIGN_LETTERS[best].findall(sample)) > _FOREIGN_SHARE * len(sample)
    return best if enough and lead[best] >= _LEAD * second and not foreign else None
