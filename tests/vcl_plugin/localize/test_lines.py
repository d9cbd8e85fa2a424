from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcl_plugin.localize.lines import Cells, find_segments

Box = tuple[int, int, int, int]
SHAPE = (200, 300)


def light(boxes: Sequence[Box], chance: float = 0.9, is_reversed: bool = False) -> np.ndarray:
    """What a perfect reader sees: lines of three cells along the diagonals of these boxes."""
    read = np.zeros(SHAPE, np.float32)
    for q_start, r_start, q_end, r_end in boxes:
        for row in range(q_start, q_end):
            place = (row + 0.5 - q_start) * (r_end - r_start) / (q_end - q_start)
            column = int(r_end - place) if is_reversed else int(r_start + place)
            read[row, max(column - 1, r_start) : min(column + 2, r_end)] = chance
    return read


def as_cells(read: np.ndarray, *cuts: int) -> Cells:
    """The cells of a map that was read in windows cut at these rows."""
    edges = [0, *cuts, len(read)]
    parts = [(a, 0, read[a:b]) for a, b in pairwise(edges)]
    return Cells.above(parts, read.shape[1])


@pytest.mark.parametrize("box", [(10, 20, 22, 32), (10, 20, 60, 70), (0, 0, 200, 200)])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_line_is_one_segment_with_its_ends_and_direction(box: Box, is_reversed: bool) -> None:
    [segment] = find_segments(as_cells(light([box], is_reversed=is_reversed)), 0.5)
    assert segment.box == pytest.approx(box, abs=0.6)
    assert segment.score == pytest.approx(0.9, abs=0.01)
    assert segment.is_reversed is is_reversed
    assert segment.speed == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(("box", "speed"), [((10, 20, 30, 60), 2.0), ((10, 20, 90, 60), 0.5)])
def test_the_speed_of_a_segment_is_that_of_its_line(box: Box, speed: float) -> None:
    [segment] = find_segments(as_cells(light([box])), 0.5)
    assert segment.speed == pytest.approx(speed, rel=0.05)


def test_a_copy_across_the_border_of_two_windows_is_one_segment() -> None:
    [segment] = find_segments(as_cells(light([(10, 20, 150, 160)]), 64, 128), 0.5)
    assert segment.box == pytest.approx((10, 20, 150, 160), abs=0.6)


def test_two_lines_that_do_not_touch_are_two_segments_in_the_order_of_the_query() -> None:
    boxes = [(60, 20, 80, 40), (10, 120, 40, 150)]
    segments = find_segments(as_cells(light(boxes)), 0.5)
    assert [each.box for each in segments] == [pytest.approx(box, abs=0.6) for box in sorted(boxes)]


def test_nothing_likely_is_no_segment() -> None:
    assert find_segments(as_cells(light([])), 0.0) == []
    assert find_segments(as_cells(light([(10, 20, 30, 40)], chance=0.3)), 0.0) == []


def test_a_segment_below_the_threshold_is_not_told() -> None:
    cells = as_cells(light([(10, 20, 30, 40)], chance=0.6))
    assert len(find_segments(cells, 0.55)) == 1
    assert find_segments(cells, 0.65) == []


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_cells_make_segments_inside_both_videos(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
    for segment in find_segments(as_cells(rng.uniform(0, 1, shape).astype(np.float32)), 0.0):
        q_start, r_start, q_end, r_end = segment.box
        assert 0 <= q_start < q_end <= shape[0]
        assert 0 <= r_start < r_end <= shape[1]
        assert 0 <= segment.score <= 1
        assert segment.speed > 0
