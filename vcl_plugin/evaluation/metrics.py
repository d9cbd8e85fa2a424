"""The referee: how well found boxes match true ones, by VCSL's protocol and VSC2022's.

In: boxes `[q_start, r_start, q_end, r_end]` found and true, pair by pair. Out: fractions.
Nothing here knows a file.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcl_plugin.localize.boxes import as_boxes, intersection_matrix

Box = Sequence[float]
EPSILON = 1e-6  # VCSL adds it to every length, so a perfect answer scores 0.9999998 and not 1
COPY_SHARES = ("0-20%", "20-40%", "40-60%", "60-80%", "80-100%")
LENGTHS = {5.0: "00-05 s", 10.0: "05-10 s", 20.0: "10-20 s", 60.0: "20-60 s", math.inf: "60 s-"}
SPEEDS = {0.8: "0-0.8", 1.25: "0.8-1.25", math.inf: "1.25-"}


@dataclass(frozen=True)
class JudgedPair:
    """One pair with the boxes found in it and the true ones; `scores` go with `found`."""

    query_id: str
    reference_id: str
    found: Sequence[Box]
    truth: Sequence[Box]
    scores: Sequence[float] = ()
    query_frames: int = 0
    reference_frames: int = 0
    topic: str = ""
    kind: str = ""
    precision: float = field(init=False)
    recall: float = field(init=False)

    def __post_init__(self) -> None:
        precision, recall = measure_pair(self.found, self.truth)
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "recall", recall)

    @property
    def is_copy(self) -> bool:
        return len(self.truth) > 0


@dataclass(frozen=True)
class Summary:
    """What one method reached on one set of pairs; all fractions."""

    recall: float
    precision: float
    f_score: float
    frr: float
    far: float
    video_f_score: float
    pairs: int

    def as_dict(self) -> dict[str, float | int]:
        return dict(vars(self))


def measure_pair(found: Sequence[Box], truth: Sequence[Box]) -> tuple[float, float]:
    """`(precision, recall)` of one pair.

    Precision is the share of the found boxes' lengths that true boxes cover, on the query axis
    times the same on the reference axis; recall the other way round. Only boxes that meet as
    rectangles cover each other, so the right seconds of the query beside the wrong seconds of the
    reference earn nothing. An empty side leaves a ratio undefined, and VCSL decides: nothing found
    is never imprecise (precision 1), nothing to find is never missed (recall 1).

    >>> measure_pair([[0, 0, 5, 10]], [[0, 0, 10, 10]])[1].__round__(3)
    0.5
    """
    if not len(found) or not len(truth):
        return float(not len(found)), float(not len(truth))
    return _covered_share(found, truth), _covered_share(truth, found)


def _covered_share(boxes: Sequence[Box], others: Sequence[Box]) -> float:
    one, other = as_boxes(boxes), as_boxes(others)
    meets = intersection_matrix(one, other) > 0
    share = 1.0
    for axis in (0, 1):
        covered = 0.0
        for box, partners in zip(one, meets, strict=True):
            starts = np.maximum(box[axis], other[partners, axis])
            ends = np.minimum(box[axis + 2], other[partners, axis + 2])
            covered += union_length(zip(starts.tolist(), ends.tolist(), strict=True))
        share *= covered / (float((one[:, axis + 2] - one[:, axis]).sum()) + EPSILON)
    return share


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Length that spans cover together, overlaps counted once.

    >>> union_length([(0, 4), (3, 5), (8, 9)])
    6.0
    """
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def summarize(pairs: Sequence[JudgedPair], copies_per_negative: float | None = None) -> Summary:
    """Overall recall, precision and F, and the video-level error rates.

    The means leave out values that are exactly 1: a recall of 1 only says that there was nothing
    to find and a precision of 1 that nothing was found (see `EPSILON`), so each pair counts
    where it says something. When all are left out, the mean is the 1 that they all are.

    FRR is the share of copies with nothing found, FAR the share of other pairs with something
    found. VCSL's own script does not count the two kinds but assumes their ratio; give
    `copies_per_negative` to do the same.
    """
    recall, precision, f_score = summarize_measures(
        np.array([pair.recall for pair in pairs]), np.array([pair.precision for pair in pairs])
    )
    rejected = sum(1 for pair in pairs if pair.is_copy and not len(pair.found))
    accepted = sum(1 for pair in pairs if not pair.is_copy and len(pair.found))
    copies: float = sum(1 for pair in pairs if pair.is_copy)
    if copies_per_negative is not None:
        copies = len(pairs) * copies_per_negative / (1 + copies_per_negative)
    others = len(pairs) - copies
    frr = rejected / copies if copies else 0.0
    far = accepted / others if others else 0.0
    return Summary(
        recall=recall,
        precision=precision,
        f_score=f_score,
        frr=frr,
        far=far,
        video_f_score=harmonic_mean(1 - frr, 1 - far),
        pairs=len(pairs),
    )


def summarize_measures(
    recalls: NDArray[Any], precisions: NDArray[Any]
) -> tuple[float, float, float]:
    """Overall recall, precision and F of pairs, as `summarize` explains them."""
    recall, precision = (_mean_below_one(each) for each in (recalls, precisions))
    return recall, precision, harmonic_mean(precision, recall)


