"""The packaged model's tokenizer: ids for the encoder, token offsets for the chunker."""

import functools
import unicodedata
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.ai_providers.packaged.files import ModelFiles, open_model

SEGMENT_CHARACTERS = 4096
_SPACES = (" ", "\n", "\t", "\r", "\u3000", "\u00a0")
_STOPS = ("。", "！", "？", "；", "，", "、", "।", "။", "។", ".", ",", ";")
_LONE_SPACE = "▁"
_JOINERS = frozenset("\u200c\u200d")


class PackagedTokenizer:
    """Tokens of multilingual-e5-small. Safe to share between threads; the vocabulary is loaded once per process.

    A long text is encoded in segments of at most 4,096 characters, cut before white space: no piece crosses one, so
    the tokens are those of a single encode, memory stays bounded, and the scores that sentencepiece sums up in float32
    stay exact. Where 4,096 characters have no white space, the cut is after punctuation, else before a character that
    does not combine with the one in front; there a token may differ from a single encode.
    """

    def __init__(self, files: ModelFiles) -> None:
        self._fingerprint = files.tokenizer_fingerprint
        self._processor = _load_processor(files.tokenizer, files.tokenizer_fingerprint)
        self._lone_space: int = self._processor.piece_to_id(_LONE_SPACE)

    @classmethod
    def open(cls, model_dir: Path) -> "PackagedTokenizer":
        """The tokenizer of the built model in `model_dir`. Raises: ModelNotBuilt."""
        return cls(open_model(model_dir))

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the tokenizer's bytes."""
        return self._fingerprint

    def token_starts(self, text: str) -> "array[int]":
        """Code-point offset where each token of `text` starts; its length is the token count.

        Never descending, within `range(len(text))`; several tokens of one character (a ligature, a unit sign) share
        its offset, and a token that begins a word starts at the white space in front of it. Blank text has none.
        """
        starts = array("I")
        for begin, piece, is_joined in _segments(text):
            found = self._processor.encode(piece, out_type="offset_mapping")
            offsets = [begin + start for start, _ in found["offsets"]]
            if is_joined and found["ids"][:1] == [self._lone_space]:
                del offsets[0]  # sentencepiece puts a space before every segment; here the text has none
            elif begin and not is_joined and offsets:
                offsets[0] = begin  # the white space before the first word, as within a segment
            starts.extend(offsets)
        return starts

    def encode(self, text: str) -> "array[int]":
        """The ids of the same tokens, without special tokens and prefixes."""
        ids = array("i")
        for _, piece, is_joined in _segments(text):
            found = array("i", self._processor.encode(piece, out_type=int))
            ids.extend(found[1:] if is_joined and found[:1] == array("i", [self._lone_space]) else found)
        return ids


@functools.lru_cache(maxsize=2)
def _load_processor(path: Path, fingerprint: str) -> Any:  # the fingerprint tells a rebuilt file from its predecessor
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_proto=path.read_bytes())


def _segments(text: str) -> Iterator[tuple[int, str, bool]]:
    """(offset, segment, whether it goes on in the middle of a word); lone surrogates become U+FFFD."""
    begin, is_joined = 0, False
    while begin < len(text):
        end, joins_next = len(text), False
        if end - begin > SEGMENT_CHARACTERS:
            end, joins_next = _find_cut(text, begin)
        yield begin, _encodable(text[begin:end]), is_joined
        begin, is_joined = end, joins_next


def _find_cut(text: str, begin: int) -> tuple[int, bool]:
    """Where the segment from `begin` ends, and whether that is within a word."""
    limit = begin + SEGMENT_CHARACTERS
    before_space = max(text.rfind(space, begin + 1, limit) for space in _SPACES)
    if before_space > begin:
        run = before_space
        while run > begin and text[run - 1] in _SPACES:
            run -= 1
        return run if run > begin else before_space, False
    after_stop = max(text.rfind(stop, begin, limit - 1) for stop in _STOPS) + 1
    cut = after_stop if after_stop > begin + SEGMENT_CHARACTERS // 2 else limit
    for place in range(cut, max(begin, cut - 64), -1):
        if not _combines(text[place]) and text[place - 1] not in _JOINERS:
            return place, True
    return cut, True


def _combines(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character)[0] == "M" or "🏻" <= character <= "🏿"


def _encodable(piece: str) -> str:
    try:
        piece.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in piece)
    return piece
