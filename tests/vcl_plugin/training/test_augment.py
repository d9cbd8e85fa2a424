"""Augmentation: whatever is changed, boxes still frame the copy."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vcl_plugin.training.planted_pairs import plant
from vcl_plugin.evaluation.composition import MAX_SPEED, Geometry
from vcl_plugin.training.augment import (
    Sway,
    add_noise,
    add_same_scenes,
    drop_frames,
    reverse_reference,
    shift_features,
    swap_sides,
    turn_features,
    vary_geometry,
    vary_pair,
)
from vcl_plugin.training.recipe import Augment


def agreement(pair) -> float:
    """Mean similarity of the copied frames, each with its partner on the box's diagonal."""
    q0, r0, q1, r1 = pair.boxes[0].astype(int)
    block = pair.query[q0:q1] @ pair.reference[r0:r1].T
    return max(block.max(axis=1).mean(), 0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    frames=st.tuples(st.integers(20, 400), st.integers(20, 400)),
    length=st.integers(3, 18),
)
def test_varied_geometry_keeps_boxes_inside_and_plausible(seed, frames, length):
    box = (1.0, 2.0, 1.0 + length, 2.0 + length)
    row = Geometry(frames[0], frames[1], (box,), "", "train")
    varied = vary_geometry(row, np.random.default_rng(seed), max_frames=400)
    assert varied.boxes
    assert max(varied.query_frames, varied.reference_frames) <= 400
    for q0, r0, q1, r1 in varied.boxes:
        assert 0 <= q0 < q1 <= varied.query_frames
        assert 0 <= r0 < r1 <= varied.reference_frames
        assert 1 / MAX_SPEED <= (r1 - r0) / (q1 - q0) <= MAX_SPEED
    ordered = sorted(varied.boxes)
    assert all(a[2] <= b[0] for a, b in pairwise(ordered))


def test_reversed_reference_carries_its_box_along():
    pair = reverse_reference(plant(1))
    assert agreement(pair) > 0.99
    q0, r0, q1, r1 = pair.boxes[0].astype(int)
    assert np.allclose(pair.query[q0], pair.reference[r1 - 1])
    assert np.allclose(pair.query[q1 - 1], pair.reference[r0])


def test_swapped_sides_swap_the_box():
    pair = swap_sides(plant(2))
    assert agreement(pair) > 0.99
    assert len(pair.query) == 50


def test_dropped_frames_close_the_box_up():
    before = plant(3)
    after = drop_frames(before, np.random.default_rng(1), most=0.5)
    assert len(after.query) < len(before.query)
    assert agreement(after) > 0.99
    width = after.boxes[0, 2] - after.boxes[0, 0]
    assert width < before.boxes[0, 2] - before.boxes[0, 0]


def test_doubtful_boxes_move_with_the_others():
    pair = plant(1)
    pair = replace(pair, doubtful=pair.boxes)
    draw = np.random.default_rng(3)
    for change in (reverse_reference, swap_sides, lambda each: drop_frames(each, draw, most=0.4)):
        moved = change(pair)
        assert np.array_equal(moved.doubtful, moved.boxes)
        assert not np.array_equal(moved.doubtful, pair.doubtful)


def test_same_scenes_make_blocks_and_leave_the_copy_alone():
    draw = np.random.default_rng(2)
    before = plant(3, n=120, m=130)
    after = add_same_scenes(before, draw)
    assert not np.array_equal(before.query, after.query)
    assert agreement(after) > 0.99
    q0, _, q1, _ = before.boxes[0].astype(int)
    assert np.array_equal(before.query[q0:q1], after.query[q0:q1])
    changed = (before.query != after.query).any(axis=1)
    other = (before.reference != after.reference).any(axis=1)
    block = after.query[changed] @ after.reference[other].T
    assert block.mean() > 0.1


@pytest.mark.parametrize("is_passing", [True, False])
def test_two_takes_of_a_moving_scene_move_alike_at_other_times(is_passing):
    draw = np.random.default_rng(1)
    ways = np.eye(3, 64, dtype=np.float32)
    sway = Sway(ways, seconds=6.0, is_passing=is_passing)
    first, second = sway.move(60, draw), sway.move(60, draw)
    assert np.abs(first[:, 3:]).max() == 0, "it moves in its own ways only"
    assert first.std() > 0.05
    units = [
        each / np.linalg.norm(each, axis=1, keepdims=True).clip(1e-3) for each in (first, second)
    ]
    alike = units[0] @ units[1].T
    assert np.quantile(alike.max(axis=1), 0.5) > 0.9, "most moments have a like in the other take"
    assert np.diagonal(alike).mean() < 0.8, "but not at the same time"


def test_same_scenes_stay_out_where_boxes_are_unknown():
    pair = replace(plant(3), boxes=None)
    assert add_same_scenes(pair, np.random.default_rng(2)) is pair


def test_rotation_keeps_every_cosine():
    before = plant(4)
    after = turn_features(before, np.random.default_rng(0))
    assert not np.allclose(before.query, after.query, atol=0.1)
    expected = before.query @ before.reference.T
    assert np.allclose(after.query @ after.reference.T, expected, atol=1e-5)


def test_offset_lifts_unrelated_cosines_and_noise_lowers_those_of_the_copy():
    before = plant(5)
    lifted = shift_features(before, np.random.default_rng(3))
    assert np.median(lifted.query @ lifted.reference.T) > 0.05
    noisy = add_noise(before, 0.5, np.random.default_rng(3))
    assert 0.6 < agreement(noisy) < 0.95
    assert np.allclose(np.linalg.norm(noisy.query, axis=1), 1, atol=1e-5)


def test_pair_without_boxes_stays_without_them():
    pair = replace(plant(6), boxes=None)
    always = Augment(reversal=1, swap=1, frame_drop=1, offset=1, rotation=1)
    assert vary_pair(pair, always, np.random.default_rng(0)).boxes is None
