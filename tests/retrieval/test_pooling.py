"""A video becomes one vector for its whole and one for each of its windows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.pooling import LOW_INFORMATION_WEIGHT, MeanPooler
from tests.retrieval.test_store import unit_rows


@given(st.integers(1, 70), st.integers(1, 12), st.integers(1, 12), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_vectors_are_the_weighted_means_of_their_spans(
    frames: int, window: int, stride: int, seed: int
):
    rows = unit_rows(frames, seed)
    flags = np.random.default_rng(seed).random(frames) < 0.4
    pooled = MeanPooler(window, stride).pool(rows, flags)
    weights = np.where(flags, LOW_INFORMATION_WEIGHT, 1.0)[:, None]
    for vector, (start, end) in zip(pooled.vectors, pooled.spans.astype(int), strict=True):
        mean = (rows[start:end] * weights[start:end]).sum(axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    assert pooled.vectors.dtype == np.float32


@given(st.integers(1, 200), st.integers(1, 12), st.data())
@settings(deadline=None)
def test_every_second_lies_in_a_window_and_every_window_in_the_video(
    frames: int, window: int, data: st.DataObject
):
    stride = data.draw(st.integers(1, window))
    spans = MeanPooler(window, stride).pool(unit_rows(frames)).spans
    assert spans[0].tolist() == [0, frames]
    covered = np.zeros(frames, dtype=bool)
    for start, end in spans[1:].astype(int):
        assert 0 <= start < end <= frames
        covered[start:end] = True
    assert covered.all() or frames <= window


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
    all_black = MeanPooler().pool(rows, np.ones(6, dtype=bool)).vectors[0]
    assert np.isclose(np.linalg.norm(all_black), 1.0)


def test_what_changes_the_vectors_changes_the_fingerprint():
    assert MeanPooler().fingerprint != MeanPooler(window=9).fingerprint
    assert MeanPooler().fingerprint != MeanPooler(stride=9).fingerprint
