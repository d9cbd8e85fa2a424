"""The localizer around the network: tiles, stitching, bad input, devices, and what must not change.

Two networks stand in for trained weights: `any_network` has random weights and says many things;
`Finder` runs the real map and picture but reads its boxes off the picture, like a detector that
never errs.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vcl_plugin.localize.detection as localize_module
from retrieval.errors import BadDescriptors, BadSetting, MissingWeights, UnknownPlugin
from retrieval.plugins import Localizer, load_localizer
from vcl_plugin.localize.boxes import iou_matrix
from vcl_plugin.localize.detection import TransVCLLocalizer, is_reversed, select_boxes
from vcl_plugin.model import SMALL, TransVCL, checkpoint, read_facts, save_transvcl
from vcl_plugin.model.checkpoint import SHIPPED_WEIGHTS
from vcl_plugin.model.fast.device import HalvingBatch, choose_device
from vcl_plugin.model.fast.frozen import FrozenTransVCL, Match, VideoState
from vcl_plugin.model.similarity import Frames

TINY = replace(SMALL, map_size=64, max_frames=80)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def video(frames, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((frames, 256)))


def planted(q_frames, r_frames, q_start, r_start, seconds, speed=1.0, is_reversed=False):
    """A query whose `seconds` from `q_start` on are the reference's from `r_start` on."""
    query, reference = video(q_frames, 1), video(r_frames, 2)
    source = r_start + (np.arange(seconds) * speed).astype(int)
    query[q_start : q_start + seconds] = reference[source[::-1] if is_reversed else source]
    return unit(query + 0.3 * video(q_frames, 3)), reference


@pytest.fixture(scope="module")
def talkative_weights(tmp_path_factory):
    """Random weights whose norms know the data, so that different maps give different boxes."""
    torch.manual_seed(3)
    model = TransVCL(TINY)
    norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    queries = torch.stack([torch.from_numpy(video(60, seed)) for seed in range(4)])
    mask = torch.ones(4, 60, dtype=torch.bool)
    with torch.no_grad():
        model(queries, queries.flip(0), mask, mask)
        for norm in norms:
            norm.running_var *= 1.2  # maps unlike these four must not explode through 40 norms
        for prediction in [*model.head.obj_preds, *model.head.cls_preds]:
            prediction.bias.fill_(0.0)
    path = tmp_path_factory.mktemp("weights") / "talkative.safetensors"
    save_transvcl(model, path, {"min_score": 0.25})
    return path


@pytest.fixture(scope="module")
def any_network(talkative_weights):
    return TransVCLLocalizer(talkative_weights, "cpu", runtime="torch")


@pytest.fixture(scope="module")
def forgetful_network(talkative_weights):
    """The same, keeping no video's state and asking for the smallest batches."""
    return TransVCLLocalizer(talkative_weights, "cpu", runtime="torch", batch_frames=1)


class Finder(FrozenTransVCL):
    """Box around the bright cells of the picture's cosine channel."""

    def detect(self, pictures, min_score=0.0):
        rows = torch.zeros(len(pictures), 1, 6)
        for picture, row in zip(pictures, rows, strict=True):
            y, x = torch.nonzero(picture[2] > 0.7, as_tuple=True)
            if len(y) > 3:
                low = torch.stack([x.min(), y.min()])
                high = torch.stack([x.max(), y.max()]) + 1
                row[0] = torch.cat([(low + high) / 2, high - low, torch.tensor([0.9, 0.8])])
        return rows


@pytest.fixture(scope="module")
def long_network():
    torch.manual_seed(0)
    return TransVCL(replace(SMALL, attention="none", video_head="tokens"))


@pytest.fixture
def find(monkeypatch, long_network):
    """find(query, reference, **options) with a map as long as the paper's."""
    monkeypatch.setattr(localize_module, "FrozenTransVCL", Finder)

    def build(query, reference, **options):
        localizer = TransVCLLocalizer(long_network, "cpu", runtime="torch", **options)
        return localizer.localize(query, reference)

    return build


def test_the_localizer_keeps_the_engines_protocol(any_network):
    assert isinstance(any_network, Localizer)
    assert any_network.fingerprint.startswith("transvcl-")


def test_the_entry_point_opens_it(talkative_weights):
    found = load_localizer("transvcl", weights=talkative_weights, runtime="torch")
    assert isinstance(found, TransVCLLocalizer)


def test_a_planted_copy_is_found_with_its_ends_direction_and_speed(find):
    query, reference = planted(300, 400, 100, 200, 60, speed=1.5)
    (segment,) = find(query, reference)
    assert segment.box == pytest.approx((100, 200, 160, 290), abs=3)
    assert segment.speed == pytest.approx(1.5, rel=0.03)
    assert not segment.is_reversed
    assert segment.score == pytest.approx(0.72)


