"""Vectors answer alike, whether every row is compared or codes choose which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.index.selftest import disturb_rows, run_self_test, search_exactly
from retrieval.index.vectors import (
    CodedVectors,
    ExactVectors,
    GpuVectors,
    copy_to_gpu,
    count_lists,
    train_codes,
)


def clustered(count: int, dimension: int, seed: int) -> np.ndarray:
    """Rows in runs of four that look alike, as the windows of one shot do; half precision."""
    rng = np.random.default_rng(seed)
    shots = rng.standard_normal((count // 4 + 1, dimension))
    rows = np.repeat(shots, 4, axis=0)[:count] + 0.4 * rng.standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float16).astype(np.float32)


def exact(rows: np.ndarray) -> ExactVectors:
    vectors = ExactVectors(rows.shape[1])
    vectors.add(rows)
    return vectors


def coded(rows: np.ndarray, probes: int = 8) -> CodedVectors:
    codes = train_codes(rows, len(rows))
    codes.add(rows)
    return CodedVectors(codes, rows.astype(np.float16), probes)


def none_dead(vectors: ExactVectors | CodedVectors | GpuVectors) -> np.ndarray:
    return np.zeros(vectors.count, dtype=bool)


@given(st.integers(0, 10**6), st.integers(200, 700), st.sampled_from([16, 32]), st.floats(0.0, 0.6))
@settings(max_examples=10, deadline=None)
def test_codes_and_flat_agree_on_the_nearest_of_a_copy(seed, count, dimension, share):
    rows = clustered(count, dimension, seed)
    dead = np.random.default_rng(seed).random(count) < share
    dead[0] = False
    fast, flat = coded(rows), exact(rows)
    run_self_test(fast)  # sets how many lists are visited, as a snapshot does
    living = np.flatnonzero(~dead)
    queries = rows[living[:: max(1, len(living) // 50)]]
    fast_scores, fast_positions = fast.search(queries, 5, dead)
    flat_scores, _ = flat.search(queries, 5, dead)
    assert np.allclose(fast_scores[:, 0], flat_scores[:, 0], atol=1e-5)
    assert not dead[fast_positions[fast_positions >= 0]].any()
    assert (np.diff(fast_scores, axis=1) <= 0).all()


@pytest.mark.parametrize("make", [exact, coded])
def test_the_living_are_found_behind_any_number_of_dead(make: Any):
    rows = clustered(400, 32, 1)
    vectors = make(rows)
    order = np.argsort(-(rows @ rows[7]))
    for died in (1, 20, 300, 399):
        dead = none_dead(vectors)
        dead[order[:died]] = True
        scores, positions = vectors.search(rows[7:8], 400, dead)
        assert set(positions[0][positions[0] >= 0]) == set(order[died:])
        assert scores[0, 0] == pytest.approx(rows[order[died]] @ rows[7], abs=1e-5)
        few = vectors.search(rows[7:8], 3, dead)[1][0]
        assert (few >= 0).sum() == min(3, 400 - died)
        assert not dead[few[few >= 0]].any()


@pytest.mark.parametrize("make", [exact, coded])
def test_when_all_are_dead_nothing_is_found(make: Any):
    rows = clustered(100, 32, 1)
    scores, positions = make(rows).search(rows[:2], 5, np.ones(100, dtype=bool))
    assert (positions == -1).all()
    assert np.isneginf(scores).all()


def test_codes_and_rows_that_do_not_belong_together_are_refused():
    rows = clustered(100, 32, 1)
    codes = train_codes(rows, 100)
    codes.add(rows)
    with pytest.raises(ValueError, match="100 codes of 32, but rows of shape"):
        CodedVectors(codes, rows[:-1].astype(np.float16), 1)


def test_a_file_of_another_kind_is_no_codes(tmp_path: Path):
    exact(clustered(100, 32, 1)).write(tmp_path / "codes.faiss")
    np.save(tmp_path / "rows.npy", np.zeros((100, 32), dtype=np.float16))
    with pytest.raises(ValueError, match="codes are expected, this is a IndexFlat"):
        CodedVectors.open(tmp_path / "codes.faiss", tmp_path / "rows.npy", 1)


def test_lists_grow_with_the_root_of_the_rows():
    assert [count_lists(count) for count in (1, 100, 10_000, 1_000_000)] == [2, 16, 256, 2048]


def test_the_self_test_sees_what_too_few_lists_miss_and_visits_more():
    rows = np.random.default_rng(3).standard_normal((4000, 64)).astype(np.float32)
    narrow = coded(rows / np.linalg.norm(rows, axis=1, keepdims=True), probes=1)
    sample = disturb_rows(narrow, 200)
    best = search_exactly(narrow, sample, 1)
    found = narrow.search(sample, 1, none_dead(narrow))[0]
    before = float((found >= best - 1e-3).mean())
    result = run_self_test(narrow)
    assert before < 0.9, "rows without any order are in lists that say little"
    assert narrow.probes > 8
    assert result.queries == 400
    assert before < result.recall_at_1 <= 1.0


def test_the_self_test_of_a_flat_index_finds_everything():
    vectors = exact(clustered(300, 32, 5))
    assert run_self_test(vectors).recall_at_10 == 1.0
    assert run_self_test(ExactVectors(32)).queries == 0


class GpuOfTheTest:
    """What FAISS's GPU index does, on the CPU: no selector, rounded rows."""

    def __init__(self, resources: object, dimension: int, config: Any) -> None:
        self.config = config
        self.flat = faiss.IndexFlatIP(dimension)

    def add(self, rows: np.ndarray) -> None:
        self.flat.add(rows.astype(np.float16).astype(np.float32))

    def search(self, queries: np.ndarray, k: int) -> Any:
        return self.flat.search(queries, k)


class Config:
    device = 0
    useFloat16 = False  # noqa: N815


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1, raising=False)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "GpuIndexFlatConfig", Config, raising=False)
    monkeypatch.setattr(faiss, "GpuIndexFlatIP", GpuOfTheTest, raising=False)


@pytest.mark.usefixtures("gpu")
def test_a_copy_on_a_gpu_answers_with_exact_scores_and_without_the_dead():
    rows = clustered(400, 32, 1)
    vectors = copy_to_gpu(coded(rows), "cuda:1")
    assert vectors.kind == "ivf-pq on a GPU"
    assert vectors._copy.config.device == 1  # type: ignore[attr-defined]
    dead = none_dead(exact(rows))
    dead[np.argsort(-(rows @ rows[7]))[:30]] = True
    found = vectors.search(rows[7:9], 5, dead)
    assert np.allclose(found[0], exact(rows).search(rows[7:9], 5, dead)[0], atol=1e-5)


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_is_not_wanted_or_full_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    vectors = exact(clustered(100, 32, 1))
    assert copy_to_gpu(vectors, "cpu") is vectors

    def full(*arguments: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(GpuOfTheTest, "add", full)
    assert copy_to_gpu(vectors, "auto") is vectors


def test_without_a_gpu_vectors_stay_where_they_are():
    vectors = exact(clustered(100, 32, 1))
    assert copy_to_gpu(vectors, "auto") is vectors
