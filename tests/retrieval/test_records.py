"""Records are frozen, and no wrong one can be made."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.records import Candidate, Fingerprint, Line, Segment, Span

seconds = st.floats(0, 1e6, allow_nan=False)
spans = st.tuples(seconds, seconds).filter(lambda ends: ends[0] < ends[1]).map(lambda e: Span(*e))


@given(st.floats(), st.floats())
def test_a_span_is_either_refused_or_lies_ahead_of_zero_and_forward(start: float, end: float):
    if math.isfinite(start) and math.isfinite(end) and 0 <= start < end:
        assert Span(start, end).seconds == end - start
    else:
        with pytest.raises(ValueError, match=r"^span"):
            Span(start, end)


@given(spans, spans)
def test_overlap_is_mutual_and_never_longer_than_the_shorter_span(one: Span, other: Span):
    assert one.overlap(other) == other.overlap(one)
    assert 0 <= one.overlap(other) <= min(one.seconds, other.seconds)


@given(spans)
def test_a_span_overlaps_itself_wholly(span: Span):
    assert span.overlap(span) == span.seconds


def test_spans_that_touch_do_not_overlap():
    assert Span(0, 5).overlap(Span(5, 9)) == 0


def test_a_span_that_ends_before_it_starts_says_so_with_both_values():
    with pytest.raises(ValueError, match=r"span ends at 2.0 before it starts at 4.0"):
        Span(4.0, 2.0)


@given(spans, spans, st.floats(), st.floats())
def test_a_segment_has_a_score_within_one_and_a_positive_speed(
    query: Span, reference: Span, score: float, speed: float
):
    if 0 <= score <= 1 and 0 < speed < math.inf:
        assert Segment(query, reference, score, speed=speed).score == score
    else:
        with pytest.raises(ValueError, match=r"^segment"):
            Segment(query, reference, score, speed=speed)


@given(spans, spans, st.floats(0, 1), st.booleans(), st.floats(0.01, 100))
def test_a_segment_can_be_read_back_from_its_columns(
    query: Span, reference: Span, score: float, is_reversed: bool, speed: float
):
    segment = Segment(query, reference, score, is_reversed, speed)
    row = segment.as_dict()
    q_start, r_start, q_end, r_end = segment.box
    assert segment == Segment(
        Span(q_start, q_end),
        Span(r_start, r_end),
        row["score"],
        row["is_reversed"],
        row["speed"],
    )
    assert (row["query_start"], row["query_end"]) == (q_start, q_end)
    assert (row["reference_start"], row["reference_end"]) == (r_start, r_end)


def test_records_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Span(0, 1).start = 3  # type: ignore[misc]


def test_every_field_of_a_fingerprint_changes_its_key():
    plain = Fingerprint("lite0", "abc", 256, 1.0, "squash224")
    others = [
        dataclasses.replace(plain, name="lite1"),
        dataclasses.replace(plain, weights="abd"),
        dataclasses.replace(plain, dimension=128),
        dataclasses.replace(plain, fps=2.0),
        dataclasses.replace(plain, preprocessing="crop224"),
    ]
    assert len({plain.key, *(each.key for each in others)}) == 6
    assert plain.key.startswith("lite0-")
    assert str(plain) == plain.key


@pytest.mark.parametrize(
    "change", [{"name": "../x"}, {"name": ""}, {"dimension": 0}, {"fps": 0.0}, {"fps": math.nan}]
)
def test_a_fingerprint_that_names_no_folder_or_no_vectors_is_refused(change: dict):
    with pytest.raises(ValueError, match="fingerprint"):
        dataclasses.replace(Fingerprint("lite0", "abc", 256, 1.0, "squash224"), **change)


def test_ranks_count_from_one():
    with pytest.raises(ValueError, match="rank 0"):
        Candidate("q", "r", 0, 0.5)


# Copies that exist: not a microsecond long, not a thousand times as fast.
sides = st.tuples(st.floats(0, 1e5), st.floats(0.5, 1e4)).map(lambda e: Span(e[0], e[0] + e[1]))
copies = st.builds(Segment, sides, sides, st.just(0.5), st.booleans())


@given(copies)
def test_a_line_leads_from_corner_to_corner_of_its_segment(copy: Segment):
    first, last = copy.reference.start, copy.reference.end
    if copy.is_reversed:
        first, last = last, first
    assert copy.line.reference_at(copy.query.start) == first
    assert copy.line.reference_at(copy.query.end) == pytest.approx(last)
    assert copy.line.query_at(first) == pytest.approx(copy.query.start)
    assert copy.line.query_at(last) == pytest.approx(copy.query.end)
    assert copy.line.is_reversed == copy.is_reversed
    assert copy.line.speed == pytest.approx(1 / copy.line.pace)


@given(copies, st.floats(-1e3, 1e5))
def test_a_line_there_and_back_is_where_it_started(copy: Segment, second: float):
    there_and_back = copy.line.query_at(copy.line.reference_at(second))
    assert there_and_back == pytest.approx(second, rel=1e-6, abs=1e-3)


@given(copies, sides)
def test_time_runs_backwards_along_a_reversed_line_alone(copy: Segment, later: Span):
    rise = copy.line.reference_at(later.end) - copy.line.reference_at(later.start)
    assert (rise < 0) == copy.is_reversed


def test_a_line_answers_many_seconds_at_once_as_it_answers_one():
    line = Segment(Span(10, 20), Span(40, 60), 0.5, is_reversed=True).line
    asked = np.array([8.0, 10.0, 15.0])
    assert line.reference_at(asked).tolist() == [line.reference_at(each) for each in asked]
    assert line.query_at(asked).tolist() == [line.query_at(each) for each in asked]


@pytest.mark.parametrize("ends", [(4, 0, 4, 9), (5, 0, 4, 9), (0, 3, 9, 3), (0, math.inf, 9, 3)])
def test_a_line_that_stands_still_or_leads_nowhere_is_refused(ends):
    with pytest.raises(ValueError, match=r"^line"):
        Line(*ends)


@given(copies)
def test_a_segment_survives_its_row(copy: Segment):
    assert Segment.from_dict({**copy.as_dict(), "held": None}) == copy
