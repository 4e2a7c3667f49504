"""The order in which chunks answer."""

import math
import random
import uuid
from typing import Any

import pytest

from app.documents.lexical.analysis import QueryTerms, TermGroup, analyze_document
from app.documents.lexical.postings import CorruptPostings, TermRows, pack
from app.documents.lexical.scoring import plan_terms, score, score_joined

from .lexical_index import LexicalIndex

ONE_WORD = QueryTerms((TermGroup(("wing",)),))


def rows_of(document: Any, *chunks: str, build: int = 1) -> list[tuple[str, Any, int, bytes]]:
    return [(term, document, build, data) for term, data in pack(analyze_document(chunks, None))]


def bm25(tf: float, df: int, n: int, length: float, average: float) -> float:
    return math.log(1 + (n - df + 0.5) / (df + 0.5)) * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / average))


def test_the_score_is_bm25() -> None:
    rows = rows_of(1, "wing wing tail", "wing") + rows_of(2, "tail tail nose body")

    hits = score(
        QueryTerms((TermGroup(("wing",)), TermGroup(("tail",)))), rows, n_chunks=3, average_length=8 / 3, top_k=9
    )

    assert {(hit.document, hit.chunk_index): hit.score for hit in hits} == pytest.approx(
        {
            (1, 0): bm25(2, 2, 3, 3, 8 / 3) + bm25(1, 2, 3, 3, 8 / 3),
            (1, 1): bm25(1, 2, 3, 1, 8 / 3),
            (2, 0): bm25(2, 2, 3, 4, 8 / 3),
        }
    )


def test_alternatives_of_one_word_count_once() -> None:
    rows = rows_of(1, "wander wanderung wanderung") + rows_of(2, "wanderung nose nose")
    query = QueryTerms((TermGroup(("wander", "wanderung")),))

    hits = score(query, rows, n_chunks=4, average_length=3, top_k=9)

    assert [hit.score for hit in hits] == pytest.approx([bm25(2, 2, 4, 3, 3), bm25(1, 2, 4, 3, 3)])


def test_the_word_as_written_ranks_before_its_inflections() -> None:
    index = LexicalIndex(["organs matter"], ["organization matters"], ["organizations matter"], language="en")

    assert index.documents("organizations")[0] == 3


@pytest.mark.parametrize(
    "documents",
    [[3, 1, 2], [uuid.UUID(int=3), uuid.UUID(int=1), uuid.UUID(int=2)], [b"c", b"a", b"b"]],
    ids=["numbers", "uuids", "bytes"],
)
def test_ties_are_ordered_by_document_and_chunk_whatever_the_order_of_rows(documents: list[Any]) -> None:
    rows = [row for document in documents for row in rows_of(document, "wing", "wing")]
    expected = [(document, chunk) for document in sorted(documents) for chunk in (0, 1)]

    for seed in range(5):
        random.Random(seed).shuffle(rows)
        hits = score(ONE_WORD, rows, n_chunks=6, average_length=1, top_k=5)
        assert [(hit.document, hit.chunk_index) for hit in hits] == expected[:5]


def test_only_allowed_documents_answer_and_scores_stay_the_same() -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    rows = rows_of(first, "wing wing") + rows_of(second, "wing tail")
    everything = score(ONE_WORD, rows, n_chunks=2, average_length=2, top_k=9)

    allowed = score(ONE_WORD, rows, n_chunks=2, average_length=2, top_k=9, allowed={second})

    assert allowed == [hit for hit in everything if hit.document == second]
    assert score(ONE_WORD, rows, n_chunks=2, average_length=2, top_k=9, allowed=set()) == []


def test_hits_name_the_build_and_older_builds_do_not_count() -> None:
    rows = rows_of(1, "wing", "wing", build=3) + rows_of(1, "wing tail", build=4)[:1]

    hits = score(QueryTerms((TermGroup(("tail",)), TermGroup(("wing",)))), rows, n_chunks=1, average_length=2, top_k=9)

    assert [(hit.chunk_index, hit.build) for hit in hits] == [(0, 4)]


def test_high_chunk_numbers_cost_no_memory() -> None:
    data = b"\x02" + (2**32 - 1).to_bytes(4, "little") + b"\x01\0" + b"\x05\0\0\0"
    rows = [("wing", 1, 1, data), ("wing", 2, 1, b"\x01\0\0\x02\x05\0")]

    hits = score(ONE_WORD, rows, n_chunks=2, average_length=5, top_k=9)

    assert [(hit.document, hit.chunk_index) for hit in hits] == [(2, 0), (1, 2**32 - 1)]


