"""Thresholds and calibration, fitted on answers whose best values are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vcl_plugin.evaluation.metrics import JudgedPair
from vcl_plugin.localize.detection import calibrate
from vcl_plugin.training.validation import (
    above,
    bound_false_alarms,
    choose_threshold,
    expected_calibration_error,
    fit_calibration,
    prefer_point,
    upper_bound,
)

TRUE, FALSE = (0.0, 0.0, 10.0, 10.0), (50.0, 50.0, 60.0, 60.0)


def judged(score: float, is_right: bool, number: int) -> JudgedPair:
    found = TRUE if is_right else FALSE
    return JudgedPair(f"q{number}", f"r{number}", [found], [TRUE], [score])


def test_threshold_parts_right_from_wrong():
    pairs = [judged(0.5 + 0.01 * n, True, n) for n in range(10)]
    pairs += [JudgedPair(f"n{n}", f"m{n}", [FALSE], [], [0.1 + 0.02 * n]) for n in range(10)]
    threshold, summary = choose_threshold(pairs)
    assert 0.28 < threshold <= 0.5
    assert summary.f_score == pytest.approx(1.0, abs=1e-4)
    assert summary.far == 0


def test_above_keeps_boxes_with_their_scores():
    pair = JudgedPair("q", "r", [TRUE, FALSE], [TRUE], [0.9, 0.2])
    kept = above(pair, 0.5)
    assert list(kept.found) == [TRUE]
    assert list(kept.scores) == [0.9]


def test_calibration_makes_scores_mean_what_they_say():
    draw = np.random.default_rng(0)
    pairs = []
    for number in range(3000):
        score = float(draw.uniform(0.01, 0.6))
        is_right = draw.random() < calibrate(score, (2.0, 3.0))  # far more often than it says
        pairs.append(judged(score, bool(is_right), number))
    slope, offset = fit_calibration(pairs)
    assert (slope, offset) == pytest.approx((2.0, 3.0), rel=0.15)
    assert expected_calibration_error(pairs) > 0.3
    assert expected_calibration_error(pairs, (slope, offset)) < 0.03


def test_a_few_sure_mistakes_do_not_throw_the_fit():
    """Newton's full step jumped between two points here and came back with nothing."""
    pairs = [judged(0.999999, n >= 40, n) for n in range(390)]
    pairs += [judged(0.3, n < 30, 400 + n) for n in range(90)]
    slope, offset = fit_calibration(pairs)
    assert 0.05 < slope < 0.5
    assert expected_calibration_error(pairs, (slope, offset)) < 0.02


def test_nothing_to_fit_leaves_scores_alone():
    assert fit_calibration([]) == (1.0, 0.0)
    assert fit_calibration([judged(0.4, True, 1)]) == (1.0, 0.0)
    assert expected_calibration_error([]) == 0


def test_few_negatives_allow_fewer_alarms_than_many():
    assert upper_bound(0.01, 100) > upper_bound(0.01, 1000) > 0.01


@pytest.mark.parametrize(
    ("f_scores", "bounds", "chosen"),
    [
        ((0.90, 0.95, 0.80), (0.01, 0.05, 0.01), 0),  # the best F breaks the limit
        ((0.90, 0.895, 0.88), (0.019, 0.012, 0.001), 1),  # as good, and fewer false alarms
        ((0.90, 0.90), (0.01, 0.01), 0),
        ((0.90, 0.50), (0.30, 0.20), 1),  # none keeps the limit: the fewest
    ],
)
def test_the_point_is_as_good_as_the_best_and_accuses_least(f_scores, bounds, chosen):
    assert prefer_point(f_scores, bounds, max_far=0.02) == chosen


def negatives(alarms: dict[str, int], each: int = 20) -> list[JudgedPair]:
    """So many pairs of each source, of which some are taken for copies."""
    box = (0.0, 0.0, 9.0, 9.0)
    return [
        JudgedPair(f"q{number}", f"r{source}", [box] if number < count else [], [], source=source)
        for source, count in alarms.items()
        for number in range(each)
    ]


def test_false_alarms_of_one_film_are_worse_than_as_many_of_all_films():
    spread, heaped = (
        bound_false_alarms(negatives(dict(zip("abcd", counts, strict=True))))
        for counts in ((2, 2, 2, 2), (8, 0, 0, 0))
    )
    assert spread == upper_bound(8 / 80, 80), "as if there were eighty films"
    assert heaped > 0.2 > spread
    unknown = [replace(each, source="") for each in negatives({"a": 8, "b": 0, "c": 0, "d": 0})]
    assert bound_false_alarms(unknown) == spread
    assert bound_false_alarms([]) == 0
