"""Parts of a picture: a film shown inside a frame, beside another film or above it.

In: frames. Out: boxes with straight edges through the picture; `Views` of single pictures.
`tracker` follows the boxes over time; `scenes` cuts out the middle of frames.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.describe.descriptors import Descriptor
from retrieval.describe.pictures import Frames, check_frames, number_pictures, squash
from retrieval.describe.views import NO_VIEWS, ViewKind, Views, number_runs

Box = tuple[float, float, float, float]

SIDE = 128  # resolution at which edges are sought
STEP = 10.0  # grey levels across an edge
MIN_SIDE = 0.25  # of the picture
MAX_AREA = 0.9  # a part nearly as large as the picture tells nothing new
MIN_SUPPORT = 0.75  # share of each inner side that is an edge
MIN_LONE_SUPPORT = 0.9  # where only one side lies inside, as in a split screen; horizons do not
CUT_EDGE, NATURAL_EDGE = 0.95, 0.4  # chance of an edge pixel on a cut, and on a natural line
MAX_LINES = 10
MAX_BOXES = 40


def embed_parts(descriptor: Descriptor, pictures: Frames, max_parts: int = 3) -> Views:
    """Up to `max_parts` parts of each picture that looks framed or split, each a run of its own.

    For pictures that are no video's. A plain picture costs nothing more.
    """
    owners, cuts = [], []
    for number, picture in enumerate(check_frames(pictures)):
        for box in propose_parts(picture)[:max_parts]:
            owners.append(number)
            cuts.append(squash(cut(picture, box), descriptor.frame_size))
    if not cuts:
        return NO_VIEWS
    vectors = descriptor.embed(np.stack(cuts))
    return number_runs(
        ViewKind.PART, (([owner], row[None]) for owner, row in zip(owners, vectors, strict=True))
    )


def best_over_views(
    whole: NDArray[np.float32], views: Views, reference: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Similarity (pictures, references): of each picture, whole or a view, what matches best."""
    best: NDArray[np.float32] = whole @ reference.T
    np.maximum.at(best, views.frames, views.vectors @ reference.T)
    return best


def cut(frame: NDArray[np.uint8], box: Box) -> NDArray[np.uint8]:
    height, width = frame.shape[:2]
    left, top, right, bottom = box
    return frame[
        round(top * height) : max(round(top * height) + 1, round(bottom * height)),
        round(left * width) : max(round(left * width) + 1, round(right * width)),
    ]


def embed_cuts(descriptor: Descriptor, cuts: Frames) -> NDArray[np.float32]:
    """Descriptors of cuts of one size. (n, 256); a still is scaled and described once."""
    shown = number_pictures(cuts)
    firsts = np.flatnonzero(np.diff(shown, prepend=-1))
    pictures = [squash(cuts[each], descriptor.frame_size) for each in firsts]
    return descriptor.embed(np.stack(pictures))[shown]


def propose_parts(frame: NDArray[np.uint8]) -> list[Box]:
    """Boxes (left, top, right, bottom as shares), best supported first; empty for a plain frame.

    A box's inner sides must be straight edges over most of their length; a side on the picture's
    border needs no support, but at least one side must lie inside.
    """
    small = Image.fromarray(np.ascontiguousarray(frame)).resize((SIDE, SIDE))
    # Colours first: a maximum over three planes is ten times cheaper than over threes of bytes.
    picture = np.asarray(small).transpose(2, 0, 1).astype(np.int16)
    across = (np.abs(picture[:, :, 1:] - picture[:, :, :-1]) > STEP).any(axis=0)
    down = (np.abs(picture[:, 1:] - picture[:, :-1]) > STEP).any(axis=0)
    columns, rows = _find_lines(across), _find_lines(down.T)
    if len(columns) + len(rows) == 0:
        return []
    return _score_boxes(across, down, columns, rows)


