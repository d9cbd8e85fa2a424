"""A video becomes one vector for its whole and one for each stretch that looks alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.describe.views import ViewKind, number_runs
from retrieval.index.pooling import LOW_INFORMATION_WEIGHT, MeanPooler, pool_query
from retrieval.plugins import Pooled
from retrieval.store import StoredDescriptors
from tests.retrieval.test_store import unit_rows


@given(st.integers(1, 70), st.integers(1, 12), st.integers(1, 20), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_vectors_are_the_weighted_means_of_their_spans(
    frames: int, seconds: int, longest: int, seed: int
):
    rows = unit_rows(frames, seed)
    flags = np.random.default_rng(seed).random(frames) < 0.4
    pooled = MeanPooler(seconds, longest).pool(rows, flags)
    weights = np.where(flags, LOW_INFORMATION_WEIGHT, 1.0)[:, None]
    for vector, weight, (start, end) in zip(
        pooled.vectors, pooled.weights, pooled.spans.astype(int), strict=True
    ):
        mean = (rows[start:end] * weights[start:end]).sum(axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
        assert np.isclose(weight, weights[start:end].mean())
    assert pooled.vectors.dtype == np.float32


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 20))
@settings(deadline=None)
def test_stretches_cover_the_video_once_and_none_is_too_long(
    frames: int, seconds: int, longest: int
):
    spans = MeanPooler(seconds, longest).pool(unit_rows(frames)).spans.astype(int).tolist()
    assert spans[0] == [0, frames]
    stretches = spans[1:] or spans
    assert [start for start, _ in stretches] == [0, *(end for _, end in stretches[:-1])]
    assert stretches[-1][1] == frames
    assert all(end - start <= longest for start, end in spans[1:])


@pytest.mark.parametrize("frames", [8, 30, 61, 600])
def test_a_video_has_at_most_two_vectors_for_eight_seconds(frames: int):
    rows = np.cumsum(unit_rows(frames), axis=0).astype(np.float32)  # neighbours look alike
    assert len(MeanPooler().pool(rows).vectors) <= frames * 2 / 8


def test_a_cut_between_two_scenes_parts_two_stretches():
    scenes = unit_rows(4, seed=1)
    lengths = [7, 3, 11, 9]
    rows = scenes.repeat(lengths, axis=0) + 0.05 * unit_rows(30, seed=2)
    spans = MeanPooler(seconds=6).pool(rows).spans[1:].astype(int).tolist()
    assert spans == [[0, 7], [7, 10], [10, 21], [21, 30]]


def test_a_video_of_one_frame_is_its_own_vector():
    rows = unit_rows(1)
    pooled = MeanPooler().pool(rows)
    assert np.allclose(pooled.vectors, rows, atol=1e-6)
    assert pooled.spans.tolist() == [[0, 1]]


def test_black_frames_hardly_move_a_vector_but_a_black_video_still_has_one():
    rows = unit_rows(6)
    rows[3:] = unit_rows(1, seed=9)
    black = np.array([False] * 3 + [True] * 3)
    whole = MeanPooler().pool(rows, black).vectors[0]
    clean = MeanPooler().pool(rows[:3]).vectors[0]
    assert whole @ clean > 0.98 > MeanPooler().pool(rows).vectors[0] @ clean
    all_black = MeanPooler().pool(rows, np.ones(6, dtype=bool))
    assert np.isclose(np.linalg.norm(all_black.vectors[0]), 1.0)
    assert np.allclose(all_black.weights, LOW_INFORMATION_WEIGHT)


def test_what_changes_the_vectors_changes_the_fingerprint():
    assert MeanPooler().fingerprint != MeanPooler(seconds=9).fingerprint
    assert MeanPooler().fingerprint != MeanPooler(longest=9).fingerprint


def test_a_query_brings_the_vectors_of_its_parts_at_their_own_seconds():
    whole, part = unit_rows(40), unit_rows(9, seed=5)
    parts = number_runs(ViewKind.PART, [(range(20, 29), part)])
    pooler = MeanPooler()
    plain = pool_query(pooler, StoredDescriptors(whole, np.zeros(40, bool), None))
    both = pool_query(pooler, StoredDescriptors(whole, np.zeros(40, bool), None, parts))
    added = slice(len(plain.vectors), None)
    assert np.array_equal(both.vectors[: len(plain.vectors)], plain.vectors)
    assert np.array_equal(both.vectors[added], pooler.pool(part).vectors)
    assert both.spans[added][0].tolist() == [20, 29]


def test_vectors_without_weights_count_in_full():
    assert Pooled(unit_rows(3), np.zeros((3, 2), np.float32)).weights.tolist() == [1, 1, 1]