def test_a_reversed_copy_is_found_and_marked(find):
    query, reference = planted(300, 300, 100, 200, 60, is_reversed=True)
    (segment,) = find(query, reference)
    assert segment.is_reversed
    assert segment.box == pytest.approx((100, 200, 160, 260), abs=3)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_copy_across_a_tile_border_is_one_segment(find, is_reversed):
    query, reference = planted(2400, 2400, 1155, 1160, 90, is_reversed=is_reversed)
    (segment,) = find(query, reference)
    assert segment.box == pytest.approx((1155, 1160, 1245, 1250), abs=8)
    assert segment.is_reversed == is_reversed


def test_a_copy_over_three_tiles_is_one_segment(find):
    query, reference = planted(3000, 2900, 250, 150, 2500)
    (segment,) = find(query, reference)
    assert segment.box == pytest.approx((250, 150, 2750, 2650), abs=8)
    assert segment.speed == pytest.approx(1.0, rel=0.01)


def direction(seconds, speed, is_turned, noise=0.8):
    """What is said of a noisy copy in a box that is five seconds too large on each side."""
    length = int(seconds * speed)
    query, reference = video(seconds + 10, 1), video(length + 10, 2)
    shown = 5 + (np.arange(seconds) * speed).astype(int)
    query[5 : 5 + seconds] = reference[shown[::-1] if is_turned else shown]
    query = unit(query + noise * video(len(query), 3))
    return is_reversed(query, reference, np.array([0.2, 0.3, seconds + 9.9, length + 10.0]))


@pytest.mark.parametrize("seconds", [20, 60, 700])
@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_noisy_copy_in_a_loose_box_tells_its_direction(seconds, speed, is_turned):
    assert direction(seconds, speed, is_turned) is is_turned


def test_slow_footage_does_not_turn_the_direction():
    draw = np.random.default_rng(1)
    drift = unit(np.cumsum(draw.standard_normal((90, 256)), axis=0))
    copy = unit(drift + 0.3 * video(90, 3))
    box = np.array([0.0, 0.0, 90.0, 90.0])
    assert not is_reversed(copy, drift, box)
    assert is_reversed(copy[::-1], drift, box)


def test_a_repeated_scene_beside_the_copy_does_not_turn_it():
    reference = video(60, 1)
    query = reference[::-1].copy()
    query[:15] += reference[:15]  # also seen forwards, a quarter of the time
    assert is_reversed(unit(query), reference, np.array([0.0, 0.0, 60.0, 60.0]))


@pytest.mark.parametrize("sides", [(30, 60), (1, 1), (2, 8), (8, 1)])
def test_a_still_scene_and_a_handful_of_frames_are_forward(sides):
    still = np.repeat(video(1), 60, axis=0)
    box = np.array([0.0, 0.0, *sides], float)
    assert not is_reversed(still[: sides[0]], still[: sides[1]], box)
    noisy = [unit(still[:size] + 0.01 * video(size, seed)) for seed, size in enumerate(sides)]
    assert not is_reversed(*noisy, box)


def test_two_videos_without_a_copy_give_nothing(find):
    assert find(video(300, 1), video(300, 2)) == []


@pytest.mark.parametrize("frames", [(1, 1), (1, 300), (300, 1), (2, 3), (79, 81), (80, 80)])
def test_any_length_gives_segments_inside_both_videos(any_network, frames):
    check(any_network.localize(video(frames[0], 1), video(frames[1], 2)), *frames)


def check(segments, q_frames, r_frames, iou_threshold=0.3):
    boxes = np.asarray([segment.box for segment in segments]).reshape(-1, 4)
    assert (boxes >= 0).all()
    assert (boxes[:, 2] <= q_frames).all()
    assert (boxes[:, 3] <= r_frames).all()
    assert [segment.box for segment in segments] == sorted(segment.box for segment in segments)
    overlap = iou_matrix(boxes, boxes)
    np.fill_diagonal(overlap, 0)
    assert (overlap <= iou_threshold + 1e-9).all()
    assert all(segment.score >= 0.25 for segment in segments)


lengths = st.integers(1, 130)
few = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@few
@given(lengths, lengths, st.integers(0, 9))
def test_segments_lie_inside_both_videos_in_order_and_apart(any_network, n, m, seed):
    check(any_network.localize(video(n, seed), video(m, seed + 100)), n, m)


@settings(few, max_examples=6)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=3), st.integers(1, 90))
def test_segments_do_not_depend_on_the_other_references(any_network, forgetful_network, sizes, n):
    query = video(n, 5)
    references = [video(size, 50 + i) for i, size in enumerate(sizes)]
    alone = [any_network.localize(query, reference) for reference in references]
    assert any_network.localize_many(query, references) == alone
    assert forgetful_network.localize_many(query, references[::-1]) == alone[::-1]


