"""The lead of one method over another has an interval that knows its ignorance."""

from __future__ import annotations

import numpy as np
import pytest

from vcl_plugin.evaluation.leads import measure_lead
from vcl_plugin.evaluation.metrics import JudgedPair, summarize

TRUTH = (0.0, 0.0, 20.0, 20.0)


def answers(right: float, count: int = 200) -> list[JudgedPair]:
    """Copies found to a share of `right`, and as many pairs without one."""
    pairs = []
    for number in range(count):
        side = 20.0 * right + number % 3
        pairs.append(JudgedPair(f"q{number}", "r", [(0.0, 0.0, side, side)], [TRUTH]))
        pairs.append(JudgedPair(f"n{number}", "r", [], []))
    return pairs


def test_lead_over_a_worse_method_excludes_zero_and_over_oneself_is_zero() -> None:
    good, poor = answers(0.9), answers(0.6)
    lead = measure_lead(good, poor)
    assert 0 < lead.low < lead.f_score < lead.high
    assert lead.f_score == pytest.approx(summarize(good).f_score - summarize(poor).f_score)
    assert measure_lead(good, good).as_dict() == {"f_score": 0, "low": 0, "high": 0}


def test_luck_on_few_pairs_has_an_interval_around_zero() -> None:
    draw = np.random.default_rng(3)

    def noisy() -> list[JudgedPair]:
        shares = draw.uniform(0.3, 1.0, 20)
        return [
            JudgedPair(f"q{i}", "r", [(0, 0, 20 * share, 20 * share)], [TRUTH])
            for i, share in enumerate(shares)
        ]

    lead = measure_lead(noisy(), noisy())
    assert lead.low < 0 < lead.high


def test_other_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="same pairs"):
        measure_lead(answers(0.9, 4), answers(0.9, 5))