def _find_lines(edges: NDArray[np.bool_]) -> list[int]:
    """Columns of `edges` with the longest unbroken runs; neighbours of a chosen one are left."""
    rows = np.arange(len(edges), dtype=np.int16)[:, None]
    last_gap = np.maximum.accumulate(np.where(edges, np.int16(-1), rows), axis=0)
    longest = (rows - last_gap).max(axis=0)
    lines: list[int] = []
    for column in np.argsort(-longest, kind="stable").tolist():
        if longest[column] < 0.6 * MIN_SIDE * SIDE or len(lines) == MAX_LINES:
            break
        # The edge after column c is the line c + 1.
        if all(abs(column + 1 - line) > 3 for line in lines):
            lines.append(column + 1)
    return lines


def _score_boxes(
    across: NDArray[np.bool_], down: NDArray[np.bool_], columns: list[int], rows: list[int]
) -> list[Box]:
    xs, ys = np.array([0, *sorted(columns), SIDE]), np.array([0, *sorted(rows), SIDE])
    # Every box that is wide and tall enough, by its lines: (x0, x1) down, (y0, y1) across.
    x0, x1 = (each[:, None] for each in _far_pairs(xs))
    y0, y1 = _far_pairs(ys)
    upright = _support(across, xs, ys)  # (x, y0, y1)
    level = _support(down.T, ys, xs)  # (y, x0, x1)
    sides = np.stack(  # (4, x pairs, y pairs)
        [upright[x0, y0, y1], upright[x1, y0, y1], level[y0, x0, x1], level[y1, x0, x1]]
    )
    inner = ~np.isnan(sides)
    broad, tall = xs[x1] - xs[x0], ys[y1] - ys[y0]
    weakest = np.where(inner, sides, 1.0).min(axis=0)
    count = inner.sum(axis=0)
    is_supported = weakest >= np.where(count == 1, MIN_LONE_SUPPORT, MIN_SUPPORT)
    keep = is_supported & (count > 0) & (broad * tall <= MAX_AREA * SIDE**2)
    if not keep.any():
        return []
    # Log odds that a side was cut by an editor, who leaves an edge nearly everywhere, and not
    # drawn by nature; long and clean sides outweigh many that are so-so.
    odds = sides * math.log(CUT_EDGE / NATURAL_EDGE)
    odds += (1 - sides) * math.log((1 - CUT_EDGE) / (1 - NATURAL_EDGE))
    odds[:2] *= tall
    odds[2:] *= broad
    evidence = np.where(inner, odds, 0.0).sum(axis=0)
    places = np.argwhere(keep)
    order = np.argsort(-evidence[keep], kind="stable")[:MAX_BOXES]
    lefts, rights, tops, bottoms = xs[x0[:, 0]], xs[x1[:, 0]], ys[y0], ys[y1]
    return _drop_repeats(
        [
            (lefts[x] / SIDE, tops[y] / SIDE, rights[x] / SIDE, bottoms[y] / SIDE)
            for x, y in places[order]
        ]
    )


def _far_pairs(lines: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Numbers of every two lines that lie at least a box's shortest side apart."""
    first, second = np.nonzero(lines[None, :] - lines[:, None] >= MIN_SIDE * SIDE)
    return first, second


def _support(
    edges: NDArray[np.bool_], lines: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Share of edge along each line between each two ends; NaN on the picture's border."""
    summed = np.pad(np.cumsum(edges, axis=0), ((1, 0), (1, 1)))[ends][:, lines]  # (ends, lines)
    lengths = np.maximum(1, ends[None, :] - ends[:, None])
    share = (summed.T[:, None, :] - summed.T[:, :, None]) / lengths
    share[(lines == 0) | (lines == SIDE)] = np.nan
    return share


def _drop_repeats(boxes: list[Box]) -> list[Box]:
    kept: list[Box] = []
    for box in boxes:
        if all(box_overlap(box, other) < 0.8 for other in kept):
            kept.append(box)
    return kept


def box_overlap(one: Box, other: Box) -> float:
    """Intersection over union."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, wide) * max(0.0, high)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return shared / (areas - shared)
