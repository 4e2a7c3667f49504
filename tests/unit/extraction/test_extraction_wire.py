from pathlib import Path

import pytest

from app.extraction import wire
from app.extraction.contract import Corrupt, Extracted, ExtractionWarning, Limits, Mark

EXTRACTED = Extracted(
    "漢字 🙂 text",
    "text/html",
    markdown=True,
    marks=(Mark("table", 0, 2, 0, "", 1), Mark("heading", 3, 4, 2, "🙂", None, "a", "b")),
    page_starts=(0, 3),
    language="ja",
    warnings=(ExtractionWarning("code", "message"),),
    facts={"title": "漢", "pages": 2},
)


def test_an_answer_comes_back_as_it_was() -> None:
    assert wire.answer_from_bytes(wire.extracted_to_bytes(EXTRACTED)) == EXTRACTED


@pytest.mark.parametrize("missing", [1, 4, 20, 10_000])
def test_an_answer_that_ends_too_early_is_recognised(missing: int) -> None:
    with pytest.raises(wire.Incomplete):
        wire.answer_from_bytes(wire.extracted_to_bytes(EXTRACTED)[:-missing])


def test_a_refusal_comes_back_as_the_error_it_was() -> None:
    with pytest.raises(Corrupt, match="cut off"):
        wire.answer_from_bytes(wire.failure_to_bytes(Corrupt("It is cut off.")))


def test_requests_and_limits_come_back_as_they_were() -> None:
    request = wire.Request(Path("/somewhere/x"), "näme\u2028.txt", None)
    limits = Limits(timeout_s=0.5, max_characters=7)

    assert wire.request_from_bytes(wire.request_to_bytes(request)) == request
    assert wire.limits_from_text(wire.limits_to_text(limits)) == limits
