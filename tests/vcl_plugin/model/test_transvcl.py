"""The trainable network: gradients, batches, and every option of the config."""

from dataclasses import replace

import pytest
import torch
from golden_weights import golden_pair, padded

from vcl_plugin.model import PAPER, PRESETS, SMALL, TransVCL, TransVCLConfig
from vcl_plugin.model.encoder import temporal_encoding
from vcl_plugin.model.similarity import nearest_cells, resize_map, similarity_map

TINY = replace(SMALL, map_size=64, max_frames=100)


def batch_of(*sizes, frames=None):
    pairs = [golden_pair(f"pair{i}", n, m) for i, (n, m) in enumerate(sizes)]
    longest = frames or max(max(size) for size in sizes)
    q, q_mask = (torch.cat(x) for x in zip(*(padded(q, longest) for q, _ in pairs), strict=True))
    r, r_mask = (torch.cat(x) for x in zip(*(padded(r, longest) for _, r in pairs), strict=True))
    return q, r, q_mask, r_mask


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_preset_learns_everywhere(preset):
    torch.manual_seed(0)
    model = TransVCL(replace(PRESETS[preset], map_size=64))
    output = model(*batch_of((20, 30), (25, 12)))
    (output.video_logit.sum() + output.raw.sum() + output.query_token.sum()).backward()
    idle = [name for name, value in model.named_parameters() if value.grad is None]
    assert idle == []


def test_small_starts_as_plain_cosine_over_the_temperature():
    model = TransVCL(replace(TINY, encoding_scale=0.0, norm2_start=0.0)).eval()
    q, r, q_mask, r_mask = batch_of((20, 30))
    expected = similarity_map(16 * q[0, :20], 16 * r[0, :30], TINY)
    with torch.inference_mode():
        found = model(q, r, q_mask, r_mask).similarity[0]
    torch.testing.assert_close(found, expected)
    assert TINY.logit_scale * 16 * 16 == pytest.approx(10)


@pytest.mark.parametrize(
    "change",
    [
        {"attention": "full"},
        {"attention": "none"},
        {"has_symmetric_cross": True},
        {"has_shared_token": False},
        {"has_encoded_token": True},
        {"token_start": "learned"},
        {"counts_padding": False},
        {"divides_by_dimension": False},
        {"video_head": "tokens"},
        {"map_resize": "nearest"},
        {"detector_input": "map"},
        {"detector_input": "cosine"},
        {"detector_input": "map+sqrt+cosine"},
        {"encoding_scale": 0.0},
    ],
    ids=str,
)
def test_every_option_changes_the_numbers_and_ignores_padding(change):
    torch.manual_seed(0)
    config = replace(TINY, norm2_start=1.0)
    plain = TransVCL(config).eval()
    torch.manual_seed(0)
    model = TransVCL(replace(config, **change)).eval()
    with torch.inference_mode():
        tight = model(*batch_of((20, 90)))
        loose = model(*batch_of((20, 90), frames=100))
        # With the statistics of the batch, as a fresh detector's own norms let nothing through.
        changed, usual = (each.train()(*batch_of((20, 90))) for each in (model, plain))
    torch.testing.assert_close(tight.similarity[0], loose.similarity[0], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(tight.raw, loose.raw, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(tight.video_logit, loose.video_logit, rtol=1e-3, atol=1e-4)
    pairs = zip((changed.video_logit, changed.raw), (usual.video_logit, usual.raw), strict=True)
    assert any(not torch.allclose(a, b) for a, b in pairs)


def test_a_pair_does_not_depend_on_its_batch():
    torch.manual_seed(0)
    model = TransVCL(TINY).eval()
    with torch.inference_mode():
        together = model(*batch_of((20, 30), (50, 12)))
        alone = model(*batch_of((20, 30)))
    torch.testing.assert_close(together.boxes[:1], alone.boxes, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together.similarity[0], alone.similarity[0], rtol=1e-4, atol=1e-6)


def test_tokens_after_the_self_layer_know_only_their_video():
    torch.manual_seed(0)
    model = TransVCL(TINY).eval()
    q, r, q_mask, r_mask = batch_of((20, 30))
    with torch.inference_mode():
        one = model(q, r, q_mask, r_mask)
        other = model(q, r.flip(1).neg(), q_mask, r_mask.flip(1))
    torch.testing.assert_close(one.query_token, other.query_token)
    assert not torch.allclose(one.video_logit, other.video_logit)


def test_the_encoding_interleaves_sine_and_cosine():
    table = temporal_encoding(3, 256)
    assert table[0, :4].tolist() == [0, 1, 0, 1]
    assert table[1, 0] == pytest.approx(0.841471, abs=1e-6)
    assert table[2, 2] == pytest.approx(float(torch.sin(torch.tensor(2 * 10_000 ** (-2 / 256)))))


def test_nearest_resize_floors_like_the_release():
    assert nearest_cells(3, 6).tolist() == [0, 0, 1, 1, 2, 2]
    assert nearest_cells(1200, 640)[:4].tolist() == [0, 1, 3, 5]


def test_max_resize_keeps_a_diagonal_that_nearest_loses():
    shifted = torch.eye(1200).roll(1, dims=1)
    kept = resize_map(shifted, replace(SMALL, map_resize="max"))
    lost = resize_map(shifted, replace(SMALL, map_resize="nearest"))
    assert kept.shape == (1, 320, 320)
    assert (kept.amax(dim=2) == 1).all()
    assert lost.amax(dim=2).mean() < 0.6


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"frames": 101}, "one map takes 100"),
        ({"dimension": 128}, "takes \\(batch, frames, 256\\)"),
        ({"empty": True}, "without a single frame"),
        ({"mask": 7}, "query mask has shape"),
    ],
    ids=str,
)
def test_a_batch_the_network_cannot_take_is_refused(sizes, words):
    frames, dimension = sizes.get("frames", 10), sizes.get("dimension", 256)
    features = torch.zeros(1, frames, dimension)
    mask = torch.full((1, sizes.get("mask", frames)), not sizes.get("empty", False))
    with pytest.raises(ValueError, match=words):
        TransVCL(TINY)(features, features, mask, mask)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 7}, "7 heads do not divide 256"),
        ({"map_size": 100}, "multiple of 32"),
        ({"max_frames": 1}, "at least 2"),
        ({"temperature": 0.0}, "must be positive"),
    ],
    ids=str,
)
def test_a_config_that_cannot_be_built_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(PAPER, **change)


def test_a_config_survives_its_json():
    assert TransVCLConfig.from_json(SMALL.to_json()) == SMALL
    with pytest.raises(ValueError, match="'colour' is unknown"):
        TransVCLConfig.from_json('{"colour": 3}')
