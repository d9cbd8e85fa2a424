"""Direction and speed of a planted copy, through noise, stills and parallel diagonals."""

import numpy as np
import pytest

from vcl_plugin.localize.motion import estimate_motion


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def planted(seconds, speed, is_reversed, noise=0.8, seed=0):
    """Similarity map and box of a copy that starts at (5, 20)."""
    rng = np.random.default_rng(seed)
    length = int(seconds * speed)
    reference = unit(rng.standard_normal((length + 60, 256)))
    frames = 20 + (np.arange(seconds) * speed).astype(int)
    query = unit(rng.standard_normal((seconds + 10, 256)))
    query[5 : 5 + seconds] = reference[frames[::-1] if is_reversed else frames]
    query = unit(query + noise * unit(rng.standard_normal(query.shape)))
    return query @ reference.T, (5, 20, 5 + seconds, 20 + length)


@pytest.mark.parametrize("seconds", [12, 60, 700])
@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_planted_copy_tells_its_direction_and_speed(seconds, speed, is_reversed):
    found_reversed, found_speed = estimate_motion(*planted(seconds, speed, is_reversed))
    assert found_reversed == is_reversed
    assert found_speed == pytest.approx(speed, rel=0.1 if seconds < 30 else 0.03)


def test_a_loose_box_does_not_change_the_speed():
    similarity, (q0, r0, q1, r1) = planted(80, 1.25, False)
    assert estimate_motion(similarity, (q0 - 5, r0 - 20, q1, r1 + 15))[1] == pytest.approx(
        1.25, rel=0.03
    )


def test_parallel_diagonals_of_slow_footage_do_not_turn_the_direction():
    lag = np.abs(np.subtract.outer(np.arange(90), np.arange(90)))
    rng = np.random.default_rng(1)
    similarity = np.exp(-lag / 6) + 0.05 * rng.standard_normal(lag.shape)
    assert estimate_motion(similarity, (0, 0, 90, 90)) == (False, pytest.approx(1.0, rel=0.05))
    assert estimate_motion(similarity[:, ::-1], (0, 0, 90, 90))[0] is True


def test_a_repeated_scene_beside_the_copy_does_not_bend_it():
    similarity, box = planted(60, 1.0, True, noise=0.3)
    similarity[5:25, 20:40] = np.maximum(similarity[5:25, 20:40], 0.6 * np.eye(20))
    assert estimate_motion(similarity, box) == (True, pytest.approx(1.0, rel=0.05))


def test_a_still_scene_is_forward_at_the_speed_of_its_box():
    assert estimate_motion(np.ones((30, 60)), (0, 0, 30, 60)) == (False, 2.0)


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (0, 0, 2, 8), (3.2, 4.1, 3.9, 4.4)])
def test_a_handful_of_frames_is_forward(box):
    is_reversed, speed = estimate_motion(np.random.default_rng(0).random((10, 10)), box)
    assert not is_reversed
    assert 0.1 <= speed <= 10


def test_a_box_that_leaves_the_map_is_read_where_it_is_inside():
    assert estimate_motion(np.eye(20), (-3, -3, 25, 25)) == (False, pytest.approx(1.0, rel=0.02))
