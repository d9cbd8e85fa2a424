"""Boxes of a pair, vectorised: overlap, suppression, clamping, stitching across tiles.

In: float arrays (n, 4), rows `[q_start, r_start, q_end, r_end]` in seconds (or any one unit).
Out: arrays again; nothing here knows a network, a segment or a video.
Used wherever boxes are compared: here, in `align/`, `evaluation/` and `training/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retrieval.records import Line

Boxes = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]


def as_boxes(rows: ArrayLike) -> Boxes:
    """Rows as (n, 4) floats; an empty list is zero boxes. Floating types are kept."""
    boxes = np.asarray(rows)
    if boxes.dtype.kind != "f":
        boxes = boxes.astype(np.float64)
    if boxes.size == 0:
        return np.zeros((0, 4), boxes.dtype)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes have shape {boxes.shape}; they are rows of four numbers")
    return boxes


def box_areas(boxes: ArrayLike) -> Boxes:
    """Area of each box; one that ends before it starts has none.

    >>> box_areas([[0, 0, 2, 3]])
    array([6.])
    """
    found = as_boxes(boxes)
    sides = np.clip(found[:, 2:] - found[:, :2], 0, None)
    areas: Boxes = sides[:, 0] * sides[:, 1]
    return areas


def intersection_matrix(left: ArrayLike, right: ArrayLike) -> Boxes:
    """Common area of every box of `left` (rows) with every box of `right` (columns)."""
    a, b = as_boxes(left), as_boxes(right)
    starts = np.maximum(a[:, None, :2], b[None, :, :2])
    ends = np.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = np.clip(ends - starts, 0, None)
    common: Boxes = sides[..., 0] * sides[..., 1]
    return common


def iou_matrix(left: ArrayLike, right: ArrayLike) -> Boxes:
    """Intersection over union of every box of `left` with every box of `right`.

    >>> iou_matrix([[0, 0, 2, 2]], [[0, 0, 2, 2], [1, 0, 3, 2]]).round(3)
    array([[1.   , 0.333]])
    """
    common = intersection_matrix(left, right)
    union = box_areas(left)[:, None] + box_areas(right)[None, :] - common
    ious: Boxes = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return ious


def nms(boxes: ArrayLike, scores: ArrayLike, iou_threshold: float) -> Indices:
    """Indices of the boxes kept, best first: greedy, dropping what overlaps a kept box by more.

    Equal scores keep their input order, so the result does not depend on the sort.

    >>> nms([[0, 0, 9, 9], [0, 0, 9, 8], [20, 20, 30, 30]], [0.5, 0.9, 0.4], 0.3)
    array([1, 2])
    """
    found, weights = as_boxes(boxes), np.asarray(scores)
    if len(found) != len(weights):
        raise ValueError(f"{len(found)} boxes came with {len(weights)} scores")
    order = np.argsort(-weights, kind="stable")
    areas = box_areas(found)
    kept: list[int] = []
    while order.size:
        best, order = order[0], order[1:]
        kept.append(int(best))
        starts = np.maximum(found[best, :2], found[order, :2])
        sides = np.clip(np.minimum(found[best, 2:], found[order, 2:]) - starts, 0, None)
        common = sides[:, 0] * sides[:, 1]
        union = areas[best] + areas[order] - common
        # Written as a product so that two empty boxes, whose union is 0, never divide.
        order = order[common <= iou_threshold * union]
    return np.asarray(kept, dtype=np.intp)


def clamp_boxes(
    boxes: ArrayLike, query_end: float, reference_end: float, min_side: float = 1e-6
) -> tuple[Boxes, Indices]:
    """Boxes cut to both videos, and the indices of those that are still boxes afterwards.

    >>> clamped, kept = clamp_boxes([[-3, 2, 5, 99], [12, 0, 14, 5]], 10, 20)
    >>> clamped, kept
    (array([[ 0.,  2.,  5., 20.]]), array([0]))
    """
    limits = [query_end, reference_end, query_end, reference_end]
    clamped = np.clip(as_boxes(boxes), 0, np.asarray(limits))
    is_box = ((clamped[:, 2:] - clamped[:, :2]) >= min_side).all(axis=1)
    return clamped[is_box], np.flatnonzero(is_box)


def tile_starts(frames: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin so that they cover `frames`, neighbours sharing at least `overlap`.

    The last tile ends with the video instead of hanging over it, so no tile is a sliver.

    >>> tile_starts(2400, 1200, 200), tile_starts(900, 1200, 200)
    ([0, 600, 1200], [0])
    """
    if not 0 <= overlap < tile:
        raise ValueError(f"overlap {overlap} must be at least 0 and below the tile of {tile}")
    if frames <= tile:
        return [0]
    count = -(-(frames - overlap) // (tile - overlap))
    return [round(i * (frames - tile) / (count - 1)) for i in range(count)]


def stitch_boxes(
    boxes: ArrayLike,
    scores: ArrayLike,
    tiles: ArrayLike,
    extent: Sequence[float],
    max_gap: float = 5.0,
    tolerance: float = 5.0,
) -> tuple[Boxes, NDArray[Any]]:
    """Join the pieces into which tile borders cut a copy; all other boxes pass unchanged.

    `tiles` holds for each box the tile (again `[q_start, r_start, q_end, r_end]`) that saw it and
    `extent` the `(query, reference)` lengths. Two boxes of different tiles are pieces of one copy
    when a border inside the videos cut at least one of them, they meet in time on both sides, and
    they lie on one diagonal, rising or falling. A joined box carries its best piece's score.
    """
    found, weights, seen = as_boxes(boxes), np.asarray(scores), as_boxes(tiles)
    is_cut = _is_cut(found, seen, extent, max_gap)
    if not is_cut.any():
        return found, weights
    is_foreign = (seen[:, None] != seen[None, :]).any(axis=2)
    starts = np.maximum(found[:, None, :2], found[None, :, :2])
    ends = np.minimum(found[:, None, 2:], found[None, :, 2:])
    does_meet = (starts - ends <= max_gap).all(axis=2)
    is_piece = is_foreign & does_meet & (is_cut[:, None] | is_cut[None, :])
    joined = is_piece & _share_diagonal(found, tolerance)
    groups = _components(joined)
    merged = np.empty((groups.max() + 1, 4), found.dtype)
    best = np.empty(len(merged), weights.dtype)
    for group in range(len(merged)):
        members = groups == group
        merged[group, :2] = found[members, :2].min(axis=0)
        merged[group, 2:] = found[members, 2:].max(axis=0)
        best[group] = weights[members].max()
    return merged, best


def _is_cut(boxes: Boxes, tiles: Boxes, extent: Sequence[float], margin: float) -> NDArray[Any]:
    """Whether a box reaches a border of its tile that is no border of the video."""
    at_start = (boxes[:, :2] - tiles[:, :2] <= margin) & (tiles[:, :2] > 0)
    at_end = (tiles[:, 2:] - boxes[:, 2:] <= margin) & (tiles[:, 2:] < np.asarray(extent))
    return np.asarray((at_start | at_end).any(axis=1))


def _share_diagonal(boxes: Boxes, tolerance: float) -> NDArray[Any]:
    """(n, n): the shorter box of a pair runs along the longer one's diagonal, prolonged.

    A box's ends are loose in proportion to its length and its speed is only as good as its ends,
    so the tolerance grows with the shorter box and with the distance from the longer one.
    """
    q_start, r_start, q_end, r_end = boxes.astype(np.float64).T
    # A box without extent has no line: it gets the shortest one.
    q_end, r_end = np.maximum(q_end, q_start + 1e-6), np.maximum(r_end, r_start + 1e-6)
    room = np.maximum(tolerance, 0.15 * (q_end - q_start))
    along = np.zeros((len(boxes), len(boxes)), bool)  # row: the box whose line is followed
    for row in range(len(boxes)):
        rising = Line(q_start[row], r_start[row], q_end[row], r_end[row])
        falling = Line(q_start[row], r_end[row], q_end[row], r_start[row])
        is_rising = _is_near(rising, q_start, r_start, room) & _is_near(rising, q_end, r_end, room)
        is_falling = _is_near(falling, q_start, r_end, room) & _is_near(
            falling, q_end, r_start, room
        )
        along[row] = is_rising | is_falling
    lengths = q_end - q_start
    along &= lengths[:, None] >= lengths
    both: NDArray[Any] = along | along.T
    return both


def _is_near(line: Line, query: Boxes, reference: Boxes, room: Boxes) -> NDArray[np.bool_]:
    """Which corners (query, reference) lie on the line, give or take `room` seconds."""
    travelled = query - line.query_start
    beyond = np.maximum(-travelled, travelled - (line.query_end - line.query_start)).clip(0)
    error = np.abs(reference - line.reference_at(query)) / max(line.speed, 1)
    is_near: NDArray[np.bool_] = error <= room + 0.1 * beyond
    return is_near


def _components(adjacent: NDArray[Any]) -> Indices:
    """Number the connected groups of a symmetric boolean matrix, in order of first member."""
    groups = np.full(len(adjacent), -1, dtype=np.intp)
    count = 0
    for seed in range(len(adjacent)):
        if groups[seed] >= 0:
            continue
        frontier = np.asarray([seed])
        while frontier.size:
            groups[frontier] = count
            reached = adjacent[frontier].any(axis=0)
            frontier = np.flatnonzero(reached & (groups < 0))
        count += 1
    return groups
