"""A closer look: tiles cover the pair, and pieces of one copy become one again."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.records import Segment, Span
from vcl_plugin.localize.zoom import Zoom, join_pieces, look_closer


class Recorder:
    name, fingerprint = "recorder", "recorder-1"

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []

    def localize(self, query, reference):
        self.shapes.append((len(query), len(reference)))
        return [Segment(Span(0, 2), Span(1, 3), 0.5)]

    def localize_many(self, query, references):
        return [self.localize(query, each) for each in references]


def frames(count: int) -> np.ndarray:
    return np.ones((count, 256), np.float32)


def test_short_pair_is_looked_at_once():
    recorder = Recorder()
    assert len(look_closer(recorder, frames(100), frames(120), Zoom(96, 32)).segments) == 1
    assert len(look_closer(recorder, frames(900), frames(900), None).segments) == 1


def test_pair_of_too_many_tiles_is_looked_at_once():
    recorder = Recorder()
    look_closer(recorder, frames(900), frames(900), Zoom(96, 32, max_tiles=50))
    assert recorder.shapes == [(900, 900)]


def test_tiles_of_both_sides_meet_and_report_in_the_pairs_time():
    recorder = Recorder()
    found = look_closer(recorder, frames(150), frames(60), Zoom(96, 32)).segments
    assert recorder.shapes == [(150, 60), (96, 60), (96, 60)]
    assert [each.query.start for each in found] == [0, 0, 54]
    assert all(each.reference == Span(1, 3) for each in found)


def test_overlap_as_long_as_a_tile_is_refused():
    with pytest.raises(ValueError, match="overlap"):
        Zoom(10, 10)


def piece(q0, q1, r0, r1, is_reversed=False):
    speed = (r1 - r0) / (q1 - q0)
    return Segment(Span(q0, q1), Span(r0, r1), 0.5, is_reversed, speed)


def test_pieces_of_one_line_become_one():
    (joined,) = join_pieces(
        [piece(40, 70, 140, 170), piece(0, 30, 100, 130), piece(28, 45, 128, 145)]
    )
    assert joined.box == (0, 100, 70, 170)


def test_pieces_of_a_reversed_copy_become_one():
    (joined,) = join_pieces([piece(0, 30, 70, 100, True), piece(30, 60, 40, 70, True)])
    assert joined.box == (0, 40, 60, 100)
    assert joined.is_reversed


@pytest.mark.parametrize(
    "other",
    [
        piece(40, 60, 140, 160),  # a pause of ten seconds
        piece(30, 60, 140, 170),  # ten seconds beside the line
        piece(30, 60, 70, 100, True),  # the other direction
    ],
)
def test_pieces_of_different_copies_stay_apart(other):
    assert len(join_pieces([piece(0, 30, 100, 130), other])) == 2
