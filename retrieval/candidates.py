"""From a query's vectors to the references worth comparing.

In: the index and the query's pooled vectors. Out: ranked `Pair`s.
Called by the engine when it plans a search; pure, knows no database.
"""

from __future__ import annotations

import numpy as np

from retrieval.index import Index
from retrieval.plugins import Pooled
from retrieval.records import Pair

# Neighbours fetched per query vector and wanted candidate: one reference may fill many places.
DEPTH = 8


def propose_pairs(
    index: Index, query_id: str, pooled: Pooled, top_k: int, min_score: float = 0.0
) -> list[Pair]:
    """The `top_k` references nearest to any window of the query, best first.

    A reference's score is its best window similarity: a copy of a few seconds touches one or two
    windows only, so a mean over the query would bury it. The query itself is never a candidate.
    """
    best = _best_scores(index, query_id, pooled, top_k)
    ranked = sorted(
        ((score, video_id) for video_id, score in best.items() if score >= min_score),
        key=lambda row: (-row[0], row[1]),
    )
    return [
        Pair(query_id, reference_id, rank, score)
        for rank, (score, reference_id) in enumerate(ranked[:top_k], start=1)
    ]


def _best_scores(index: Index, query_id: str, pooled: Pooled, top_k: int) -> dict[str, float]:
    """The best score of each reference met among the nearest vectors.

    A long reference can fill every place with its own windows, so the net is widened until it
    holds enough references, or all there are.
    """
    enough = min(top_k, len(index) - (query_id in index))
    depth = top_k * DEPTH
    while True:
        hits = index.search(pooled.vectors, k=depth, without=query_id)
        best = np.full(len(hits.videos), -np.inf, dtype=np.float32)
        is_hit = hits.numbers >= 0
        np.maximum.at(best, hits.numbers[is_hit], hits.scores[is_hit])
        found = np.flatnonzero(best > -np.inf)
        if len(found) >= enough or depth >= index.vectors:
            return {hits.videos[number]: float(best[number]) for number in found.tolist()}
        depth *= 4
