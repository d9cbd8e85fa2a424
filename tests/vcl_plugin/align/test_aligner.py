"""What every classic method must do, whatever its way of doing it."""

from __future__ import annotations

import numpy as np
import pytest
from planted_maps import (
    golden_map,
    golden_results,
    noise_map,
    plant,
    plant_descriptors,
    sample_map,
)

from retrieval.errors import BadDescriptors
from retrieval.plugins import Localizer, load_localizer
from vcl_plugin.align.aligner import Aligner
from vcl_plugin.align.dynamic import DynamicProgramming
from vcl_plugin.align.hough import HoughVoting
from vcl_plugin.align.network import TemporalNetwork
from vcl_plugin.align.warping import TimeWarping
from vcl_plugin.localize.boxes import iou_matrix

METHODS = [HoughVoting, TemporalNetwork, DynamicProgramming, TimeWarping]


@pytest.fixture(params=METHODS, ids=lambda method: method.name)
def method(request: pytest.FixtureRequest) -> Aligner:
    return request.param()


def best_overlaps(truth: list[tuple[float, ...]], found: list[tuple[float, ...]]) -> list[float]:
    if not found:
        return [0.0] * len(truth)
    return iou_matrix(truth, found).max(axis=1).tolist()


def test_every_method_is_loaded_by_its_name(method: Aligner) -> None:
    loaded = load_localizer(method.name)
    assert isinstance(loaded, Localizer)
    assert loaded.fingerprint == method.fingerprint


def test_a_changed_parameter_changes_the_fingerprint(method: Aligner) -> None:
    assert type(method)(min_length=9).fingerprint != method.fingerprint


def test_planted_descriptors_are_found_with_their_ends(method: Aligner) -> None:
    query, reference = plant_descriptors(80, 120, [(20, 50, 30)])
    (segment,) = method.localize(query, reference)
    assert np.abs(np.subtract(segment.box, (20, 50, 50, 80))).max() <= 1
    assert segment.score > 0.6
    assert not segment.is_reversed
    assert segment.speed == pytest.approx(1.0, abs=0.05)


def test_several_copies_out_of_order_are_all_found(method: Aligner) -> None:
    cells = noise_map(150, 200)
    truth = [plant(cells, 10, 120, 25), plant(cells, 60, 20, 30), plant(cells, 110, 90, 20)]
    found = [segment.box for segment in method.localize_map(cells)]
    assert min(best_overlaps(truth, found)) > 0.8
    assert len(found) == 3


def test_the_same_reference_seconds_copied_twice_are_two_segments(method: Aligner) -> None:
    cells = noise_map(120, 100)
    truth = [plant(cells, 5, 30, 30), plant(cells, 70, 30, 30)]
    found = [segment.box for segment in method.localize_map(cells)]
    assert min(best_overlaps(truth, found)) > 0.8


def test_a_reversed_copy_is_found_and_said_to_be_reversed(method: Aligner) -> None:
    cells = noise_map(100, 120)
    box = plant(cells, 30, 80, 40, speed=-1.0)
    (segment,) = method.localize_map(cells)
    assert np.abs(np.subtract(segment.box, box)).max() <= 2
    assert segment.is_reversed
    assert segment.speed == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("speed", [0.5, 0.75, 1.5, 2.0])
def test_a_copy_at_another_speed_is_one_segment_with_that_speed(
    method: Aligner, speed: float
) -> None:
    cells = noise_map(100, 150)
    box = plant(cells, 20, 15, 50, speed=speed)
    (segment,) = method.localize_map(cells)
    assert np.abs(np.subtract(segment.box, box)).max() <= 3
    assert segment.speed == pytest.approx(speed, rel=0.1)


def test_a_copy_with_unreadable_frames_inside_stays_one_segment(method: Aligner) -> None:
    cells = noise_map(100, 100)
    box = plant(cells, 20, 10, 60)
    cells[45:50, 35:40] = 0.1
    (segment,) = method.localize_map(cells)
    assert np.abs(np.subtract(segment.box, box)).max() <= 1


