"""Changes along a line: they prove a copy in front of a fixed camera, whatever its speed, phase and
direction."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.records import Segment, Span
from tests.vcl_plugin.localize.test_ends import fixed_camera, unit, walk
from vcl_plugin.localize.changes import LineFacts, changes_of, describe_line

FINER = 6  # pictures a second in which the scene moves
START, SECONDS = 20, 30  # of the copied reference seconds


def scene(seconds: int, seed: int) -> np.ndarray:
    """A fixed camera, smooth between seconds, as passers-by are."""
    moving = walk(FINER * seconds, seed)
    smooth = sum(np.roll(moving, step, axis=0) for step in range(FINER))
    return unit(walk(1, 5) + 0.3 * unit(smooth))


def sampled(film: np.ndarray, places: np.ndarray) -> np.ndarray:
    return film[np.rint(FINER * places).astype(int).clip(0, len(film) - 1)]


def described(pace: float, phase: float = 0.0, is_reversed: bool = False, seed: int = 8):
    """Facts of a copy that shows `pace` reference seconds a second; of a later take with seed 9."""
    film = scene(90, 6)
    reference = sampled(film, np.arange(90) + 0.5)
    shown = film if seed == 8 else scene(90, seed)
    count = int(SECONDS / pace)
    since = pace * (np.arange(count) + 0.5)
    places = (START + SECONDS - since if is_reversed else START + since) + phase
    query = walk(count + 30, 1)
    query[10 : 10 + count] = unit(sampled(shown, places) + 0.05 * walk(count, 7))
    segment = Segment(
        Span(10, 10 + SECONDS / pace), Span(START, START + SECONDS), 0.5, is_reversed=is_reversed
    )
    return describe_line(query, changes_of(reference), segment)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("pace", [0.5, 0.75, 1.0, 1.5, 2.0])
def test_a_copy_leads_at_any_speed_and_another_take_does_not(pace, is_reversed):
    copy = described(pace, is_reversed=is_reversed)
    take = described(pace, is_reversed=is_reversed, seed=9)
    assert copy.mean > take.mean + 0.2
    assert copy.lead > take.lead + 0.2
    assert copy.votes > 2
    assert take.votes < 0
    assert copy.proof > take.proof + 0.3


@pytest.mark.parametrize("phase", [0.0, 0.33, 0.5])
def test_a_copy_that_starts_between_two_seconds_is_looked_for_there(phase):
    assert described(1.0, phase).lead > 0.3


@pytest.mark.parametrize("seconds", [5, 8, 20])
def test_a_short_upload_of_another_moment_has_to_stand_against_the_reference(seconds):
    """No line beside the found one lies in it, so other seconds of the reference compete."""
    reference = changes_of(fixed_camera(120, 6))
    place = Segment(Span(0, seconds), Span(50, 50 + seconds), 0.5)
    takes = [describe_line(fixed_camera(seconds, 20 + k), reference, place) for k in range(20)]
    assert np.mean([each.votes for each in takes]) < 0
    assert np.mean([each.lead for each in takes]) < 0.02
    copy = unit(fixed_camera(120, 6)[50 : 50 + seconds] + 0.05 * walk(seconds, 8))
    facts = describe_line(copy, reference, place)
    assert facts.lead > 0.3
    assert facts.votes > 0


@pytest.mark.parametrize(
    "box",
    [
        (0, 0, 1, 1),
        (11, 8, 12, 9),
        (3.4, 0.2, 3.9, 8.7),
        (0.1, 4.2, 11.9, 4.8),
        (0, 9, 3, 12),  # behind the last frame
    ],
)
def test_tiny_and_steep_segments_have_numbers(box):
    q_start, r_start, q_end, r_end = box
    segment = Segment(Span(q_start, q_end), Span(r_start, r_end), 0.5)
    facts = describe_line(walk(12, 1), changes_of(walk(9, 2)), segment)
    assert isinstance(facts, LineFacts)
    assert all(np.isfinite(facts))
