"""Ends: loose boxes around a planted copy come out to the second, sure ones stay."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.records import Segment, Span
from vcl_plugin.localize.ends import RefinedLocalizer, refine_segments


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def walk(frames: int, seed: int) -> np.ndarray:
    """A video: each second resembles its neighbours, as real footage does."""
    draw = np.random.default_rng(seed)
    steps = draw.standard_normal((frames + 4, 256))
    return unit(sum(steps[i : frames + i] for i in range(3)))


def planted(speed: float = 1.0, is_reversed: bool = False, noise: float = 0.4):
    """A copy of reference seconds [30, 30 + 40 * speed) in query seconds [20, 60)."""
    draw = np.random.default_rng(9)
    query, reference = walk(90, 1), walk(140, 2)
    for i in range(40):
        column = 30 + int((39 - i if is_reversed else i) * speed + 0.5 * (speed > 1))
        query[20 + i] = reference[column]
    query = unit(query + noise * unit(draw.standard_normal(query.shape)))
    return query, reference, (20.0, 30.0, 60.0, 30.0 + 40 * speed)


def worst_end(segment: Segment, truth) -> float:
    return max(abs(a - b) for a, b in zip(segment.box, truth, strict=True))


@pytest.mark.parametrize("speed", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("error", [(-5, -5, 4, 4), (4, 4, -5, -5), (-4, -4, -4, -4)])
def test_loose_ends_are_set_to_the_second(speed, is_reversed, error):
    query, reference, truth = planted(speed, is_reversed)
    scale = np.array([1, speed, 1, speed])
    if is_reversed:
        error = (error[0], -error[2], error[2], -error[0])
    loose = np.array(truth) + np.array(error) * scale
    segment = Segment(Span(loose[0], loose[2]), Span(loose[1], loose[3]), 0.5)
    (found,) = refine_segments(query, reference, [segment])
    assert worst_end(found, truth) <= 2.0
    assert worst_end(found, truth) < worst_end(segment, truth)
    assert found.is_reversed == is_reversed
    assert found.speed == pytest.approx(speed, rel=0.1)
    assert found.score == 0.5


def test_right_ends_stay_right():
    query, reference, truth = planted()
    segment = Segment(Span(20, 60), Span(30, 70), 0.9)
    (found,) = refine_segments(query, reference, [segment])
    assert worst_end(found, truth) <= 1.0


def test_poor_second_inside_a_copy_does_not_cut_it():
    query, reference, truth = planted()
    query[40:43] = walk(3, 77)  # a card in the middle
    segment = Segment(Span(22, 58), Span(32, 68), 0.9)
    (found,) = refine_segments(query, reference, [segment])
    assert worst_end(found, truth) <= 1.0


def fixed_camera(frames: int, seed: int, scene: int = 5) -> np.ndarray:
    """All frames alike; only what passes by differs from second to second."""
    return unit(walk(1, scene) + 0.3 * walk(frames, seed))


def test_line_of_a_fixed_camera_is_found_by_its_changes():
    reference = fixed_camera(90, 2)
    query = walk(60, 1)
    query[10:40] = unit(reference[30:60] + 0.1 * walk(30, 8))
    segment = Segment(Span(10, 40), Span(38, 68), 0.9)  # on any line the frames look alike
    (found,) = refine_segments(query, reference, [segment])
    assert worst_end(found, (10, 30, 40, 60)) <= 1.0


def test_flat_map_leaves_the_box_as_it_was():
    still = np.tile(walk(1, 3), (50, 1))
    segment = Segment(Span(10, 30), Span(12, 33), 0.4)
    assert refine_segments(still, still, [segment]) == [segment]


def test_ends_never_leave_the_videos():
    reference = walk(30, 4)
    segment = Segment(Span(3, 26), Span(3, 26), 0.4)
    (found,) = refine_segments(reference, reference, [segment])
    assert found.box == (0, 0, 30, 30)


def test_refined_localizer_refines_each_reference_and_says_so():
    query, reference, truth = planted()

    class Loose:
        name, fingerprint = "loose", "loose-1"

        def localize(self, query, reference):
            return [Segment(Span(24, 55), Span(34, 65), 0.5)]

        def localize_many(self, query, references):
            return [self.localize(query, each) for each in references]

    refined = RefinedLocalizer(Loose())
    assert refined.fingerprint == "loose-1+ends2"
    for (found,) in refined.localize_many(query, [reference, reference]):
        assert worst_end(found, truth) <= 1.0
    assert worst_end(refined.localize(query, reference)[0], truth) <= 1.0