def test_two_copies_on_one_line_far_apart_stay_two_segments(method: Aligner) -> None:
    cells = noise_map(120, 120)
    truth = [plant(cells, 5, 5, 30), plant(cells, 75, 75, 30)]
    found = [segment.box for segment in method.localize_map(cells)]
    assert min(best_overlaps(truth, found)) > 0.8


def test_unrelated_videos_give_nothing(method: Aligner) -> None:
    for seed in range(5):
        query, reference = plant_descriptors(200, 300, [], seed=seed)
        assert method.localize(query, reference) == []


def test_a_still_that_stands_long_is_found_and_not_called_reversed(method: Aligner) -> None:
    cells = noise_map(160, 180)
    cells[20:100, 30:110] = 0.99 + 0.1 * (cells[20:100, 30:110] - 0.1)
    segments = method.localize_map(cells)
    assert segments
    assert not segments[0].is_reversed
    assert segments[0].score < 0.4


def test_shared_black_frames_or_a_title_card_are_no_copy(method: Aligner) -> None:
    cells = noise_map(80, 80)
    cells[20:27, 40:46] = 0.98
    assert method.localize_map(cells) == []


def test_the_map_is_not_changed(method: Aligner) -> None:
    cells = noise_map(90, 70)
    plant(cells, 10, 20, 40)
    before = cells.copy()
    cells.setflags(write=False)
    method.localize_map(cells)
    assert np.array_equal(cells, before)


def test_scores_and_boxes_stay_within_their_limits(method: Aligner) -> None:
    for number in range(24):
        cells, _ = golden_map(number)
        for segment in method.localize_map(cells):
            assert segment.query.end <= cells.shape[0]
            assert segment.reference.end <= cells.shape[1]


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (3, 3), (5, 2)])
def test_tiny_maps_are_no_special_case(method: Aligner, shape: tuple[int, int]) -> None:
    assert isinstance(method.localize_map(np.full(shape, 0.9, np.float32)), list)
    assert isinstance(method.localize_map(np.zeros(shape, np.float32)), list)


def test_many_references_give_the_answers_of_each_alone(method: Aligner) -> None:
    query, first = plant_descriptors(60, 80, [(10, 20, 20)])
    _, second = plant_descriptors(60, 50, [], seed=3)
    assert method.localize_many(query, [first, second]) == [
        method.localize(query, first),
        method.localize(query, second),
    ]


def test_descriptors_with_nan_are_refused(method: Aligner) -> None:
    query, reference = plant_descriptors(20, 20, [])
    reference[3, 7] = np.nan
    with pytest.raises(BadDescriptors, match="reference"):
        method.localize(query, reference)


def test_ours_is_truer_than_vcsl_on_its_own_generated_maps(method: Aligner) -> None:
    """VCSL's results on these maps lie far from what was planted (whole diagonals, one merged
    path), so the planted boxes are the judge: ours must reach 0.7 where VCSL stays below 0.2."""
    ours, theirs = [], []
    for number in range(24):
        cells, planted = golden_map(number)
        truth = [box for box in planted if min(box[2] - box[0], box[3] - box[1]) >= 4]
        sets = golden_results()[f"gen{number:02d}"][method.name]
        ours += best_overlaps(truth, [segment.box for segment in method.localize_map(cells)])
        theirs += best_overlaps(
            truth, [tuple(box) for box in sets.get("cli", sets.get("function"))]
        )
    assert np.mean(theirs) < 0.2
    assert np.mean(ours) > 0.7


def test_noise_alone_gives_nothing_on_the_golden_maps(method: Aligner) -> None:
    for number in range(0, 24, 4):
        cells, planted = golden_map(number)
        assert planted == []
        assert method.localize_map(cells) == []


def test_the_copy_in_a_real_map_is_where_vcsl_finds_it(method: Aligner) -> None:
    """TN's and DP's box of VCSL's sample; its DTW returns one path over two thirds of the map."""
    best = method.localize_map(sample_map())[0].box
    for rival in ("tn", "dp"):
        (box,) = golden_results()["sample"][rival]["cli"]
        assert best_overlaps([(box[0], box[1], box[2] + 1, box[3] + 1)], [best])[0] > 0.75
