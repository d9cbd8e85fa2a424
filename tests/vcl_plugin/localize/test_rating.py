"""Rating: facts part a copy from a scene filmed twice, and results come out joined and chosen."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retrieval.records import Segment, Span
from tests.vcl_plugin.localize.test_ends import fixed_camera, planted, unit, walk
from vcl_plugin.localize.maps import map_pair
from vcl_plugin.localize.rating import (
    FACTS,
    Rating,
    choose_segments,
    describe_segments,
)


def by_agreement() -> Rating:
    """A rating that looks at one fact only."""
    row = [0.0] * (len(FACTS) + 1)
    row[FACTS.index("agreement")] = 4.0
    row[-1] = -2.0
    return Rating((0.0,) * len(FACTS), (1.0,) * len(FACTS), (tuple(row),), (4.0, 0.0))


def same_scene() -> tuple[np.ndarray, np.ndarray]:
    """Forty seconds of one fixed camera on either side: alike throughout, never the same moment."""
    query, reference = walk(90, 1), walk(140, 2)
    scene = walk(1, 5)
    query[20:60] = unit(scene + 0.5 * walk(40, 6))
    reference[30:70] = unit(scene + 0.5 * walk(40, 7))
    return query, reference


SEGMENT = Segment(Span(20, 60), Span(30, 70), 0.5)


def fact(name: str, query: np.ndarray, reference: np.ndarray) -> float:
    return float(describe_segments(map_pair(query, reference), [SEGMENT])[0, FACTS.index(name)])


@pytest.mark.parametrize("name", ["agreement", "ridge", "motion", "row_lead", "column_lead"])
def test_copy_agrees_along_its_line_and_a_scene_filmed_twice_does_not(name):
    copy, reference, _ = planted(noise=0.5)
    assert fact(name, copy, reference) > fact(name, *same_scene()) + 0.05


@pytest.mark.parametrize("name", ["change", "change_lead", "change_votes", "change_proof"])
def test_changes_tell_a_copy_before_a_fixed_camera_from_the_hour_before_it(name):
    query, reference = walk(90, 1), walk(140, 2)
    reference[20:100] = fixed_camera(80, 6)
    query[20:60] = fixed_camera(40, 7)
    neighbour = fact(name, query, reference)
    query[20:60] = unit(reference[30:70] + 0.1 * walk(40, 8))
    assert fact(name, query, reference) > neighbour + 0.5


def test_a_longer_copy_before_a_fixed_camera_is_better_proven():
    query, reference = walk(90, 1), walk(140, 2)
    reference[20:100] = fixed_camera(80, 6)
    query[20:60] = unit(reference[30:70] + 0.4 * walk(40, 8))
    short = Segment(Span(20, 26), Span(30, 36), 0.5)
    facts = describe_segments(map_pair(query, reference), [SEGMENT, short])
    for name in ("change_votes", "change_proof"):
        assert facts[0, FACTS.index(name)] > 1.5 * facts[1, FACTS.index(name)]


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_a_copy_that_starts_between_two_seconds_is_proven_too(offset):
    query, reference = walk(90, 1), walk(140, 2)
    finer = fixed_camera(160, 6)
    reference[20:100] = finer[::2]
    start = 20 + int(2 * offset)
    query[20:60] = unit(finer[start : start + 80 : 2] + 0.1 * walk(40, 8))
    assert fact("change_proof", query, reference) > 0.5 * (1 - offset)


def test_reversed_copy_has_the_facts_of_a_forward_one():
    query, reference, _ = planted(is_reversed=True)
    turned = Segment(Span(20, 60), Span(30, 70), 0.5, is_reversed=True)
    facts = describe_segments(map_pair(query, reference), [turned, SEGMENT])
    place = FACTS.index("agreement")
    assert facts[0, place] > 0.9 > facts[1, place]


def test_facts_of_tiny_and_border_segments_are_numbers():
    query, reference = walk(12, 1), walk(9, 2)
    similarity = map_pair(query, reference)
    corners = [
        Segment(Span(0, 1), Span(0, 1), 0.5),
        Segment(Span(11, 12), Span(8, 9), 1.0),
        Segment(Span(0, 12), Span(0, 9), 0.0, is_reversed=True),
        Segment(Span(3.4, 3.9), Span(0.2, 8.7), 0.5),
    ]
    facts = describe_segments(similarity, corners)
    assert facts.shape == (4, len(FACTS))
    assert np.isfinite(facts).all()


def test_rating_survives_json_and_refuses_other_facts():
    rating = by_agreement()
    stored = json.loads(json.dumps(rating.as_dict()))
    assert Rating.from_dict(stored) == rating
    with pytest.raises(ValueError, match="differ in the facts"):
        Rating.from_dict({**stored, "facts": ["other"]})
    older = {name: value for name, value in stored.items() if name != "revision"}
    with pytest.raises(ValueError, match="its facts are of revision 1, ours of 2"):
        Rating.from_dict(older)
    with pytest.raises(ValueError, match="weighs"):
        Rating((0.0,), (1.0,), ((1.0, 1.0),), (1.0, 0.0))


def test_of_two_results_over_the_same_frames_the_one_with_more_to_expect_stays():
    long = Segment(Span(0, 40), Span(0, 40), 0.8)
    part = Segment(Span(10, 20), Span(10, 20), 0.9)
    apart = Segment(Span(60, 70), Span(0, 10), 0.3)
    assert choose_segments([part, apart, long]) == [long, apart]
