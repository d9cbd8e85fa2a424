"""From a query's vectors to the references worth comparing.

In: the index and the query's pooled vectors. Out: ranked `Candidate`s.
Pure, knows no database.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retrieval.index.index import Hits, Index
from retrieval.plugins import Pooled
from retrieval.records import Candidate

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
# Nearer than unrelated footage by this much, a vector is a copy whatever else there is.
COPY_EXCESS = 0.3
MOST_HITS = 20_000_000  # of all vectors of a query together: some 400 MB


def propose_pairs(
    index: Index, query_id: str, pooled: Pooled, top_k: int, min_score: float = 0.0
) -> list[Candidate]:
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
        Candidate(query_id, reference_id, rank, score)
        for rank, (score, reference_id) in enumerate(ranked[:top_k], start=1)
    ]


def find_copies(index: Index, query_id: str, pooled: Pooled) -> list[Candidate]:
    """Every video that holds a plain copy of any part of the query, however many there are.

    `propose_pairs` takes what many videos share for background. Where a film is looked for in
    uploads, a hundred copies of it are a hundred finds: here all are measured against what
    unrelated footage usually is, and the net is widened until it brings no copy any more.
    """
    depth = BACKGROUND.stop
    while True:
        hits = index.search(pooled.vectors, k=depth, without=query_id)
        excess = hits.scores - BACKGROUND_SHARE * ASSUMED_BACKGROUND
        excess = np.where(hits.numbers >= 0, excess * pooled.weights[:, None], 0.0)
        is_exhausted = depth >= index.vectors or not (excess[:, -1] >= COPY_EXCESS).any()
        if is_exhausted or 4 * depth * len(pooled.vectors) > MOST_HITS:
            break
        depth *= 4
    best: dict[str, float] = {}
    for row, place in np.argwhere(excess >= COPY_EXCESS).tolist():
        video_id = hits.videos[hits.numbers[row, place]]
        best[video_id] = max(best.get(video_id, 0.0), float(excess[row, place]))
    ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [
        Candidate(query_id, video_id, rank, score)
        for rank, (video_id, score) in enumerate(ranked, start=1)
    ]


def count_votes(hits: Hits, pooled: Pooled) -> dict[str, float]:
    """The score of each reference that was hit: its best vote, and of each other vector the best
    one that agrees with it in time."""
    rows, places = np.nonzero(hits.numbers >= 0)
    if not len(rows):
        return {}
    excess = hits.scores[rows, places] - BACKGROUND_SHARE * _background(hits)[rows]
    votes = np.maximum(excess * pooled.weights[rows], 0.0).astype(np.float64)
    numbers = hits.numbers[rows, places]
    order = np.lexsort((-votes, numbers))  # reference by reference, best vote first
    rows, places, numbers, votes = rows[order], places[order], numbers[order], votes[order]
    is_best = np.diff(numbers, prepend=-1) > 0
    group = np.cumsum(is_best) - 1
    offsets = hits.spans[rows, places].mean(axis=1) - pooled.spans[rows].mean(axis=1)
    agrees = np.flatnonzero(np.abs(offsets - offsets[is_best][group]) <= OFFSET_SECONDS)
    # The first vote of a vector for a reference is its best one.
    _, firsts = np.unique(group[agrees] * len(hits.numbers) + rows[agrees], return_index=True)
    counted = agrees[firsts]
    sums = np.bincount(group[counted], votes[counted] ** POWER)
    scores = sums ** (1 / POWER)
    return {
        hits.videos[number]: score
        for number, score in zip(numbers[is_best].tolist(), scores.tolist(), strict=True)
    }


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
