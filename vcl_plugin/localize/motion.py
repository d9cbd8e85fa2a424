"""Which way and how fast a copy runs, read from the similarity of its frames.

In: a frame-to-frame similarity map (query rows, reference columns) and a box in it.
Out: whether time runs backwards there, and reference seconds per query second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.records import Line

MIN_SPEED, MAX_SPEED = 0.1, 10.0
# Neighbouring speeds differ by 7 %: over 60 s that is 4 s, inside the band that `_vote` sums up.
SPEEDS = np.geomspace(1 / 6, 6, 54)
# A still scene supports every direction alike; only a clearly better fit backwards is a reversal.
REVERSAL_MARGIN = 1.2
MAX_SIDE = 256


def estimate_motion(
    similarity: NDArray[np.floating[Any]], box: Sequence[float]
) -> tuple[bool, float]:
    """`(is_reversed, speed)` of the copy inside `box` = `[q_start, r_start, q_end, r_end]`.

    The best match of every row and column votes for the line it may lie on; the line with most
    votes is then fitted to its voters, so stray matches and parallel diagonals do not bend it.
    Where the map shows no line (a still scene, a handful of frames) the box's own sides answer.

    >>> estimate_motion(np.eye(40)[:, ::-1], (0, 0, 40, 40))
    (True, 1.0)
    """
    q0, r0 = (max(0, int(np.floor(value))) for value in box[:2])
    q1, r1 = (int(np.ceil(value)) for value in box[2:])
    inside = np.asarray(similarity)[q0:q1, r0:r1]
    of_box = float(np.clip(Line(*box).speed, MIN_SPEED, MAX_SPEED))
    if min(inside.shape) < 3:
        return False, of_box
    q, r, weights = _matches(inside)
    if len(q) < 4 or not weights.any():
        return False, of_box
    forward = _vote(q, r, weights, SPEEDS)
    backward = _vote(q, r, weights, -SPEEDS)
    is_reversed = backward[0] > REVERSAL_MARGIN * forward[0]
    votes, slope, offset = backward if is_reversed else forward
    if votes < 0.25 * weights.sum():
        return bool(is_reversed), of_box
    fitted = _fit(q, r, weights, slope, offset)
    speed = of_box if fitted is None or fitted * slope <= 0 else abs(fitted)
    return bool(is_reversed), round(float(np.clip(speed, MIN_SPEED, MAX_SPEED)), 4)


def _matches(inside: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows, columns and weights of each row's and each column's best cells.

    A long map is first reduced by block maxima: a diagonal survives that, and the cost is bounded.
    """
    q_step, r_step = (-(-side // MAX_SIDE) for side in inside.shape)
    reduced = _block_maxima(inside, q_step, r_step)
    background = np.median(reduced)
    q = np.concatenate([np.arange(reduced.shape[0]), reduced.argmax(axis=0)])
    r = np.concatenate([reduced.argmax(axis=1), np.arange(reduced.shape[1])])
    cells = np.unique(q * reduced.shape[1] + r)
    q, r = np.divmod(cells, reduced.shape[1])
    weights = np.clip(reduced[q, r] - background, 0, None)
    top = np.quantile(weights, 0.9)
    weights = np.clip(weights / top, 0, 1) if top > 0 else np.zeros_like(weights)
    # Block centres, in frames.
    return (q + 0.5) * q_step, (r + 0.5) * r_step, weights


def _block_maxima(inside: NDArray[Any], q_step: int, r_step: int) -> NDArray[Any]:
    if q_step == r_step == 1:
        return inside
    rows = np.arange(0, inside.shape[0], q_step)
    columns = np.arange(0, inside.shape[1], r_step)
    blocks = np.maximum.reduceat(inside, rows, axis=0)
    reduced: NDArray[Any] = np.maximum.reduceat(blocks, columns, axis=1)
    return reduced


def _vote(
    q: NDArray[Any], r: NDArray[Any], weights: NDArray[Any], slopes: NDArray[Any]
) -> tuple[float, float, float]:
    """The most voted line `r = offset + slope * q` as (votes, slope, offset).

    A band is one and a half steps of the coarser axis wide on each side, so that a line sampled at
    4x keeps its votes together; three bins of half that width are summed to avoid a bin's edge.
    """
    step = max(np.diff(np.unique(q)).min(initial=np.inf), np.diff(np.unique(r)).min(initial=np.inf))
    step = step if np.isfinite(step) else 1.0
    best = (-1.0, 1.0, 0.0)
    for slope in slopes:
        offsets = r - slope * q
        width = step * max(1.0, abs(slope))
        low = offsets.min()
        bins = ((offsets - low) / width).astype(np.intp)
        votes = np.bincount(bins, weights, minlength=3)
        band = np.convolve(votes, np.ones(3), mode="same")
        # Equal votes go to the speed nearest 1: the loop's order must not decide.
        top = int(band.argmax())
        value = float(band[top]) * (1.0 - 0.01 * abs(np.log(abs(slope))))
        if value > best[0]:
            best = (value, float(slope), float(low + (top + 0.5) * width))
    return best


def _fit(
    q: NDArray[Any], r: NDArray[Any], weights: NDArray[Any], slope: float, offset: float
) -> float | None:
    """Slope of the weighted least-squares line through the voters, or None if they are too few.

    Fitted in three rounds: each narrows the band around the line of the round before.
    """
    for width in (4.0, 3.0, 2.0):
        band = width * max(1.0, abs(slope)) * max(1.0, float(np.diff(np.unique(q)).min()))
        voters = (np.abs(r - offset - slope * q) <= band) & (weights > 0)
        if len(np.unique(q[voters])) < 4 or len(np.unique(r[voters])) < 2:
            return None
        w = weights[voters] / weights[voters].sum()
        q_mean, r_mean = float(w @ q[voters]), float(w @ r[voters])
        spread = float(w @ (q[voters] - q_mean) ** 2)
        slope = float(w @ ((q[voters] - q_mean) * (r[voters] - r_mean))) / spread
        offset = r_mean - slope * q_mean
    return slope
