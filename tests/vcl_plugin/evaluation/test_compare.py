"""The comparison of methods: thresholds by rule, and an interval that knows its ignorance."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from vcl_plugin.evaluation.metrics import JudgedPair, summarize

SOURCE = Path(__file__).parents[3] / "benchmarks" / "compare.py"
TRUTH = (0.0, 0.0, 20.0, 20.0)


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def answers(right: float, false_alarms: int, count: int = 200) -> list[JudgedPair]:
    """Copies found to a share of `right`, and negatives of which some are taken for copies."""
    pairs = []
    for number in range(count):
        box = (0.0, 0.0, 20.0 * right + number % 3, 20.0 * right + number % 3)
        pairs.append(JudgedPair(f"q{number}", "r", [box], [TRUTH], [0.5 + number % 50 / 100]))
        found = [TRUTH] if number < false_alarms else []
        pairs.append(JudgedPair(f"n{number}", "r", found, [], [0.3] * len(found)))
    return pairs


def test_few_false_alarms_cost_a_higher_threshold(compare):
    chosen = compare.choose_thresholds(answers(0.9, false_alarms=30))
    assert chosen["best F"] >= 0.31
    kept = summarize(compare.cut(answers(0.9, false_alarms=30), chosen["few false alarms"]))
    assert kept.far == 0
    # A single false alarm among 200 cannot prove a rate below 2 %; none can.
    few, more = (compare.bound_false_alarms(answers(0.9, alarms)) for alarms in (1, 3))
    assert few < compare.MAX_FAR < more


def test_lead_over_a_worse_method_excludes_zero_and_over_oneself_is_zero(compare):
    good, poor = answers(0.9, 0), answers(0.6, 0)
    lead, low, high = compare.draw_leads(good, poor)
    assert 0 < low < lead < high
    assert lead == pytest.approx(summarize(good).f_score - summarize(poor).f_score)
    assert compare.draw_leads(good, good) == (0, 0, 0)


def test_luck_on_few_pairs_has_an_interval_around_zero(compare):
    draw = np.random.default_rng(3)

    def noisy() -> list[JudgedPair]:
        shares = draw.uniform(0.3, 1.0, 20)
        return [
            JudgedPair(f"q{i}", "r", [(0, 0, 20 * share, 20 * share)], [TRUTH], [0.5])
            for i, share in enumerate(shares)
        ]

    _, low, high = compare.draw_leads(noisy(), noisy())
    assert low < 0 < high


def test_parameters_are_read_by_method(compare):
    assert compare.read_parameters(["dtw.max_gap=4", "tn.centring=0.5"]) == {
        "dtw": {"max_gap": 4},
        "tn": {"centring": 0.5},
    }
