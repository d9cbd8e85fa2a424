from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.arrays import unit
from vcl_plugin.localize.streams import STREAMS, PairStreams
from vcl_plugin.training.cuts import Copy, CutPair
from vcl_plugin.training.lines import SIDE, Lesson, cut_window, mark_cells, measure_loss

Box = tuple[int, int, int, int]


def draw(rng: np.random.Generator, seconds: int) -> np.ndarray:
    return unit(rng.standard_normal((seconds, 256)).astype(np.float32))


def plant(seed: int, query: int, reference: int, box: Box) -> CutPair:
    rng = np.random.default_rng(seed)
    known, asked = draw(rng, reference), draw(rng, query)
    q_start, r_start, q_end, r_end = box
    shown = r_start + (np.arange(q_end - q_start) + 0.5) * (r_end - r_start) / (q_end - q_start)
    asked[q_start:q_end] = known[shown.astype(int)]
    return CutPair(asked, known, (Copy(box, shown),), known)


def read_maps(pair: CutPair) -> np.ndarray:
    whole = slice(0, len(pair.query)), slice(0, len(pair.reference))
    return PairStreams(pair.query, pair.reference).window(*whole)


def test_a_line_is_copied_what_lies_beside_it_counts_nothing_what_lies_beyond_counts() -> None:
    pair = plant(1, 40, 50, (10, 20, 30, 40))
    is_copied, weights = mark_cells((40, 50), pair.copies, pair.known)
    assert is_copied[10, 20] == is_copied[29, 39] == 1
    assert is_copied[9, 19] == is_copied[30, 40] == is_copied[15, 28] == 0
    assert weights[15, 28] == 0
    assert weights[9, 19] == weights[30, 40] == weights[0, 0] == 1


def test_no_cell_is_wrong_where_the_reference_shows_the_same_for_a_while() -> None:
    pair = plant(2, 40, 50, (10, 20, 30, 40))
    pair.known[25:45] = pair.known[25]
    is_copied, weights = mark_cells((40, 50), pair.copies, pair.known)
    assert (weights[15:30, 25:45][is_copied[15:30, 25:45] == 0] == 0).all()
    assert (weights[30:, 25:45] == 1).all()  # behind the end of the copy in the query


def test_a_short_copy_counts_more_a_cell() -> None:
    short, long = plant(3, 60, 60, (10, 20, 14, 24)), plant(3, 60, 60, (10, 20, 50, 60))
    _, of_short = mark_cells((60, 60), short.copies, short.known)
    _, of_long = mark_cells((60, 60), long.copies, long.known)
    assert of_short[10, 20] > of_long[10, 20]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_a_window_turned_any_way_has_its_copied_cells_where_its_maps_show_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, reference = (int(rng.integers(20, 260)) for _ in range(2))
    length = int(rng.integers(4, min(query, reference)))
    starts = int(rng.integers(query - length + 1)), int(rng.integers(reference - length + 1))
    pair = plant(seed, query, reference, (*starts, starts[0] + length, starts[1] + length))
    shown, is_copied, weights = cut_window(pair, read_maps(pair), rng)
    assert shown.shape == (len(STREAMS), SIDE, SIDE)
    assert is_copied.shape == weights.shape == (SIDE, SIDE)
    cosine = shown[STREAMS.index("cosine")].astype(np.float32)
    assert (is_copied[cosine > 0.9] == 1).all()  # unrelated noise is never so much alike


def test_the_ridge_tells_seconds_of_a_slow_glide_apart() -> None:
    place = np.linspace(0, 1, 30)[:, None]
    ends = draw(np.random.default_rng(5), 2)
    ends = unit(np.stack([ends[0], ends[0] + 1.5 * ends[1]]))
    glide = unit((1 - place) * ends[0] + place * ends[1]).astype(np.float32)
    ridge = PairStreams(glide, glide).window(slice(0, 30), slice(0, 30))[STREAMS.index("row_ridge")]
    assert np.allclose(np.diag(ridge), 1, atol=1e-3)
    assert ridge[15, 22] < 0.2


def test_cells_read_as_they_are_cost_least() -> None:
    pair = plant(3, 60, 60, (10, 20, 40, 50))
    is_copied, weights = (
        torch.from_numpy(each)[None] for each in mark_cells((60, 60), pair.copies, pair.known)
    )
    right = is_copied * 20 - 10
    assert measure_loss(right, is_copied, weights) < 1e-3
    assert measure_loss(-right, is_copied, weights) > 1


def test_a_lesson_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    def batch(number: int) -> list[torch.Tensor]:
        pair = plant(number, 150, 150, (10, 20, 90, 100))
        window = cut_window(pair, read_maps(pair), np.random.default_rng(number))
        return [torch.from_numpy(each[None]).float() for each in window]

    whole, first = Lesson(4, 1), Lesson(4, 1)
    for number in range(2):
        whole.learn(batch(number))
        first.learn(batch(number))
    first.save(tmp_path / "state")
    second = Lesson(4, 2)
    second.load(tmp_path / "state")
    for number in range(2, 4):
        facts = whole.learn(batch(number))
        assert second.learn(batch(number)) == pytest.approx(facts)
    for name, each in whole.average.items():
        torch.testing.assert_close(second.average[name], each)
