"""Thresholds and calibration, fitted on answers whose best values are known."""

from __future__ import annotations

import numpy as np
import pytest

from vcl_plugin.evaluation.metrics import JudgedPair
from vcl_plugin.localize.boxes import iou_matrix
from vcl_plugin.training.validation import (
    RIGHT_IOU,
    above,
    calibrate,
    choose_threshold,
    fit_calibration,
)

TRUE, FALSE = (0.0, 0.0, 10.0, 10.0), (50.0, 50.0, 60.0, 60.0)


def judged(score: float, is_right: bool, number: int) -> JudgedPair:
    found = TRUE if is_right else FALSE
    return JudgedPair(f"q{number}", f"r{number}", [found], [TRUE], [score])


def expected_calibration_error(
    pairs: list[JudgedPair], calibration: tuple[float, float] = (1.0, 0.0)
) -> float:
    """Mean distance between what scores promise and how often they are right, over ten bins."""
    scores = np.array([calibrate(score, calibration) for pair in pairs for score in pair.scores])
    rights = np.array(
        [ious.max() >= RIGHT_IOU for pair in pairs for ious in iou_matrix(pair.found, pair.truth)]
    )
    place = np.minimum((scores * 10).astype(int), 9)
    bins = [place == each for each in range(10) if (place == each).any()]
    return sum(each.mean() * abs(scores[each].mean() - rights[each].mean()) for each in bins)


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


def test_calibration_moves_scores_without_reordering_them():
    scores = [calibrate(score, (0.5, 1.0)) for score in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert scores == sorted(scores)
    assert scores[2] == pytest.approx(1 / (1 + np.exp(-1.0)))
