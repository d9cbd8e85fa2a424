"""From a query's vectors to the references worth comparing.

In: the index and the query's pooled vectors. Out: ranked `Pair`s.
Called by the engine when it plans a search; pure, knows no database.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retrieval.index import Hits, Index
from retrieval.plugins import Pooled
from retrieval.records import Pair

# Neighbours fetched per query vector and wanted candidate: one reference may fill many places.
DEPTH = 8
# A vector's neighbours after the first few dozen are unrelated footage, or footage that so many
# references share that it proves nothing: an ident, a card, black. An index too small to tell is
# taken to be as near as unrelated footage usually is.
BACKGROUND = slice(40, 160)
ASSUMED_BACKGROUND = 0.3
BACKGROUND_SHARE = 0.9  # of it that counts against a hit
# Votes of one copy agree on how far apart the two videos run, up to its speed and the stretches.
OFFSET_SECONDS = 8.0
# Votes that agree are added up as powers: two good ones are more than one, but the many weak ones
# that any two long videos have stay weak. A plain sum lost a third of all copies of 3 seconds.
POWER = 8.0


def propose_pairs(
    index: Index, query_id: str, pooled: Pooled, top_k: int, min_score: float = 0.0
) -> list[Pair]:
    """The `top_k` references that hold the likeliest copies of any part of the query, best first.

    Each vector of the query votes for the references near it, by how much nearer they are than
    footage it has nothing to do with. A reference's score is its best vote, and a share of those
    that agree with it in time: a copy of a few seconds touches one vector only, so a mean over the
    query would bury it. The query itself is never a candidate.

    A score is 0 for a reference no nearer than anything else, and about 0.7 for a plain copy.
    """
    hits = _search(index, query_id, pooled, top_k)
    votes = count_votes(hits, pooled)
    ranked = sorted(
        ((score, video_id) for video_id, score in votes.items() if score >= min_score),
        key=lambda row: (-row[0], row[1]),
    )
    return [
        Pair(query_id, reference_id, rank, score)
        for rank, (score, reference_id) in enumerate(ranked[:top_k], start=1)
    ]


def count_votes(hits: Hits, pooled: Pooled) -> dict[str, float]:
    """The score of each reference that was hit."""
    rows, places = np.nonzero(hits.numbers >= 0)
    numbers = hits.numbers[rows, places]
    excess = hits.scores[rows, places] - BACKGROUND_SHARE * _background(hits)[rows]
    votes = np.maximum(excess * pooled.weights[rows], 0.0).astype(np.float64)
    middles = hits.spans[rows, places].mean(axis=1) - pooled.spans[rows].mean(axis=1)
    order = np.lexsort((-votes, numbers))
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return {
        hits.videos[int(numbers[group[0]])]: _add_up(votes[group], middles[group], rows[group])
        for group in np.split(order, starts[1:])
        if len(group)
    }


def _add_up(
    votes: NDArray[np.float64], offsets: NDArray[np.float32], rows: NDArray[np.intp]
) -> float:
    """Of votes for one reference, best first: the best, and of each other vector the best one that
    agrees with it."""
    agrees = np.abs(offsets - offsets[0]) <= OFFSET_SECONDS
    agrees &= rows != rows[0]
    _, firsts = np.unique(rows[agrees], return_index=True)
    others = votes[agrees][firsts] ** POWER
    return float((votes[0] ** POWER + others.sum()) ** (1 / POWER))


def _background(hits: Hits) -> NDArray[np.float32]:
    """How near each query vector is to footage that it does not copy."""
    far = hits.scores[:, BACKGROUND]
    is_there = hits.numbers[:, BACKGROUND] >= 0
    places = BACKGROUND.stop - BACKGROUND.start
    missing = places - is_there.sum(axis=1)
    sums = np.where(is_there, far, 0.0).sum(axis=1) + ASSUMED_BACKGROUND * missing
    return np.asarray(sums / places, np.float32)


def _search(index: Index, query_id: str, pooled: Pooled, top_k: int) -> Hits:
    """The nearest vectors, deep enough to know the background and to meet `top_k` references.

    A long reference can fill every place with its own vectors, so the net is widened until it
    holds enough references, or all there are.
    """
    enough = min(top_k, len(index) - (query_id in index))
    depth = max(top_k * DEPTH, BACKGROUND.stop)
    while True:
        hits = index.search(pooled.vectors, k=depth, without=query_id)
        found = np.unique(hits.numbers[hits.numbers >= 0])
        if len(found) >= enough or depth >= index.vectors:
            return hits
        depth *= 4
