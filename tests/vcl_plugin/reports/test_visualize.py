from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from retrieval.errors import Refused
from retrieval.records import Segment, Span
from vcl_plugin.model import SMALL, TransVCL
from vcl_plugin.reports.attention import look_inside
from vcl_plugin.reports.visualize import Picture, _strongest, draw_pair, save_pair

TINY = replace(SMALL, map_size=64, width=0.125, max_frames=60)


def unit(frames: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((frames, 256)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def network() -> TransVCL:
    torch.manual_seed(0)
    return TransVCL(TINY).eval()


def frames(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 40, 60, 3)).astype(np.uint8)


def segment(is_reversed: bool = False) -> Segment:
    return Segment(Span(5, 15), Span(20, 30), 0.8, is_reversed, 1.5)


def test_the_enhanced_map_is_the_network_s_own(network: TransVCL) -> None:
    query, reference = unit(20, 1), unit(30, 2)
    enhanced, _ = look_inside(network, query, reference)
    with torch.inference_mode():
        output = network(
            torch.from_numpy(query)[None],
            torch.from_numpy(reference)[None],
            torch.ones(1, 20, dtype=torch.bool),
            torch.ones(1, 30, dtype=torch.bool),
        )
    assert np.allclose(enhanced, output.similarity[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_attention_weights_are_shares_of_one_look(kind: str) -> None:
    torch.manual_seed(1)
    model = TransVCL(replace(TINY, attention=kind)).eval()
    _, attention = look_inside(model, unit(20, 1), unit(30, 2))
    assert attention.query.shape == (20, 20)
    assert attention.reference.shape == (30, 30)
    assert attention.cross.shape == (20, 30)
    assert attention.token.shape == (30,)
    for weights in (attention.query, attention.cross):
        assert (weights >= 0).all()
        # The token takes its share of every look.
        assert (weights.sum(axis=1) < 1).all()
        assert (weights.sum(axis=1) > 0.5).all()


def test_linear_attention_weights_reproduce_the_layer_s_message(network: TransVCL) -> None:
    """Weights times values must be what the layer computes without ever forming the weights."""
    from vcl_plugin.model.attention import attend_linear
    from vcl_plugin.reports.attention import _weights

    layer = network.feat_encoding.layers[0]
    x, source = torch.randn(1, 7, 256), torch.randn(1, 9, 256)
    masks = torch.ones(1, 7, dtype=torch.bool), torch.ones(1, 9, dtype=torch.bool)
    with torch.inference_mode():
        Q, K = (
            part.unflatten(2, (layer.heads, -1)) for part in (layer.q_proj(x), layer.k_proj(source))
        )
        same = torch.eye(9)[None, :, None, :].expand(1, 9, layer.heads, 9)
        direct = attend_linear(Q, K, same, *masks).mean(dim=2)[0]
        assert np.allclose(_weights(layer, x, source), direct.numpy(), atol=1e-5)


def test_videos_longer_than_a_map_are_refused(network: TransVCL) -> None:
    with pytest.raises(Refused, match="61 and 10"):
        look_inside(network, unit(61, 1), unit(10, 2))


def test_a_picture_of_everything_is_written(network: TransVCL, tmp_path: Path) -> None:
    query, reference = unit(40, 1), unit(50, 2)
    enhanced, attention = look_inside(network, query, reference)
    bare = Picture(query @ reference.T)
    full = Picture(
        query @ reference.T,
        enhanced,
        attention,
        found=[segment(), segment(is_reversed=True)],
        truth=[(5, 20, 15, 30)],
        query_frames=frames(8),
        reference_frames=frames(9),
    )
    save_pair(bare, tmp_path / "bare.png", dpi=40)
    save_pair(full, tmp_path / "full.png", dpi=40)
    with Image.open(tmp_path / "bare.png") as one, Image.open(tmp_path / "full.png") as other:
        assert other.width > 2 * one.width
        assert np.asarray(other.convert("L")).std() > 10


def test_boxes_lie_at_their_seconds() -> None:
    figure = draw_pair(Picture(np.zeros((40, 50), np.float32), found=[segment()]))
    (axes,) = figure.axes
    (box,) = axes.patches
    assert box.get_xy() == (20, 5)
    assert (box.get_width(), box.get_height()) == (10, 10)
    assert [text.get_text() for text in axes.texts] == ["0.80 ×1.5"]


def test_reversed_and_true_boxes_look_different() -> None:
    picture = Picture(
        np.zeros((40, 50), np.float32),
        found=[segment(is_reversed=True)],
        truth=[(5, 20, 15, 30)],
    )
    true, found = draw_pair(picture).axes[0].patches
    assert true.get_linestyle() == "--"
    assert found.get_edgecolor() != true.get_edgecolor()


def test_the_strongest_looks_are_drawn_relative_to_what_everyone_looks_at() -> None:
    weights = np.full((6, 8), 0.01, np.float32)
    weights[:, 3] = 0.5  # everyone looks at frame 3: no news
    weights[2, 5] = 0.3
    strongest = _strongest(weights)
    assert strongest[-1] == (2, 5, 1.0)


def test_a_flat_attention_draws_nothing() -> None:
    assert _strongest(np.full((4, 4), 0.25, np.float32)) == []