def test_the_random_network_has_something_to_say(any_network):
    found = any_network.localize(video(150, 1), video(160, 2))
    assert len(found) > 3
    assert found != any_network.localize(video(150, 3), video(160, 2))


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_every_runtime_gives_the_same_segments(any_network, talkative_weights, runtime):
    pytest.importorskip(runtime)
    other = TransVCLLocalizer(talkative_weights, "cpu", runtime=runtime)
    query, reference = video(70, 1), video(60, 2)
    expected, found = any_network.localize(query, reference), other.localize(query, reference)
    assert len(expected) > 3
    np.testing.assert_allclose(
        [segment.box for segment in found], [segment.box for segment in expected], atol=0.01
    )


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full((5, 256), np.nan, np.float32), "nan at frame 0"),
        (np.full((5, 256), -np.inf, np.float32), "-inf at frame 0"),
        (np.zeros((5, 128), np.float32), r"\(5, 128\)"),
        (np.zeros((0, 256), np.float32), "no frames"),
        (np.zeros(256, np.float32), r"\(256,\)"),
        ("a path.npy", "instead of numbers"),
    ],
    ids=["nan", "inf", "dimension", "empty", "one axis", "text"],
)
def test_bad_descriptors_are_named_on_either_side(any_network, array, words):
    good = video(5)
    with pytest.raises(BadDescriptors, match=f"query .*{words}"):
        any_network.localize(array, good)
    with pytest.raises(BadDescriptors, match=f"reference .*{words}"):
        any_network.localize(good, array)
    with pytest.raises(BadDescriptors, match=f"reference 1 .*{words}"):
        any_network.localize_many(good, [good, array])


def test_half_double_strided_and_read_only_arrays_give_the_same_segments(any_network):
    query, reference = video(60, 1), video(50, 2)
    expected = any_network.localize(query, reference)
    strided = np.repeat(query, 2, axis=0)[::2]
    frozen = query.copy()
    frozen.setflags(write=False)
    for same in (strided, frozen, query.astype(np.float64), np.asfortranarray(query)):
        assert any_network.localize(same, reference) == expected
    half = any_network.localize(query.astype(np.float16), reference)
    rounded = query.astype(np.float16).astype(np.float32)
    assert half == any_network.localize(rounded, reference)


def test_no_references_are_no_work(any_network):
    assert any_network.localize_many(video(10), []) == []


def test_black_videos_of_zero_vectors_do_not_crash(any_network):
    check(any_network.localize(np.zeros((30, 256)), np.zeros((40, 256))), 30, 40)


class Oracle(FrozenTransVCL):
    """Looks at no frame: dimension 0 holds the frame's time, and the copy is known beforehand."""

    copy = (20_000.0, 20_010.0, 20_700.0, 20_710.0)

    def encode(self, features, side=0):
        return VideoState(Frames(features, None), features[:1], (features, features), None)

    def match(self, query, reference):
        return Match(torch.zeros(1, 1), 0.0, query, reference)

    def picture(self, match):
        sides = (match.query.plain.features, match.reference.plain.features)
        return torch.stack([torch.stack([side[0, 0], side[-1, 0] + 1]) for side in sides])

    def detect(self, pictures, min_score=0.0):
        rows = torch.zeros(len(pictures), 1, 6)
        for ((q0, q1), (r0, r1)), row in zip(pictures.tolist(), rows, strict=True):
            inside = min(q1, self.copy[2], r1 - 10) - max(q0, self.copy[0], r0 - 10)
            if inside > 5:
                y = (max(q0, self.copy[0], r0 - 10) + inside / 2 - q0) / (q1 - q0)
                x = (max(q0, self.copy[0], r0 - 10) + 10 + inside / 2 - r0) / (r1 - r0)
                size = [inside / (r1 - r0), inside / (q1 - q0)]
                row[0] = torch.tensor([x, y, *size, 1.0, 1.0]) * self.config.map_size
                row[0, 4:] = torch.tensor([0.9, 0.8])
        return rows


def test_ten_hours_against_ten_hours_are_stitched_into_one_segment(find, monkeypatch):
    monkeypatch.setattr(localize_module, "FrozenTransVCL", Oracle)
    clock = np.zeros((36_000, 256), np.float32)
    clock[:, 0] = np.arange(36_000)
    (segment,) = find(clock, clock)
    assert segment.box == pytest.approx(Oracle.copy, abs=0.1)


