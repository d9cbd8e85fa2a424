"""What is left of a match when stretches of its reference are excluded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval.records import Segment, Span
from vcl_plugin.guard import cut_segment

WHOLE = Segment(Span(10, 20), Span(100, 120), 0.9)
BACKWARDS = Segment(Span(10, 20), Span(100, 120), 0.9, is_reversed=True)


def test_an_excluded_middle_leaves_both_sides_at_the_pace_of_the_copy() -> None:
    left = cut_segment(WHOLE, [Span(104, 110)])
    assert [each.query for each in left] == [Span(10, 12), Span(15, 20)]
    assert [each.reference for each in left] == [Span(100, 104), Span(110, 120)]


def test_a_reversed_copy_loses_its_end_when_the_reference_loses_its_start() -> None:
    [left] = cut_segment(BACKWARDS, [Span(90, 104)])
    assert (left.query, left.reference) == (Span(10, 18), Span(104, 120))


def test_nothing_is_left_when_everything_is_excluded() -> None:
    assert cut_segment(WHOLE, [Span(0, 110), Span(105, 130)]) == []


@given(st.lists(st.tuples(st.integers(90, 125), st.integers(1, 20)), max_size=4), st.booleans())
def test_each_second_is_kept_unless_it_is_excluded(
    spans: list[tuple[int, int]], is_reversed: bool
) -> None:
    excluded = [Span(start, start + length) for start, length in spans]
    left = cut_segment(BACKWARDS if is_reversed else WHOLE, excluded)
    kept = {
        second
        for each in left
        for second in range(int(each.reference.start), 121)
        if second < each.reference.end
    }
    assert kept == {
        second
        for second in range(100, 120)
        if not any(span.start <= second < span.end for span in excluded)
    }
    assert all(10 <= each.query.start < each.query.end <= 20 for each in left)
