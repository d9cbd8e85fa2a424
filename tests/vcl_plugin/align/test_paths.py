from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_maps import noise_map, plant

from vcl_plugin.align.paths import (
    Path,
    background,
    best_runs,
    centre_map,
    cut_path,
    estimate_speed,
    join_paths,
    make_segment,
    measure_change,
    straighten_path,
    trim_path,
)
from vcl_plugin.align.warping import warp


def line(start: int, seconds: int, speed: float = 1.0, offset: int = 0) -> Path:
    rows = np.arange(start, start + seconds)
    return Path(rows, np.round(offset + speed * rows).astype(np.intp))


def test_a_box_ends_when_the_last_matched_second_is_over() -> None:
    assert line(3, 5, offset=10).box == (3.0, 13.0, 8.0, 18.0)


def test_a_mirrored_path_is_itself_when_mirrored_again() -> None:
    path = line(0, 6, offset=2)
    back = path.mirrored(20)
    assert back.is_reversed
    assert back.mirrored(20).columns.tolist() == path.columns.tolist()


def test_a_pause_longer_than_the_gap_cuts_and_a_shorter_one_does_not() -> None:
    path = line(0, 40)
    holed = Path(np.delete(path.rows, slice(15, 25)), np.delete(path.columns, slice(15, 25)))
    assert len(cut_path(holed, max_gap=9, max_shift=3, min_length=4)) == 2
    assert len(cut_path(holed, max_gap=12, max_shift=3, min_length=4)) == 1


def test_a_fast_copy_is_not_cut_for_being_fast() -> None:
    assert len(cut_path(line(0, 30, speed=2.0), max_gap=10, max_shift=3, min_length=4)) == 1


def test_a_stray_cell_at_the_end_does_not_make_a_piece() -> None:
    path = line(0, 20)
    strayed = Path(path.rows, np.append(path.columns[:-1], path.columns[-1] + 6))
    assert len(cut_path(strayed, max_gap=10, max_shift=3, min_length=4)) == 1


def test_pieces_together_are_the_path() -> None:
    rows = np.arange(30)
    path = Path(rows, rows + 20 * (rows >= 10) + 15 * (rows >= 20))
    pieces = cut_path(path, max_gap=10, max_shift=3, min_length=4)
    assert [len(piece) for piece in pieces] == [10, 10, 10]
    assert np.concatenate([piece.columns for piece in pieces]).tolist() == path.columns.tolist()


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.6, 2.0])
def test_speed_is_read_from_the_path(speed: float) -> None:
    assert estimate_speed(line(0, 60, speed=speed)) == pytest.approx(speed, rel=0.05)


def test_a_path_with_holes_scores_lower() -> None:
    cells = noise_map(40, 40)
    plant(cells, 0, 0, 40, level=0.8)
    full, holed = line(0, 40), line(0, 40)
    holed = Path(np.delete(holed.rows, slice(10, 20)), np.delete(holed.columns, slice(10, 20)))
    assert make_segment(full, cells, floor=0.3).score == pytest.approx(0.8)
    assert make_segment(holed, cells, floor=0.3).score == pytest.approx(0.6)


def test_a_still_changes_nothing_and_a_cut_changes_the_scene_once() -> None:
    path = line(0, 10)
    still = np.full((10, 10), 0.9, np.float32)
    assert measure_change(path, still, floor=0.5) == pytest.approx(0, abs=1e-6)
    cut = still.copy()
    cut[:5, 5:] = cut[5:, :5] = 0
    assert measure_change(path, cut, floor=0.5) == pytest.approx(1)


def test_a_cut_to_a_doubtful_match_changes_little() -> None:
    cells = np.zeros((10, 10), np.float32)
    cells[:9, :9] = 1.0
    cells[9, 9] = 0.52
    assert measure_change(line(0, 10), cells, floor=0.5) < 0.1


