"""One table holds the views of a video, whatever they show."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.describe.views import NO_VIEWS, ViewKind, Views, join_views, number_runs
from tests.retrieval.test_store import unit_rows


def test_runs_come_out_of_the_table_as_they_went_in():
    rows = unit_rows(9)
    parts = [([4, 5], rows[:2]), ([5, 6, 7], rows[2:5])]
    middle = [([0, 1, 2], rows[5:8]), ([8], rows[8:])]
    views = join_views([number_runs(ViewKind.PART, parts), number_runs(ViewKind.MIDDLE, middle)])
    assert len(views) == 9
    assert views.runs_of(ViewKind.MIRRORED) == []
    for kind, runs in ((ViewKind.PART, parts), (ViewKind.MIDDLE, middle)):
        found = views.runs_of(kind)
        assert [each.frames.tolist() for each in found] == [frames for frames, _ in runs]
        assert all(np.array_equal(a.vectors, b) for a, (_, b) in zip(found, runs, strict=True))
        assert {number for each in found for number in each.kinds} == {kind}


def test_the_last_run_of_a_kind_and_the_first_of_the_next_are_two():
    one, other = (number_runs(kind, [([3], unit_rows(1))]) for kind in list(ViewKind)[:2])
    joined = join_views([one, other])
    assert joined.runs.tolist() == [0, 0]
    assert [len(joined.runs_of(kind)) for kind in ViewKind] == [1, 1, 0]


def test_a_video_without_views_has_no_runs():
    assert join_views([]) is NO_VIEWS
    assert number_runs(ViewKind.PART, []) is NO_VIEWS
    assert [NO_VIEWS.runs_of(kind) for kind in ViewKind] == [[], [], []]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="2 vectors, 1 frames, 1 kinds and 1 runs"):
        Views(unit_rows(2), np.zeros(1, np.int32), np.zeros(1, np.uint8), np.zeros(1, np.int32))
