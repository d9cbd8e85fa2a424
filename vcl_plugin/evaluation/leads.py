"""By how much one method leads another on the same pairs, and how sure that is.

In: the same pairs as two methods answered them. Out: a `Lead` in F with its interval.
A paired bootstrap: pairs are drawn anew many times, the same ones for both methods, so that what
makes a pair hard for either falls out of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcl_plugin.evaluation.metrics import JudgedPair, summarize_measures

DRAWS = 2000
MIDDLE = (0.025, 0.975)


@dataclass(frozen=True)
class Lead:
    """Difference in F: as measured, and the middle 95 % of the draws."""

    f_score: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return dict(vars(self))


def measure_lead(ours: Sequence[JudgedPair], theirs: Sequence[JudgedPair], seed: int = 0) -> Lead:
    """How far our F is above theirs, on the same pairs in the same order."""
    if [_key(pair) for pair in ours] != [_key(pair) for pair in theirs]:
        raise ValueError("a lead is measured on the same pairs in the same order")
    sides = [_measures(side) for side in (ours, theirs)]
    draw = np.random.default_rng(seed)

    def lead(chosen: NDArray[np.intp]) -> float:
        one, other = (summarize_measures(*side[:, chosen])[2] for side in sides)
        return one - other

    leads = [lead(draw.integers(0, len(ours), len(ours))) for _ in range(DRAWS)]
    low, high = np.quantile(leads, MIDDLE)
    return Lead(lead(np.arange(len(ours))), float(low), float(high))


def _key(pair: JudgedPair) -> tuple[str, str]:
    return pair.query_id, pair.reference_id


def _measures(pairs: Sequence[JudgedPair]) -> NDArray[np.float64]:
    """(2, pairs): recalls, precisions."""
    return np.array([[pair.recall for pair in pairs], [pair.precision for pair in pairs]])
