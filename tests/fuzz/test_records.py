"""Spans, segments and fingerprints: whatever they are given, they are right or refuse."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import assume, example, given

from retrieval.records import Fingerprint, Segment, Span
from tests.fuzz.examples import fuzzed, numbers, texts


@fuzzed
@given(numbers, numbers, numbers, numbers)
@example(0, 10**400, 0, 1)  # once an OverflowError: a whole number beyond every float
@example(0.0, 5e-324, 0.0, 1e308)
def test_a_span_is_finite_and_ascending_or_a_value_error(
    start: float, end: float, other_start: float, other_end: float
) -> None:
    try:
        span, other = Span(start, end), Span(other_start, other_end)
    except ValueError as error:
        assert str(error)
        return
    assert 0 <= span.start < span.end
    assert math.isfinite(span.seconds)
    assert span.seconds > 0
    shared = span.overlap(other)
    assert 0 <= shared <= min(span.seconds, other.seconds)
    assert shared == other.overlap(span)


@fuzzed
@given(numbers, numbers)
@example(0.5, 10**400)
def test_a_segment_is_plain_json_or_a_value_error(score: float, speed: float) -> None:
    try:
        segment = Segment(Span(0, 1), Span(2, 3), score, speed=speed)
    except ValueError:
        return
    assert json.loads(json.dumps(segment.as_dict(), allow_nan=False))["score"] == score


@fuzzed
@given(texts, texts, numbers)
@example("lite0", "w", math.inf)  # once a fingerprint of infinitely many frames a second
def test_the_key_of_a_fingerprint_is_a_file_name(name: str, weights: str, fps: float) -> None:
    assume(max(weights + name, default="") < "\ud800")
    try:
        key = Fingerprint(name, weights, 256, fps, "none").key
    except ValueError:
        return
    assert not set(key) & set("/\\\0\n. ")
    assert key not in ("", "..")


def test_a_fingerprint_has_a_finite_rate() -> None:
    with pytest.raises(ValueError, match="fps inf"):
        Fingerprint("lite0", "w", 256, math.inf, "none")
