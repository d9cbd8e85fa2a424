from __future__ import annotations

import numpy as np
import pytest
from planted_maps import noise_map, plant

from vcl_plugin.align.matches import MOST_IN_A_ROW, find_matches


def test_matches_are_the_cells_above_the_floor() -> None:
    cells = noise_map(20, 30)
    matches = find_matches(cells, 0.2)
    assert len(matches) == (cells > 0.2).sum()
    assert matches.worth == pytest.approx(cells[matches.rows, matches.columns] - 0.2)
    assert np.array_equal(matches.as_map(0) > 0, cells > 0.2)


def test_a_copy_has_support_in_its_own_direction_only() -> None:
    cells = np.zeros((40, 50), np.float32)
    plant(cells, 5, 8, 20)
    plant(cells, 30, 40, 1)  # a stray match
    matches = find_matches(cells, 0.5)
    assert len(matches) == 21
    assert len(matches.supported()) == 20
    assert len(matches.mirrored().supported()) == 0


@pytest.mark.parametrize("speed", [0.5, 0.75, 1.0, 1.5, 2.0])
def test_support_does_not_depend_on_the_speed(speed: float) -> None:
    cells = np.zeros((40, 80), np.float32)
    plant(cells, 5, 8, 30, speed=speed)
    assert len(find_matches(cells, 0.5).supported()) == 30


def test_mirrored_twice_is_the_same() -> None:
    matches = find_matches(noise_map(9, 12), 0.15)
    assert matches.mirrored().mirrored().columns.tolist() == matches.columns.tolist()


def test_the_best_of_a_row_are_its_worthiest() -> None:
    cells = 0.1 * noise_map(6, 40)
    cells[:, ::4] += 0.3 + 0.1 * np.arange(10)  # steps larger than a tie
    best = find_matches(cells, -1.0).best(3)
    expected = np.sort(np.argsort(-cells, axis=1)[:, :3], axis=1)
    assert best.columns.reshape(6, 3).tolist() == expected.tolist()
    assert best.row_places().tolist() == [0, 1, 2] * 6


def test_rows_of_a_still_agree_on_a_diagonal() -> None:
    cells = np.zeros((40, 40), np.float32)
    cells[5:35, 5:35] = 0.9
    best = find_matches(cells, 0.5).best(1)
    assert (best.rows == best.columns).all()


def test_a_map_of_matches_everywhere_stays_small() -> None:
    cells = np.full((100, 300), 0.9, np.float32)
    assert len(find_matches(cells, 0.5)) == 100 * MOST_IN_A_ROW


def test_no_match_is_no_trouble() -> None:
    matches = find_matches(np.zeros((3, 4), np.float32), 0.5)
    assert len(matches) == len(matches.best(2)) == len(matches.supported()) == 0