def _mean_below_one(values: NDArray[Any]) -> float:
    counted = values[values != 1]
    return float(counted.mean()) if len(counted) else 1.0


def harmonic_mean(one: float, other: float) -> float:
    """
    >>> harmonic_mean(1.0, 0.5).__round__(4)
    0.6667
    """
    return 2 * one * other / (one + other) if one + other > 0 else 0.0


def macro_over_queries(pairs: Sequence[JudgedPair]) -> tuple[float, float]:
    """`(recall, precision)`, averaged within each query first, so that a query with many
    references counts no more than one with few. Here VCSL leaves nothing out."""
    by_query: dict[str, list[JudgedPair]] = defaultdict(list)
    for pair in pairs:
        by_query[pair.query_id].append(pair)
    if not by_query:
        return 1.0, 1.0
    recalls = [np.mean([pair.recall for pair in group]) for group in by_query.values()]
    precisions = [np.mean([pair.precision for pair in group]) for group in by_query.values()]
    return float(np.mean(recalls)), float(np.mean(precisions))


def matching_average_precision(pairs: Sequence[JudgedPair]) -> float:
    """VSC2022's matching metric: average precision over all found segments, best score first.

    At every score the segments so far give a precision and a recall, each the geometric mean of
    its value on the query axis and on the reference axis, in seconds summed over all pairs. Equal
    scores enter together. A true box counts as met on both axes once any found box meets it.
    """
    total = np.array([sum(_union_lengths(pair.truth)[axis] for pair in pairs) for axis in (0, 1)])
    if not total.all():
        return 0.0
    ranked = [
        (-score, number, place)
        for number, pair in enumerate(pairs)
        for place, score in enumerate(pair.scores)
    ]
    so_far: dict[int, list[Box]] = defaultdict(list)
    lengths: dict[int, NDArray[Any]] = {}
    claimed, right = np.zeros(2), np.zeros(2)
    recall = average = 0.0
    for _, group in groupby(sorted(ranked), key=lambda each: each[0]):
        touched = set()
        for _, number, place in group:
            so_far[number].append(pairs[number].found[place])
            touched.add(number)
        for number in touched:
            before = lengths.get(number, np.zeros((2, 2)))
            lengths[number] = _claimed_and_right(so_far[number], pairs[number].truth)
            claimed += lengths[number][0] - before[0]
            right += lengths[number][1] - before[1]
        reached = float(np.sqrt(np.prod(right / total)))
        precision = float(np.sqrt(np.prod(right / claimed))) if claimed.all() else 0.0
        average += precision * (reached - recall)
        recall = reached
    return average


def _claimed_and_right(found: Sequence[Box], truth: Sequence[Box]) -> NDArray[Any]:
    """(2, 2): seconds found, and those of them that are true, on either axis."""
    claimed = _union_lengths(found)
    meets = (intersection_matrix(found, truth) > 0).any(axis=0)
    met = as_boxes(truth)[meets]
    both = _union_lengths([*found, *met.tolist()])
    return np.array([claimed, claimed + _union_lengths(met.tolist()) - both])


def _union_lengths(boxes: Sequence[Box]) -> NDArray[Any]:
    return np.array([union_length((box[i], box[i + 2]) for box in boxes) for i in (0, 1)])


def copy_share(pair: JudgedPair) -> float:
    """Copied seconds as a fraction of the pair's mean video length, both sides averaged."""
    frames = pair.query_frames + pair.reference_frames
    return min(float(_union_lengths(pair.truth).sum()) / frames, 1.0) if frames else 0.0


def share_group(pair: JudgedPair) -> str | None:
    """The fifth of `COPY_SHARES` a copy falls into; pairs that are no copy are in none."""
    if not pair.is_copy:
        return None
    return COPY_SHARES[min(int(copy_share(pair) * 5), 4)]


def length_group(pair: JudgedPair) -> str | None:
    """The group of `LENGTHS` of the shortest copy in a pair, in seconds of the query."""
    if not pair.is_copy:
        return None
    shortest = min(box[2] - box[0] for box in pair.truth)
    return next(name for limit, name in LENGTHS.items() if shortest < limit)


def speed_group(pair: JudgedPair) -> str | None:
    """The group of `SPEEDS` of the copy in a pair that is farthest from normal speed."""
    if not pair.is_copy:
        return None
    speeds = [(box[3] - box[1]) / max(box[2] - box[0], EPSILON) for box in pair.truth]
    farthest = max(speeds, key=lambda each: abs(math.log(max(each, EPSILON))))
    return next(name for limit, name in SPEEDS.items() if farthest < limit)


def summarize_by(
    pairs: Sequence[JudgedPair], key: Callable[[JudgedPair], Hashable | None]
) -> dict[str, Summary]:
    """A summary per group, groups in order; a pair whose key is None or empty is in none."""
    groups: dict[str, list[JudgedPair]] = defaultdict(list)
    for pair in pairs:
        if group := key(pair):
            groups[str(group)].append(pair)
    return {name: summarize(groups[name]) for name in sorted(groups)}
