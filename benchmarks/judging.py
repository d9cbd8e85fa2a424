"""Similarities of edited pictures and originals judged: R@1, micro-AP, and how sure either is.

In: similarity (edited, originals), whose each edited picture is, and what is no mistake. Out:
numbers by edit, and the interval in which a difference between two descriptors lies.

An interval is a paired bootstrap: originals are drawn with replacement, all seconds of a film
together, and both descriptors are judged on the same draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Flags = NDArray[np.bool_]

CANDIDATES = 20  # of each edited picture, for micro-AP
DRAWS = 1000


@dataclass(frozen=True)
class Ranking:
    """Candidates of many edited pictures in one order, best first, and which of them are right."""

    asked: NDArray[np.int64]  # which edited picture each candidate belongs to
    is_right: Flags

    @classmethod
    def of(cls, scores: Array, truth: Flags) -> Ranking:
        count = min(CANDIDATES, scores.shape[1])
        best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        kept = np.take_along_axis(scores, best, axis=1).ravel()
        order = np.argsort(-kept, kind="stable")
        asked = np.repeat(np.arange(len(scores)), count)
        return cls(asked[order], np.take_along_axis(truth, best, axis=1).ravel()[order])

    def micro_average_precision(self, weights: NDArray[np.float64]) -> float:
        """`weights`: how often each edited picture counts."""
        counted = weights[self.asked]
        right = counted * self.is_right
        precision = np.cumsum(right) / np.maximum(np.cumsum(counted), 1e-9)
        return float((precision * right).sum() / weights.sum())


@dataclass(frozen=True)
class Judged:
    """One descriptor on one group of edited pictures."""

    hits: Flags  # the nearest original is the right one
    ranking: Ranking

    @classmethod
    def of(cls, hits: Flags, scores: Array, truth: Flags) -> Judged:
        return cls(hits, Ranking.of(scores, truth))

    def recall(self, weights: NDArray[np.float64] | None = None) -> float:
        return float(np.average(self.hits, weights=weights))

    def micro_average_precision(self, weights: NDArray[np.float64] | None = None) -> float:
        ones = np.ones(len(self.hits)) if weights is None else weights
        return self.ranking.micro_average_precision(ones)


@dataclass(frozen=True)
class Difference:
    """How much better the new one is, and the middle 95 % of what other originals would say."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def compare(
    old: Judged, new: Judged, groups: Sequence[str], seed: int = 0
) -> tuple[Difference, Difference]:
    """The differences of R@1 and of micro-AP; `groups` are drawn whole, one name a picture."""
    _, number = np.unique(np.asarray(groups), return_inverse=True)
    rng, count = np.random.default_rng(seed), int(number.max()) + 1
    drawn = []
    for _ in range(DRAWS):
        weights = np.bincount(rng.integers(count, size=count), minlength=count)[number]
        if weights.any():
            drawn.append(_differ(old, new, weights.astype(np.float64)))
    values = _differ(old, new, np.ones(len(number)))
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    recall, precision = (Difference(*each) for each in zip(values, low, high, strict=True))
    return recall, precision


def _differ(old: Judged, new: Judged, weights: NDArray[np.float64]) -> tuple[float, float]:
    return (
        new.recall(weights) - old.recall(weights),
        new.micro_average_precision(weights) - old.micro_average_precision(weights),
    )
