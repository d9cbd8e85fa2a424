"""Which cells of the detector answer for which true box: SimOTA, as YOLOX has it.

In: decoded predictions and true boxes of one pair, in map pixels. Out: `Assigned` cells.
Nothing here is differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CANDIDATES = 10  # best overlaps whose sum says how many cells a box may claim
BOX_COST = 3.0
OUTSIDE_COST = 1e5


class Assigned(NamedTuple):
    cells: Tensor  # (k,) indices of anchors
    boxes: Tensor  # (k,) which true box each of them answers for
    ious: Tensor  # (k,)


def box_ious(boxes: Tensor, truth: Tensor) -> Tensor:
    """IoU of (a, 4) with (b, 4), rows cx, cy, w, h: (a, b)."""
    low = torch.maximum(
        boxes[:, None, :2] - boxes[:, None, 2:4] / 2, truth[None, :, :2] - truth[None, :, 2:4] / 2
    )
    high = torch.minimum(
        boxes[:, None, :2] + boxes[:, None, 2:4] / 2, truth[None, :, :2] + truth[None, :, 2:4] / 2
    )
    common = (high - low).clamp(min=0).prod(dim=2)
    areas = boxes[:, 2:4].prod(dim=1)[:, None] + truth[:, 2:4].prod(dim=1)[None]
    return common / (areas - common).clamp(min=1e-9)


@torch.no_grad()
def assign_cells(
    boxes: Tensor, objectness: Tensor, classes: Tensor, truth: Tensor, grid: Tensor, radius: float
) -> Assigned:
    """Each true box takes the cells that already fit it best, as many as fit it well.

    `boxes` (anchors, 4) decoded; `objectness`, `classes` (anchors,) logits; `truth` (k, 4);
    `grid` (anchors, 3) column, row and stride. Only cells inside a true box or within `radius`
    cells of its centre compete; a cell wanted by two boxes goes to the cheaper.
    """
    stride = grid[:, 2:]
    centres = (grid[:, :2] + 0.5) * stride  # (A, 2)
    offset = (centres[:, None] - truth[None, :, :2]).abs()  # (A, k, 2)
    is_inside = (offset < truth[None, :, 2:4] / 2).all(dim=2)  # (A, k)
    is_central = (offset < radius * stride[:, None]).all(dim=2)
    rivals = (is_inside | is_central).any(dim=1).nonzero().squeeze(1)
    if not len(rivals):
        nothing = rivals.new_zeros(0)
        return Assigned(nothing, nothing, boxes.new_zeros(0))
    ious = box_ious(boxes[rivals], truth)  # (C, k)
    confidence = (objectness[rivals].sigmoid() * classes[rivals].sigmoid()).sqrt()
    cost = F.binary_cross_entropy(
        confidence.clamp(1e-6, 1 - 1e-6), torch.ones_like(confidence), reduction="none"
    )[:, None]
    cost = cost - BOX_COST * (ious + 1e-8).log()
    cost = cost + OUTSIDE_COST * ~(is_inside & is_central)[rivals]
    wanted = torch.zeros_like(ious, dtype=torch.bool)
    best = ious.topk(min(CANDIDATES, len(ious)), dim=0).values.sum(dim=0)
    counts = best.int().clamp(min=1, max=len(ious))
    for k in range(truth.shape[0]):
        wanted[cost[:, k].topk(int(counts[k]), largest=False).indices, k] = True
    contested = wanted.sum(dim=1) > 1
    if contested.any():
        cheapest = cost[contested].argmin(dim=1)
        wanted[contested] = F.one_hot(cheapest, truth.shape[0]).bool()
    cells, which = wanted.nonzero(as_tuple=True)
    return Assigned(rivals[cells], which, ious[cells, which])
