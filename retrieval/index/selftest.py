"""How much of what an exact search finds the fast one finds too, and how far it must look for it.

In: the vectors of a new snapshot. Out: `SelfTest`, kept in the snapshot's facts.
Called when a snapshot is made; `vcl index info` shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from retrieval.index.vectors import CodedVectors, Vectors, best_of, chunks
from retrieval.plugins import Array

QUERIES = 400
NEIGHBOURS = 10
# How alike a query is to the row it was made from: what a strong edit leaves of a copy.
SIMILARITY = 0.7
WANTED = 0.98
MORE = 1.4  # times the lists, at each try
LARGEST_SHARE = 8  # more than an eighth of the lists would cost more than it finds
TOLERANCE = 1e-3  # half precision and two ways of adding up


@dataclass(frozen=True)
class SelfTest:
    """`recall_at_1`: share of queries whose nearest row was found; `recall_at_10`: share of the
    ten nearest, the nearest among them."""

    queries: int
    recall_at_1: float
    recall_at_10: float


def run_self_test(vectors: Vectors, queries: int = QUERIES) -> SelfTest:
    """Search rows of the index, a little changed, fast and exactly.

    An inverted file looks into few lists first, and into more until the nearest rows are found.
    """
    sample = disturb_rows(vectors, queries)
    if not len(sample):
        return SelfTest(0, 1.0, 1.0)
    exact = search_exactly(vectors, sample, min(NEIGHBOURS, vectors.count))
    result = _compare(vectors, sample, exact)
    if isinstance(vectors, CodedVectors):
        while result.recall_at_1 < WANTED and vectors.probes < vectors.lists // LARGEST_SHARE:
            vectors.probes = math.ceil(vectors.probes * MORE)
            result = _compare(vectors, sample, exact)
    return result


def disturb_rows(vectors: Vectors, queries: int, seed: int = 0) -> Array:
    """Some rows, each turned away from itself in a random direction."""
    rng = np.random.default_rng(seed)
    count = vectors.count
    chosen = np.sort(rng.choice(count, size=min(queries, count), replace=False))
    if not count:
        return np.zeros((0, 0), dtype=np.float32)
    rows = vectors.read(chosen.astype(np.int64))
    noise = rng.standard_normal(rows.shape, dtype=np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    mixed = SIMILARITY * rows + float(np.sqrt(1 - SIMILARITY**2)) * noise
    return np.ascontiguousarray(mixed / np.linalg.norm(mixed, axis=1, keepdims=True))


def search_exactly(vectors: Vectors, queries: Array, k: int) -> Array:
    """The k best scores of each query, by comparing it with every row."""
    best = np.full((len(queries), k), -np.inf, dtype=np.float32)
    for positions in chunks(vectors.count):
        scores = np.concatenate([best, queries @ vectors.read(positions).T], axis=1)
        best = -np.partition(-scores, k - 1, axis=1)[:, :k]
    return best_of(best, np.zeros(best.shape, dtype=np.int64), k)[0]


def _compare(vectors: Vectors, queries: Array, exact: Array) -> SelfTest:
    k = exact.shape[1]
    scores, _ = vectors.search(queries, k, np.zeros(vectors.count, dtype=bool))
    # By score, not by position: of two equal rows either may be found.
    is_found = scores >= exact[:, -1:] - TOLERANCE
    nearest = scores[:, 0] >= exact[:, 0] - TOLERANCE
    return SelfTest(len(queries), float(nearest.mean()), float(is_found.mean()))
