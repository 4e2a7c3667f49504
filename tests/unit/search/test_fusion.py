from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from app.search.fusion import Ref, Scored, reciprocal_rank_fusion, score_fusion

REFS = [Ref(UUID(int=n), 0, 1) for n in range(8)]


def leg(*scores: tuple[int, float]) -> list[Scored]:
    return [Scored(REFS[n], score) for n, score in scores]


def test_a_chunk_that_leads_both_legs_scores_one() -> None:
    fused = score_fusion(leg((0, 0.9), (1, 0.5)), leg((0, 12.0), (2, 3.0)), weight=0.6)

    assert fused[0] == (REFS[0], 1.0)


def test_a_chunk_missing_from_a_leg_counts_zero_there() -> None:
    fused = dict(score_fusion(leg((0, 0.9), (1, 0.5)), leg((2, 12.0), (3, 3.0)), weight=0.6))

    assert fused[REFS[0]] == 0.6
    assert abs(fused[REFS[2]] - 0.4) < 1e-9


def test_equal_scores_of_a_leg_count_one_each() -> None:
    fused = dict(score_fusion(leg((0, 0.5), (1, 0.5)), [], weight=0.6))

    assert fused == {REFS[0]: 0.6, REFS[1]: 0.6}


def test_ranks_fuse_by_the_sum_of_reciprocals() -> None:
    fused = dict(reciprocal_rank_fusion([[REFS[0], REFS[1]], [REFS[1]]], k=60))

    assert abs(fused[REFS[1]] - (1 / 62 + 1 / 61)) < 1e-12
    assert abs(fused[REFS[0]] - 1 / 61) < 1e-12


scores = st.lists(st.tuples(st.integers(0, 7), st.floats(-1, 1)), unique_by=lambda pair: pair[0])


@given(scores, scores, st.floats(0, 1))
def test_order_is_total_and_scores_stay_in_range(vector: object, lexical: object, weight: float) -> None:
    legs = [sorted(leg(*pairs), key=lambda s: -s.score) for pairs in (vector, lexical)]  # type: ignore[misc]
    fused = score_fusion(legs[0], legs[1], weight=weight)

    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))
    assert {ref for ref, _ in fused} == {s.ref for part in legs for s in part}
    assert all(-1e-9 <= score <= 1 + 1e-9 for _, score in fused)


def test_ties_are_ordered_by_document_then_chunk_then_build() -> None:
    refs = [Ref(UUID(int=2), 0, 1), Ref(UUID(int=1), 1, 2), Ref(UUID(int=1), 1, 1), Ref(UUID(int=1), 0, 9)]
    equal = [Scored(ref, 0.5) for ref in refs]

    assert [ref for ref, _ in score_fusion(equal, [], weight=0.6)] == sorted(refs)
    assert [ref for ref, _ in score_fusion(equal, equal[::-1], weight=0.6)] == sorted(refs)
    assert [ref for ref, _ in reciprocal_rank_fusion([[refs[0]], [refs[1]]])] == sorted(refs[:2])


def test_only_the_top_of_a_leg_counts_and_sets_its_scale() -> None:
    vector = leg(*((n, 1 - n / 10) for n in range(8)))

    fused = dict(score_fusion(vector, [], weight=1.0, depth=3))

    assert set(fused) == set(REFS[:3])
    assert (fused[REFS[0]], fused[REFS[2]]) == (1.0, 0.0)


def test_two_empty_legs_are_an_empty_answer() -> None:
    assert score_fusion([], [], weight=0.6) == []
    assert reciprocal_rank_fusion([[], []]) == []
    assert reciprocal_rank_fusion([]) == []