def test_centring_brings_down_frames_that_are_like_everything() -> None:
    cells = noise_map(40, 50)
    cells[7] += 0.5
    cells[20, 30] = 0.9
    centred = centre_map(cells, 1.0)
    assert centred[7].mean() == pytest.approx(cells.mean(), abs=1e-5)
    assert centred[20, 30] > 0.85
    assert centre_map(cells, 0.0) is cells


def test_an_end_that_is_weak_beside_the_rest_is_cut_off() -> None:
    cells = np.zeros((30, 30), np.float32)
    cells[np.arange(20), np.arange(20)] = 0.9
    cells[np.arange(20, 30), np.arange(20, 30)] = 0.5
    (kept, *_) = trim_path(line(0, 30), cells, floor=0.4, share=0.4)
    assert kept.box == (0, 0, 20, 20)
    (whole,) = trim_path(line(0, 30), cells, floor=0.4, share=0.0)
    assert whole.box == (0, 0, 30, 30)


def test_a_path_through_a_still_is_led_by_the_rest_of_it() -> None:
    """A copy at double speed whose first four seconds are a still: the path cut the corner."""
    cells = np.zeros((20, 40), np.float32)
    rows = np.arange(20)
    cells[rows, 2 * rows] = 0.9
    cells[:4, :8] = 0.9
    cut = Path(rows, np.concatenate([[3, 4, 5, 6], 2 * rows[4:]]))
    straight = straighten_path(cut, cells)
    assert straight.columns.tolist() == (2 * rows).tolist()
    assert straight.box == (0, 0, 20, 39)


def test_a_path_keeps_its_cells_where_the_line_does_not_match() -> None:
    cells = np.zeros((20, 40), np.float32)
    path = Path(np.arange(20), np.arange(20) + np.repeat([0, 2], 10))
    cells[path.rows, path.columns] = 0.9
    assert straighten_path(path, cells).columns.tolist() == path.columns.tolist()


def test_tails_find_their_heads() -> None:
    rows = np.arange(6)
    heads = [Path(rows, rows + 10), Path(rows + 40, rows + 10)]
    tails = [Path(rows + 6, rows + 16), Path(rows + 46, rows + 16), Path(rows + 80, rows + 40)]
    boxes = [path.box for path in join_paths([*heads, *tails])]
    assert boxes == [(0, 10, 12, 22), (40, 10, 52, 22), (80, 40, 86, 46)]


def test_the_background_of_a_map_ignores_the_copy_on_it() -> None:
    cells = noise_map(300, 300)
    before = background(cells)
    plant(cells, 0, 0, 300, level=0.95)
    assert background(cells) == pytest.approx(before, abs=0.005)
    assert before == pytest.approx((0.10, 0.08), abs=0.005)


values = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(values, st.lists(st.integers(0, 9), min_size=12, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_first_run_is_the_best_of_all_stretches(worth: list[int], cost: list[int]) -> None:
    gains, costs = np.array(worth, float), np.array(cost[: len(worth)], float)
    runs = best_runs(gains, costs, min_strength=0.5)
    totals = [
        gains[a:b].sum() - costs[a + 1 : b].sum()
        for a in range(len(worth))
        for b in range(a + 1, len(worth) + 1)
    ]
    if not runs:
        assert max(totals) < 0.5
        return
    first = runs[0]
    assert gains[first].sum() - costs[first][1:].sum() == pytest.approx(max(totals))
    taken = np.concatenate([np.arange(run.start, run.stop) for run in runs])
    assert len(set(taken.tolist())) == len(taken)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_no_monotone_path_gathers_more_than_the_warped_one(
    height: int, width: int, seed: int
) -> None:
    gain = np.random.default_rng(seed).integers(0, 5, (height, width)).astype(np.float32)

    def best(row: int, column: int) -> float:
        if row == height or column == width:
            return 0.0
        matched = gain[row, column] + best(row + 1, column + 1)
        return float(max(matched, best(row + 1, column), best(row, column + 1)))

    rows, columns = warp(gain)
    assert (np.diff(rows) > 0).all()
    assert (np.diff(columns) > 0).all()
    assert gain[rows, columns].sum() == pytest.approx(best(0, 0))
