"""The class token of a stretch is the encoder's own, and depends on no other video."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from retrieval.index.local import VideoIndex
from retrieval.index.pooling import MeanPooler
from retrieval.plugins import Pooler, load_pooler
from tests.retrieval.test_store import unit_rows
from vcl_plugin.model import TransVCL, TransVCLConfig, load_transvcl, save_transvcl
from vcl_plugin.pooling import ClassTokenPooler

TINY = TransVCLConfig(max_frames=40, map_size=32, width=0.25, feature_scale=16.0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_transvcl(TransVCL(TINY), path)
    return path


@pytest.fixture(scope="module")
def pooler(weights: Path) -> ClassTokenPooler:
    return ClassTokenPooler(weights)


def test_each_vector_is_the_token_that_the_network_gives_its_stretch(
    pooler: ClassTokenPooler, weights: Path
):
    rows = unit_rows(36, seed=1)
    pooled = pooler.pool(rows)
    encoder = load_transvcl(weights).eval().feat_encoding
    for vector, (start, end) in zip(pooled.vectors, pooled.spans.astype(int), strict=True):
        frames = torch.from_numpy(rows[start:end])[None]
        mask = torch.ones(1, end - start, dtype=torch.bool)
        with torch.inference_mode():
            told = encoder(frames, frames, mask, mask).reference_token[0].numpy()
        assert np.allclose(vector, told / np.linalg.norm(told), atol=1e-4)


def test_stretches_and_weights_are_those_of_the_mean(pooler: ClassTokenPooler):
    rows, flags = unit_rows(36, seed=1), np.arange(36) < 9
    pooled, mean = pooler.pool(rows, flags), MeanPooler().pool(rows, flags)
    assert np.array_equal(pooled.spans, mean.spans)
    assert np.array_equal(pooled.weights, mean.weights)
    assert np.allclose(np.linalg.norm(pooled.vectors, axis=1), 1, atol=1e-5)


def test_a_video_longer_than_the_networks_map_is_told_all_the_same(pooler: ClassTokenPooler):
    pooled = pooler.pool(unit_rows(90, seed=1))
    assert pooled.spans[0].tolist() == [0, 90]
    assert np.isfinite(pooled.vectors).all()


def test_other_weights_are_another_index(pooler: ClassTokenPooler, tmp_path: Path):
    torch.manual_seed(1)
    save_transvcl(TransVCL(TINY), tmp_path / "other.safetensors")
    others = ClassTokenPooler(tmp_path / "other.safetensors"), MeanPooler()
    assert len({each.fingerprint for each in (pooler, *others)}) == 3


def test_the_shipped_token_finds_a_copy_among_others():
    pooler: Pooler = load_pooler("class_token")
    assert isinstance(pooler, Pooler)
    index = VideoIndex("key")
    scenes = [
        unit_rows(1, seed).repeat(10, axis=0) + 0.4 * unit_rows(10, seed + 50) for seed in range(20)
    ]
    for number, scene in enumerate(scenes):
        index.add(str(number), pooler.pool(scene))
    copy = scenes[7] + 0.4 * unit_rows(10, seed=99)
    hits = index.search(pooler.pool(copy).vectors[:1], k=1)
    assert hits.videos[int(hits.numbers[0, 0])] == "7"
