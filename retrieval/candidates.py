"""From a query's vectors to the references worth comparing.

In: the index and the query's pooled vectors. Out: ranked `Pair`s.
Called by the engine when it plans a search; pure, knows no database.
"""

from __future__ import annotations

import numpy as np

from retrieval.index import ReferenceIndex
from retrieval.plugins import Pooled
from retrieval.records import Pair

# Neighbours fetched per query vector and wanted candidate: one reference may fill many places.
DEPTH = 8


def propose_pairs(
    index: ReferenceIndex, query_id: str, pooled: Pooled, top_k: int, min_score: float = 0.0
) -> list[Pair]:
    """The `top_k` references nearest to any window of the query, best first.

    A reference's score is its best window similarity: a copy of a few seconds touches one or two
    windows only, so a mean over the query would bury it. The query itself is never a candidate.
    """
    hits = index.search(pooled.vectors, k=top_k * DEPTH)
    best: dict[int, float] = {}
    for number, score in zip(hits.numbers.ravel(), hits.scores.ravel(), strict=True):
        if number >= 0 and score > best.get(int(number), -np.inf):
            best[int(number)] = float(score)
    ranked = sorted(
        (
            (score, hits.videos[number])
            for number, score in best.items()
            if score >= min_score and hits.videos[number] != query_id
        ),
        key=lambda row: (-row[0], row[1]),
    )
    return [
        Pair(query_id, reference_id, rank, score)
        for rank, (score, reference_id) in enumerate(ranked[:top_k], start=1)
    ]