def test_empty_chunks_everywhere_do_not_divide_by_zero() -> None:
    rows = [("wing", 1, 1, b"\x01\0\0\x01\0\0")]

    assert len(score(ONE_WORD, rows, n_chunks=0, average_length=0, top_k=1)) == 1


def test_nothing_is_found_without_rows_groups_or_room() -> None:
    rows = rows_of(1, "wing")

    assert score(ONE_WORD, [], n_chunks=1, average_length=1, top_k=9) == []
    assert score(QueryTerms(()), rows, n_chunks=1, average_length=1, top_k=9) == []
    assert score(ONE_WORD, rows, n_chunks=1, average_length=1, top_k=0) == []


QUERY = QueryTerms((TermGroup(("common",)), TermGroup(("rare", "=rare")), TermGroup(("middle",)), TermGroup(("none",))))
COUNTS = {"common": 90_000, "rare": 10, "=rare": 5, "middle": 4_000}


def test_the_commonest_words_are_read_for_candidates_only() -> None:
    plan = plan_terms(QUERY, COUNTS, max_postings=10_000)

    assert plan.essential == ("=rare", "middle", "rare")
    assert plan.for_candidates == ("common",)


def test_everything_is_read_while_it_is_little() -> None:
    plan = plan_terms(QUERY, COUNTS)

    assert plan.essential == ("=rare", "common", "middle", "rare")
    assert plan.for_candidates == ()


def test_a_query_of_one_common_word_is_read_whole() -> None:
    assert plan_terms(QueryTerms((TermGroup(("common",)),)), COUNTS, max_postings=10).essential == ("common",)


def test_a_planned_search_scores_its_candidates_as_an_unplanned_one() -> None:
    rows = [row for i in range(50) for row in rows_of(i, "common rare" if i % 10 == 0 else "common", "common middle")]
    query = QueryTerms((TermGroup(("common",)), TermGroup(("rare",))))
    counts = {"common": 100, "rare": 5}
    plan = plan_terms(query, counts, max_postings=20)
    essential = [row for row in rows if row[0] in plan.essential]
    candidates = {row[1] for row in essential}
    later = [row for row in rows if row[0] in plan.for_candidates and row[1] in candidates]

    planned = score(query, essential + later, n_chunks=100, average_length=2, top_k=5, posting_counts=counts)

    assert planned == score(query, rows, n_chunks=100, average_length=2, top_k=5)


def joined(rows: list[tuple[str, Any, int, bytes]]) -> list[TermRows]:
    """Rows as the database joins them."""
    found = []
    for term in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == term]
        builds, sizes = (
            [value.to_bytes(4, "big") for value in column]
            for column in zip(*((r[2], len(r[3])) for r in mine), strict=True)
        )
        documents = b"".join(row[1].bytes for row in mine)
        found.append(TermRows(term, documents, b"".join(builds), b"".join(sizes), b"".join(row[3] for row in mine)))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_rows_joined_by_the_database_answer_as_single_rows_do(seed: int) -> None:
    chance = random.Random(seed)
    words = ["wing", "tail", "nose", "body", "flap"]
    query = QueryTerms((TermGroup(("tail", "wing"), exact="wing"), TermGroup(("nose",)), TermGroup(("absent",))))
    rows: list[tuple[str, Any, int, bytes]] = []
    for _ in range(30):
        document = uuid.UUID(int=chance.getrandbits(128) if chance.random() < 0.7 else chance.getrandbits(20))
        for build in range(1, chance.randint(2, 3)):
            chunks = [
                " ".join(chance.choices(words, k=chance.choice([3, 3, 400]))) for _ in range(chance.randint(1, 4))
            ]
            rows += rows_of(document, *chunks, build=build)
    chance.shuffle(rows)
    wanted = [row for row in rows if row[0] in query.terms]

    for counts in (None, {"nose": 50}):
        asked: Any = {"n_chunks": 90, "average_length": 60, "top_k": 25, "posting_counts": counts}
        assert score_joined(query, joined(wanted), **asked) == score(query, wanted, **asked)


def test_joined_rows_whose_sizes_do_not_add_up_are_corrupt() -> None:
    (found,) = joined(rows_of(uuid.uuid4(), "wing"))
    cut = TermRows(found.term, found.documents, found.builds, found.sizes, found.data[:-1])

    with pytest.raises(CorruptPostings):
        score_joined(ONE_WORD, [cut], n_chunks=1, average_length=1, top_k=1)
    assert score_joined(ONE_WORD, [], n_chunks=1, average_length=1, top_k=1) == []
