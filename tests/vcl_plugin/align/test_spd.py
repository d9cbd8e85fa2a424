from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from planted_maps import plant_descriptors

from retrieval.errors import MissingWeights
from retrieval.plugins import Localizer, load_localizer
from vcl_plugin.align import spd
from vcl_plugin.model import SMALL, TransVCL, save_transvcl

TINY = replace(SMALL, map_size=64, width=0.125, max_frames=120, attention="none")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of random weights that claims something everywhere."""
    torch.manual_seed(3)
    model = TransVCL(TINY)
    with torch.no_grad():
        for layer in [*model.head.obj_preds, *model.head.cls_preds]:
            layer.bias.fill_(1.0)
    path = tmp_path_factory.mktemp("spd") / "tiny.safetensors"
    save_transvcl(model, path)
    return path


def test_without_weights_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spd, "SHIPPED_WEIGHTS", Path("nowhere") / "spd-small.safetensors")
    with pytest.raises(MissingWeights, match=r"spd-small\.safetensors is absent"):
        load_localizer("spd")


def test_weights_with_attention_are_refused(tmp_path: Path) -> None:
    save_transvcl(TransVCL(replace(TINY, attention="linear")), tmp_path / "other.safetensors")
    with pytest.raises(MissingWeights, match="transvcl"):
        load_localizer("spd", tmp_path / "other.safetensors", runtime="torch")


def test_it_is_a_localizer_with_a_name_of_its_own(weights: Path) -> None:
    localizer = load_localizer("spd", weights, runtime="torch")
    assert isinstance(localizer, Localizer)
    assert localizer.name == "spd"
    assert localizer.fingerprint.startswith("spd-")
    assert load_localizer("spd", weights, runtime="torch", min_score=0.5).fingerprint != (
        localizer.fingerprint
    )


def test_segments_lie_inside_both_videos(weights: Path) -> None:
    query, reference = plant_descriptors(70, 150, [(10, 30, 40)])
    segments = load_localizer("spd", weights, runtime="torch").localize(query, reference)
    assert segments
    for segment in segments:
        assert 0 <= segment.query.start < segment.query.end <= 70
        assert 0 <= segment.reference.start < segment.reference.end <= 150


def test_enhancement_plays_no_part(weights: Path, tmp_path: Path) -> None:
    """Its weights hold no layer of the encoder, and another token gives the same segments."""
    torch.manual_seed(3)
    model = TransVCL(TINY)
    assert [name for name, _ in model.feat_encoding.named_parameters()] == ["cls_token"]
    with torch.no_grad():
        for layer in [*model.head.obj_preds, *model.head.cls_preds]:
            layer.bias.fill_(1.0)
        for entry in model.feat_encoding.parameters():
            entry.add_(1.0)
    save_transvcl(model, tmp_path / "changed.safetensors")
    query, reference = plant_descriptors(50, 60, [(10, 30, 20)])
    one = load_localizer("spd", weights, runtime="torch").localize(query, reference)
    other = load_localizer("spd", tmp_path / "changed.safetensors", runtime="torch").localize(
        query, reference
    )
    assert len(one) == len(other)
    assert np.allclose([each.box for each in one], [each.box for each in other], atol=1e-3)


def test_shipped_weights_find_a_planted_copy() -> None:
    query, reference = plant_descriptors(70, 90, [(15, 40, 30)])
    segments = load_localizer("spd", runtime="torch").localize(query, reference)
    best = max(segments, key=lambda each: each.score)
    assert np.allclose(best.box, (15, 40, 45, 70), atol=4)
    assert spd.SHIPPED_WEIGHTS.stat().st_size <= 5e6