def test_weights_bring_their_threshold_and_their_descriptor(tmp_path):
    path = tmp_path / "w.safetensors"
    save_transvcl(TransVCL(TINY), path, {"min_score": 0.04, "descriptor": "lite0-1", "hours": 2.5})
    found = TransVCLLocalizer(path, runtime="torch")
    assert (found.min_score, found.descriptor) == (0.04, "lite0-1")
    stricter = TransVCLLocalizer(path, runtime="torch", min_score=0.5)
    assert stricter.min_score == 0.5
    assert stricter.fingerprint != found.fingerprint
    save_transvcl(TransVCL(TINY), path)
    assert TransVCLLocalizer(path, runtime="torch").min_score == 0.1


@pytest.mark.parametrize("min_score", ["high", 1.5, None, [0.3]])
def test_a_threshold_that_makes_no_sense_gets_a_sentence(tmp_path, min_score):
    save_transvcl(TransVCL(TINY), tmp_path / "w.safetensors", {"min_score": min_score})
    with pytest.raises(MissingWeights, match="says that its min_score is"):
        TransVCLLocalizer(tmp_path / "w.safetensors")


def test_options_nobody_takes_get_a_sentence(talkative_weights):
    for name in ("transvcl", "transvcl-detector"):
        with pytest.raises(UnknownPlugin, match="does not take that"):
            load_localizer(name, talkative_weights, colour="red")


@pytest.mark.parametrize("name", ["transvcl-small", "spd-small"])
def test_shipped_weights_are_small_and_tell_where_they_come_from(name):
    path = SHIPPED_WEIGHTS.with_stem(name)
    assert path.stat().st_size <= 25_000_000
    facts = read_facts(path)
    assert facts["descriptor"].startswith("lite0-")
    assert 0 < facts["min_score"] < 1
    assert facts["pairs"] > 0


def test_shipped_weights_find_a_planted_copy_and_nothing_between_strangers():
    localizer = load_localizer("transvcl-detector", device="cpu", runtime="torch")
    query, reference = planted(90, 140, 20, 30, 40)
    (found,) = localizer.localize(query, reference)
    assert found.box == pytest.approx((20, 30, 60, 70), abs=5)
    assert localizer.localize(video(90, 11), video(140, 12)) == []


def test_a_network_in_training_is_scored_and_trains_on():
    model = TransVCL(TINY).train()
    localizer = TransVCLLocalizer(model, "cpu", runtime="torch", min_score=0.9)
    assert localizer.localize(video(20, 1), video(30, 2)) == []
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())


def test_rows_become_boxes_with_the_query_on_the_vertical_axis():
    rows = np.asarray([[320, 160, 64, 32, 0.5, 0.5], [320, 160, 64, 32, 0.3, 0.3]])
    boxes, scores = select_boxes(rows, 0.1, (100, 200), 640)
    assert boxes.tolist() == [[22.5, 90.0, 27.5, 110.0]]
    assert scores.tolist() == [0.25]


def test_absent_weights_are_explained(monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint, "SHIPPED_WEIGHTS", tmp_path / "none.safetensors")
    with pytest.raises(MissingWeights, match=r"pass weights=PATH.* or train"):
        TransVCLLocalizer()
    with pytest.raises(MissingWeights, match=r"no weights file at .*nowhere\.pth"):
        TransVCLLocalizer("nowhere.pth")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "gpu"}, "use auto, cpu, cuda or cuda:N"),
        ({"min_score": 1.5}, "min_score is 1.5"),
        ({"batch_frames": 0}, "batch_frames is 0"),
        ({"runtime": "tensorrt"}, "runtime 'tensorrt' is unknown"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_with_its_value(talkative_weights, options, words):
    with pytest.raises(BadSetting, match=words):
        TransVCLLocalizer(talkative_weights, **options)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_without_a_device_is_an_error_that_says_so(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadSetting, match=f"device is '{name}', but torch sees no CUDA device"):
        choose_device(name)
    assert choose_device("auto") == torch.device("cpu")


def test_a_second_card_that_is_not_there_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")
    with pytest.raises(BadSetting, match="torch sees only 1 of them"):
        choose_device("cuda:1")


def test_a_batch_halves_when_memory_runs_out_and_loses_nothing():
    tried = []

    def run(batch):
        tried.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return batch * 2

    batch = HalvingBatch(run, size=8)
    pictures = [torch.full((1,), float(i)) for i in range(10)]
    assert [float(each) for each in batch.run(pictures)] == [2.0 * i for i in range(10)]
    assert tried == [8, 4, 2, 2, 2, 2, 2]
    assert batch.size == 2


def test_a_single_picture_that_does_not_fit_is_an_error():
    def run(batch):
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        HalvingBatch(run, size=2).run([torch.zeros(1)])
