"""Merging the legs of a search into one order."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, order=True)
class Ref:
    """A chunk of a build; the order decides ties."""

    document_id: UUID
    chunk_index: int
    build: int

    def __hash__(self) -> int:
        """A merge hashes each ref a few times: the id's number hashes in C, the id in Python."""
        return hash((self.document_id.int, self.chunk_index, self.build))


@dataclass(frozen=True)
class Scored:
    """A chunk with the score of one leg."""

    ref: Ref
    score: float


def score_fusion(
    vector: Sequence[Scored], lexical: Sequence[Scored], *, weight: float, depth: int = 100
) -> list[tuple[Ref, float]]:
    """Merge two legs by min-max scores: weight · vector + (1 - weight) · lexical, each over its top `depth`.

    Legs are best first. A chunk missing from a leg counts 0 there; all scores of a leg equal: 1. Result best first,
    scores in [0, 1], ties ordered by ref.
    """
    fused: dict[Ref, float] = {}
    for leg, share in ((vector[:depth], weight), (lexical[:depth], 1 - weight)):
        for scored, value in zip(leg, _min_max(leg), strict=True):
            fused[scored.ref] = fused.get(scored.ref, 0.0) + share * value
    return sorted(fused.items(), key=lambda item: (-item[1], item[0]))


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Ref]], *, k: int = 60) -> list[tuple[Ref, float]]:
    """Merge rankings into one by summing 1 / (k + rank).

    Each ranking is best first, ranks count from 1; a ref absent from a ranking adds nothing.
    Scores lie in (0, len(rankings) / (k + 1)]; ties are ordered by ref.
    Source: Cormack, Clarke & Büttcher, "Reciprocal Rank Fusion", SIGIR 2009 (k = 60).
    """
    scores: defaultdict[Ref, float] = defaultdict(float)
    for ranking in rankings:
        for rank, ref in enumerate(ranking, start=1):
            scores[ref] += 1 / (k + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _min_max(leg: Sequence[Scored]) -> list[float]:
    if not leg:
        return []
    low, high = min(s.score for s in leg), max(s.score for s in leg)
    if high == low:
        return [1.0] * len(leg)
    return [(s.score - low) / (high - low) for s in leg]
