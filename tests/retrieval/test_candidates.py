"""The references nearest to any part of the query, best first, and never the query itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.candidates import DEPTH, propose_pairs
from retrieval.index import VideoIndex
from retrieval.plugins import Pooled
from retrieval.pooling import MeanPooler
from tests.retrieval.test_index import DIMENSION, pooled
from tests.retrieval.test_store import unit_rows


@given(st.integers(0, 12), st.integers(1, 15), st.floats(-1, 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_candidates_are_the_best_references_by_their_best_vector(
    count: int, top_k: int, min_score: float, is_reference: bool
):
    index = VideoIndex("key", DIMENSION)
    query = pooled(77, 3)
    truth = {}
    for number in range(count):
        vectors = pooled(number, 1 + number % 3)
        index.add(f"r{number}", vectors)
        truth[f"r{number}"] = float((query.vectors @ vectors.vectors.T).max())
    if is_reference:
        index.add("q", query)
    pairs = propose_pairs(index, "q", query, top_k, min_score)
    expected = sorted(
        ((score, name) for name, score in truth.items() if score >= min_score), reverse=True
    )[:top_k]
    assert [pair.reference_id for pair in pairs] == [name for _, name in expected]
    assert np.allclose([pair.score for pair in pairs], [score for score, _ in expected], atol=1e-5)
    assert [pair.rank for pair in pairs] == list(range(1, len(pairs) + 1))
    assert all(pair.query_id == "q" for pair in pairs)


def test_references_of_equal_score_are_ordered_by_name():
    index = VideoIndex("key", DIMENSION)
    for name in ("c", "a", "b"):
        index.add(name, pooled(1))
    names = [pair.reference_id for pair in propose_pairs(index, "q", pooled(1), 3)]
    assert names == ["a", "b", "c"]


def test_a_long_reference_does_not_crowd_out_the_others():
    index = VideoIndex("key", DIMENSION)
    query = pooled(1, 1)
    near = np.repeat(query.vectors, 40 * DEPTH, axis=0)
    index.add("long", Pooled(near, np.zeros((len(near), 2), np.float32)))
    for number in range(5):
        index.add(f"r{number}", pooled(number + 10))
    pairs = propose_pairs(index, "q", query, top_k=3, min_score=-1.0)
    assert len(pairs) == 3
    assert pairs[0].reference_id == "long"


def test_a_query_that_is_a_reference_with_many_windows_still_finds_the_others():
    index = VideoIndex("key", DIMENSION)
    query = pooled(1, 1)
    own = np.repeat(query.vectors, 40 * DEPTH, axis=0)
    index.add("q", Pooled(own, np.zeros((len(own), 2), np.float32)))
    index.add("other", pooled(2))
    [pair] = propose_pairs(index, "q", query, top_k=1, min_score=-1.0)
    assert pair.reference_id == "other"


def test_a_short_copy_in_a_long_reference_is_found_through_its_window():
    pooler = MeanPooler()
    index = VideoIndex("key")
    copied = unit_rows(10, seed=1)
    long = unit_rows(600, seed=2)
    long[300:310] = copied
    index.add("long", pooler.pool(long))
    for number in range(40):
        index.add(f"r{number}", pooler.pool(unit_rows(600, seed=100 + number)))
    assert propose_pairs(index, "q", pooler.pool(copied), 1)[0].reference_id == "long"
