"""From a video's descriptors to the few vectors that stand for it in the index.

In: descriptors (frames, d), one a second. Out: unit vectors, the seconds each of them covers, and
how much it says. Other poolers share its stretches.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe.views import ViewKind
from retrieval.plugins import Array, Pooled, Pooler
from retrieval.store import StoredDescriptors

SECONDS_A_VECTOR = 4  # on average: a still scene needs fewer, a quick cut more
MAX_SECONDS = 16  # of one stretch, so that a hit still says when
# A black frame or a title card says nothing about the footage around it, but a video made of
# nothing else must still have a vector.
LOW_INFORMATION_WEIGHT = 0.05


class MeanPooler:
    """Weighted means over the whole video and over stretches of it that look alike.

    A short copy vanishes in the mean of a long video; it fills the stretches it was cut from. One
    vector for every four seconds, as windows of eight every four would need, finds copies of three
    seconds nearly as often as comparing all frames does (docs/explanation/retrieval.md).
    """

    name = "mean"

    def __init__(self, seconds: int = SECONDS_A_VECTOR, longest: int = MAX_SECONDS) -> None:
        self.seconds = seconds
        self.longest = longest
        self.fingerprint = f"mean-stretches-{seconds}-{longest}"

    def pool(self, descriptors: Array, low_information: NDArray[np.bool_] | None = None) -> Pooled:
        """The whole video first, then its stretches in time order.

        >>> MeanPooler().pool(np.eye(12, dtype=np.float32)[[0] * 7 + [1] * 5]).spans.tolist()
        [[0.0, 12.0], [0.0, 7.0], [7.0, 12.0]]
        """
        weights = weigh_frames(len(descriptors), low_information)
        spans = cover(descriptors, weights, self.seconds, self.longest)
        # Prefix sums: the cost does not depend on how long the spans are.
        weighted = np.cumsum(descriptors * weights[:, None], axis=0, dtype=np.float64)
        prefix = np.concatenate([np.zeros((1, descriptors.shape[1])), weighted])
        sums = prefix[spans[:, 1]] - prefix[spans[:, 0]]
        return Pooled(unit(sums), spans.astype(np.float32), weigh_spans(spans, weights))


def pool_query(pooler: Pooler, query: StoredDescriptors) -> Pooled:
    """The vectors to ask an index with: those of the video, then those of each of its parts."""
    found = [pooler.pool(query.descriptors, query.low_information)]
    for run in query.views.runs_of(ViewKind.PART):
        pooled = pooler.pool(run.vectors, query.low_information[run.frames])
        found.append(Pooled(pooled.vectors, pooled.spans + run.frames[0], pooled.weights))
    if len(found) == 1:
        return found[0]
    return Pooled(
        np.concatenate([each.vectors for each in found]),
        np.concatenate([each.spans for each in found]),
        np.concatenate([each.weights for each in found]),
    )


def weigh_frames(frames: int, low_information: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    weights = np.ones(frames, dtype=np.float64)
    if low_information is not None:
        weights[low_information] = LOW_INFORMATION_WEIGHT
    return weights


def weigh_spans(spans: NDArray[np.int64], weights: NDArray[np.float64]) -> Array:
    """How much each span says: the mean weight of its frames."""
    prefix = np.concatenate([[0.0], np.cumsum(weights)])
    means = (prefix[spans[:, 1]] - prefix[spans[:, 0]]) / (spans[:, 1] - spans[:, 0])
    return means.astype(np.float32)


def cover(
    descriptors: Array, weights: NDArray[np.float64], seconds: int, longest: int
) -> NDArray[np.int64]:
    """(vectors, 2): the whole video, and beside it the stretches that the budget allows."""
    frames = len(descriptors)
    stretches = find_stretches(descriptors, weights, max(1, frames // seconds - 1), longest)
    whole = (0, frames)
    return np.array([whole, *(each for each in stretches if each != whole)], dtype=np.int64)


def find_stretches(
    descriptors: Array, weights: NDArray[np.float64], count: int, longest: int
) -> list[tuple[int, int]]:
    """About `count` stretches that cover the video, each of frames as like as can be.

    Neighbours are joined, always the two whose means the join spoils least (Ward's criterion),
    until `count` are left or no two fit into `longest` seconds.
    """
    frames = len(descriptors)
    sums = [
        row * weight for row, weight in zip(descriptors.astype(np.float64), weights, strict=True)
    ]
    mass = weights.tolist()
    end, following, previous = (list(range(start, frames + start)) for start in (1, 1, -1))
    version = [0] * frames  # -1 once joined into the one before

    def offer(one: int, other: int) -> None:
        apart = sums[one] / mass[one] - sums[other] / mass[other]
        cost = mass[one] * mass[other] / (mass[one] + mass[other]) * float(apart @ apart)
        heapq.heappush(heap, (cost, one, other, version[one], version[other]))

    heap: list[tuple[float, int, int, int, int]] = []
    for one in range(frames - 1):
        offer(one, one + 1)
    left = frames
    while left > count and heap:
        _, one, other, *seen = heapq.heappop(heap)
        if [version[one], version[other]] != seen or end[other] - one > longest:
            continue  # an offer from before one of them grew, or one that would grow too long
        sums[one], mass[one] = sums[one] + sums[other], mass[one] + mass[other]
        end[one], following[one] = end[other], following[other]
        version[one], version[other] = version[one] + 1, -1
        left -= 1
        if following[one] < frames:
            previous[following[one]] = one
            offer(one, following[one])
        if previous[one] >= 0:
            offer(previous[one], one)
    return [(start, end[start]) for start in range(frames) if version[start] >= 0]
