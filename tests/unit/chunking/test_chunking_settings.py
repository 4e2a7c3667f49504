import pytest
from chunking_support import WordTokenizer

from app.chunking.contract import ChunkSettings, Outline
from app.chunking.service import chunk, chunking_fingerprint
from app.chunking.settings import MAX_SIZE_TOKENS, MIN_SIZE_TOKENS, validate_settings
from app.errors import Invalid

SIZE, OVERLAP = ("chunk_size_tokens",), ("chunk_overlap_tokens",)


@pytest.mark.parametrize(("size", "overlap"), [(MIN_SIZE_TOKENS, 0), (MAX_SIZE_TOKENS, 255), (33, 16), (256, 32)])
def test_settings_within_the_bounds_are_accepted(size: int, overlap: int) -> None:
    assert validate_settings(size, overlap) == ChunkSettings(size_tokens=size, overlap_tokens=overlap)


@pytest.mark.parametrize(
    ("size", "overlap", "locations"),
    [
        (31, 0, [SIZE]),
        (513, 0, [SIZE]),
        (0, 0, [SIZE]),
        (-5, 3, [SIZE, OVERLAP]),
        (512, -1, [OVERLAP]),
        (512, 256, [OVERLAP]),
        (128, 128, [OVERLAP]),
        (10_000, 9_000, [SIZE, OVERLAP]),
    ],
)
def test_settings_outside_the_bounds_are_refused_naming_each_field(
    size: int, overlap: int, locations: list[tuple[str]]
) -> None:
    with pytest.raises(Invalid) as caught:
        validate_settings(size, overlap)

    assert [fault.loc for fault in caught.value.faults] == locations


def test_the_chunker_itself_refuses_settings_that_were_not_validated() -> None:
    with pytest.raises(Invalid):
        chunk("text", Outline(), ChunkSettings(size_tokens=100, overlap_tokens=100), WordTokenizer())


def test_a_reserve_that_leaves_little_room_is_refused() -> None:
    with pytest.raises(ValueError, match="quarter"):
        chunk("text", Outline(), ChunkSettings(), WordTokenizer(), reserved_tokens=200)


def test_the_fingerprint_changes_with_size_overlap_and_tokenizer() -> None:
    other = WordTokenizer()
    other.fingerprint = "other"

    prints = {
        chunking_fingerprint(ChunkSettings(512, 0), WordTokenizer()),
        chunking_fingerprint(ChunkSettings(256, 0), WordTokenizer()),
        chunking_fingerprint(ChunkSettings(512, 32), WordTokenizer()),
        chunking_fingerprint(ChunkSettings(512, 0), other),
    }

    assert len(prints) == 4
    assert chunking_fingerprint(ChunkSettings(), WordTokenizer()) in prints
    assert max(map(len, prints)) <= 64
