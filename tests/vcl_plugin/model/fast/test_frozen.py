"""The frozen network gives the trainable one's numbers, and the golden ones, in every runtime."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from golden_weights import golden_pair, padded
from test_golden import LOW, OUTPUTS, WHOLE, assert_close, pair_of, strided

from retrieval.errors import BadSetting
from vcl_plugin.model import SMALL, TransVCL
from vcl_plugin.model.fast import pieces, winograd
from vcl_plugin.model.fast.folded import FoldedDetector, corners_to_kernel
from vcl_plugin.model.fast.frozen import FrozenTransVCL
from vcl_plugin.model.fast.runtime import (
    RUNTIMES,
    OnnxRuntime,
    export_onnx,
    installed_runtimes,
    open_runtime,
)

TINY = replace(SMALL, map_size=64, max_frames=100, norm2_start=1.0)


@pytest.fixture(scope="module")
def frozen(golden_model):
    return FrozenTransVCL(golden_model)


def match_of(network, case):
    query, reference = (torch.from_numpy(each) for each in pair_of(case))
    return network.match(network.encode(query, 0), network.encode(reference, 1))


@pytest.mark.parametrize("case", WHOLE)
def test_the_frozen_network_gives_the_released_numbers(frozen, case):
    match = match_of(frozen, case)
    boxes = frozen.detect(frozen.picture(match)[None])[0].numpy()
    expected = OUTPUTS[f"{case}/decoded_f64"]
    logit = float(OUTPUTS[f"{case}/global_logit_f64"][0])
    assert match.video_logit == pytest.approx(logit, abs=1e-4)
    assert_close(strided(match.similarity.numpy()), OUTPUTS[f"{case}/sim_slice"], 1e-4)
    assert_close(boxes[:, :4], expected[:, :4], 0.1)
    assert_close(boxes[:, 4:], expected[:, 4:], 1e-3)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_gives_the_released_boxes(golden_model, runtime):
    if runtime not in installed_runtimes():
        pytest.skip(f"{runtime} is not installed")
    network = FrozenTransVCL(golden_model, runtime=runtime)
    assert network.runtime.name == runtime
    boxes = network.detect(network.picture(match_of(network, "a_37x53"))[None])[0].numpy()
    expected = OUTPUTS["a_37x53/decoded_f64"]
    assert_close(boxes[:, :4], expected[:, :4], 0.1)
    assert_close(boxes[:, 4:], expected[:, 4:], 1e-3)


@pytest.mark.parametrize("case", LOW)
def test_padding_counts_without_being_computed(low_model, case):
    match = match_of(FrozenTransVCL(low_model, runtime="torch"), case)
    scaled = strided(match.similarity.double().numpy() * 1e6)
    np.testing.assert_allclose(scaled, OUTPUTS[f"{case}/sim_scaled_slice"], rtol=1e-4)


@pytest.mark.parametrize("min_score", [0.05, 0.1, 0.3])
def test_no_box_at_or_above_the_lowest_score_is_lost(frozen, min_score):
    picture = frozen.picture(match_of(frozen, "b_300x220"))[None]
    every, lazy = frozen.detect(picture)[0], frozen.detect(picture, min_score)[0]
    every_score, lazy_score = (each[:, 4] * each[:, 5] for each in (every, lazy))
    wanted = every_score >= min_score
    torch.testing.assert_close(lazy[wanted], every[wanted], rtol=1e-4, atol=1e-3)
    assert ((lazy_score >= min_score - 1e-4) | ~wanted).all()


def test_a_sparse_objectness_leaves_most_classes_uncomputed(golden_model):
    network = FrozenTransVCL(golden_model, runtime="torch")
    for scale in network.head.scales:
        scale.to_box.bias = torch.nn.Parameter(scale.to_box.bias - torch.tensor([0, 0, 0, 0, 4.0]))
    picture = network.picture(match_of(network, "b_300x220"))[None]
    every = network.detect(picture)[0]
    limit = float(every[:, 4].sort().values[-40])
    lazy = network.detect(picture, limit)[0]
    doubtful = every[:, 4] >= limit
    torch.testing.assert_close(lazy[doubtful], every[doubtful], rtol=1e-4, atol=1e-3)
    assert (lazy[:, 5] == 0).float().mean() > 0.2


@pytest.mark.parametrize(
    "change",
    [
        {},
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
        {"width": 0.5},
    ],
    ids=str,
)
def test_every_option_is_frozen_faithfully(change):
    torch.manual_seed(0)
    model = TransVCL(replace(TINY, **change))
    query, reference = golden_pair("frozen", 70, 45)
    q, q_mask = padded(query, 70)
    r, r_mask = padded(reference, 45)
    with torch.no_grad():
        model.train()(q, r, q_mask, r_mask)  # gives the norms statistics that are not 0 and 1
        expected = model.eval()(q, r, q_mask, r_mask)
    network = FrozenTransVCL(model, runtime="torch")
    match = network.match(network.encode(q[0], 0), network.encode(r[0], 1))
    boxes = network.detect(network.picture(match)[None])
    torch.testing.assert_close(match.similarity, expected.similarity[0], rtol=1e-3, atol=1e-5)
    assert match.video_logit == pytest.approx(float(expected.video_logit), abs=1e-3)
    torch.testing.assert_close(boxes, expected.boxes, rtol=1e-3, atol=1e-3)


def test_logits_too_far_apart_for_one_exponential_keep_their_map():
    torch.manual_seed(0)
    model = TransVCL(replace(TINY, attention="none", temperature=0.002)).eval()
    query, reference = (torch.from_numpy(each) for each in golden_pair("far", 60, 50))
    network = FrozenTransVCL(model, runtime="torch")
    match = network.match(network.encode(query, 0), network.encode(reference, 1))
    mask = torch.ones(1, 60, dtype=torch.bool)
    with torch.inference_mode():
        expected = model(query[None], reference[None], mask, mask[:, :50]).similarity[0]
    assert expected.max() > 0.9
    torch.testing.assert_close(match.similarity, expected)


def test_a_peak_needs_more_than_one_lucky_frame(frozen):
    match = match_of(frozen, "a_37x53")
    lucky = replace(match, similarity=torch.zeros(30, 30).index_fill(0, torch.tensor([3]), 1.0))
    assert match.peak() > 0.5
    assert lucky.peak() == pytest.approx(0.2)


@pytest.mark.parametrize("has_nnpack", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (4, 4), (7, 13), (40, 41), (130, 30)])
def test_winograd_equals_the_convolution(monkeypatch, size, has_nnpack):
    if has_nnpack and not winograd.HAS_NNPACK:
        pytest.skip("torch was built without NNPACK")
    monkeypatch.setattr(winograd, "HAS_NNPACK", has_nnpack)
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 16, 3, 3) / 12, torch.randn(24)
    picture = torch.randn(1, 16, 150, 60)[..., : size[0], : size[1]]
    expected = torch.nn.functional.conv2d(picture, weight, bias, padding=1)
    found = winograd.convolve(picture, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


class Wide(torch.nn.Module):
    """Two convolutions that Winograd computes faster, a shortcut around one, and two others."""

    def __init__(self):
        super().__init__()
        self.enter = torch.nn.Conv2d(1, 128, 3, padding=1)
        self.first = torch.nn.Conv2d(128, 128, 3, padding=1)
        self.second = torch.nn.Conv2d(128, 128, 3, padding=1)
        self.leave = torch.nn.Conv2d(128, 8, 3, stride=2, padding=1)

    def forward(self, picture):
        x = self.enter(picture).relu()
        x = x + self.first(x).relu()
        return self.leave(x), self.second(x).relu()


@pytest.mark.parametrize("has_nnpack", [True, False])
def test_a_graph_in_pieces_is_the_same_network(monkeypatch, has_nnpack):
    if has_nnpack and not pieces.HAS_NNPACK:
        pytest.skip("torch was built without NNPACK")
    monkeypatch.setattr(pieces, "HAS_NNPACK", has_nnpack)
    torch.manual_seed(0)
    network, pictures = Wide().requires_grad_(False), torch.randn(2, 1, 40, 40)
    content = export_onnx(network, (1, 40, 40))
    then = [piece.then is not None for piece in pieces.cut_graph(content)]
    assert then == ([True, True, False] if has_nnpack else [False])
    for found, expected in zip(OnnxRuntime(content).run(pictures), network(pictures), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_three_equal_channels_through_corners_are_one_strided_kernel():
    torch.manual_seed(0)
    weight, picture = torch.randn(8, 12, 3, 3), torch.randn(1, 1, 32, 32)
    corners = [picture[..., top::2, left::2] for left in (0, 1) for top in (0, 1)]
    slices = torch.cat([corner.expand(-1, 3, -1, -1) for corner in corners], dim=1)
    expected = torch.nn.functional.conv2d(slices, weight, padding=1)
    found = torch.nn.functional.conv2d(picture, corners_to_kernel(weight, 1), stride=2, padding=2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_folding_leaves_the_trainable_network_alone(small_model):
    before = {name: value.clone() for name, value in small_model.state_dict().items()}
    FoldedDetector(small_model.backbone, small_model.head, small_model.config)
    after = small_model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_cpu_runtime_on_cuda_and_an_unknown_one_are_refused(small_model):
    detector = FoldedDetector(small_model.backbone, small_model.head, small_model.config)
    with pytest.raises(BadSetting, match="runs on the CPU only"):
        open_runtime(detector, (3, 320, 320), torch.device("cuda"), "onnxruntime")
    with pytest.raises(BadSetting, match="unknown"):
        open_runtime(detector, (3, 320, 320), torch.device("cpu"), "tflite")
