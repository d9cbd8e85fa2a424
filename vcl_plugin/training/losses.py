"""The loss of a batch: boxes, objectness, class, video level and tokens.

In: `TransVCLOutput` and the `TrainingPair`s behind it. Out: a `Terms` tuple, its sum to minimise.
Equations 6 to 9 of the paper; every weight is a field of `recipe.Loss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vcl_plugin.model.transvcl import TransVCLOutput
from vcl_plugin.training.assignment import assign_cells
from vcl_plugin.training.augment import TrainingPair
from vcl_plugin.training.recipe import Loss


class Terms(NamedTuple):
    total: Tensor
    box: Tensor
    objectness: Tensor
    classes: Tensor
    video: Tensor
    token: Tensor


def measure_loss(
    output: TransVCLOutput,
    pairs: Sequence[TrainingPair],
    grid: Tensor,
    map_size: int,
    choices: Loss,
    queue: TokenQueue | None = None,
) -> Terms:
    """All terms of a batch. A pair without boxes takes part in the video term alone, and one of
    which not even that is known in none."""
    box, objectness, classes = _segment_terms(output, pairs, grid, map_size, choices)
    video = _video_term(output.video_logit, pairs, choices)
    token = video.new_zeros(())
    if choices.token > 0 and queue is not None:
        token = queue.contrast(output, pairs, choices)
    total = (
        choices.box * box
        + choices.objectness * objectness
        + choices.classes * classes
        + choices.video * video
        + choices.token * token
    )
    return Terms(total, box, objectness, classes, video, token)


def _segment_terms(
    output: TransVCLOutput,
    pairs: Sequence[TrainingPair],
    grid: Tensor,
    map_size: int,
    choices: Loss,
) -> tuple[Tensor, Tensor, Tensor]:
    """L_reg, L_obj and the class term: `loss_s + lambda_u * loss_u`, as in the release.

    Pairs marked by people and pairs marked by a teacher are two groups, and the sums of each are
    divided by its own number of cells that answer for a box. With one number for both that counted
    weights, a weight would stand in numerator and denominator.
    """
    box = objectness = classes = output.raw.new_zeros(()).float()
    for is_taught in (False, True):
        group = [i for i, pair in enumerate(pairs) if pair.is_taught == is_taught]
        sums = _group_terms(output, pairs, group, grid, map_size, choices)
        share = 1 / max(sums.cells, 1)
        box = box + share * sums.box
        objectness = objectness + share * sums.objectness
        classes = classes + share * sums.classes
    return box, objectness, classes


class _Sums(NamedTuple):
    """Weighted terms of a group, not yet divided by the number of cells that answer for a box."""

    box: Tensor
    objectness: Tensor
    classes: Tensor
    cells: int


def _group_terms(
    output: TransVCLOutput,
    pairs: Sequence[TrainingPair],
    group: Sequence[int],
    grid: Tensor,
    map_size: int,
    choices: Loss,
) -> _Sums:
    raw, boxes = output.raw.float(), output.boxes.float()
    box = objectness = classes = raw.new_zeros(())
    count = 0
    for i in group:
        pair = pairs[i]
        if pair.boxes is None:
            continue
        target = torch.zeros_like(raw[i, :, 4])
        counts = torch.ones_like(target)
        if pair.doubtful is not None and len(pair.doubtful):
            doubtful = boxes_in_pixels(pair, pair.doubtful, map_size).to(raw.device)
            counts[cells_inside(grid, doubtful)] = 0.0
        if len(pair.boxes):
            truth = boxes_in_pixels(pair, pair.boxes, map_size).to(raw.device)
            found = assign_cells(
                boxes[i, :, :4].detach(), raw[i, :, 4], raw[i, :, 5], truth, grid,
                choices.centre_radius,
            )  # fmt: skip
            if len(found.cells):
                ious = _paired_ious(boxes[i, found.cells, :4], truth[found.boxes])
                misfit = 1 - ious.square() if choices.box_form == "square" else 1 - ious
                box = box + pair.weight * misfit.sum()
                classes = classes + pair.weight * F.binary_cross_entropy_with_logits(
                    raw[i, found.cells, 5], found.ious.clamp(0, 1), reduction="sum"
                )
                target[found.cells] = counts[found.cells] = 1.0
                count += len(found.cells)
        objectness = objectness + pair.weight * F.binary_cross_entropy_with_logits(
            raw[i, :, 4], target, weight=counts, reduction="sum"
        )
    return _Sums(box, objectness, classes, count)


def _paired_ious(boxes: Tensor, truth: Tensor) -> Tensor:
    """IoU of each row with the row beside it; differentiable."""
    low = torch.maximum(boxes[:, :2] - boxes[:, 2:] / 2, truth[:, :2] - truth[:, 2:] / 2)
    high = torch.minimum(boxes[:, :2] + boxes[:, 2:] / 2, truth[:, :2] + truth[:, 2:] / 2)
    common = (high - low).clamp(min=0).prod(dim=1)
    union = boxes[:, 2:].prod(dim=1) + truth[:, 2:].prod(dim=1) - common
    return common / union.clamp(min=1e-9)


def cells_inside(grid: Tensor, boxes: Tensor) -> Tensor:
    """Which cells have their centre in one of the boxes (cx, cy, w, h in pixels). (A,)"""
    centres = (grid[:, :2] + 0.5) * grid[:, 2:]
    distance = (centres[:, None] - boxes[None, :, :2]).abs()  # (A, k, 2)
    return (distance <= boxes[None, :, 2:] / 2).all(dim=2).any(dim=1)


def boxes_in_pixels(pair: TrainingPair, boxes: NDArray[np.float32], map_size: int) -> Tensor:
    """Boxes as cx, cy, w, h on the detector's picture: x is the reference, y the query."""
    scale = np.array([len(pair.query), len(pair.reference)] * 2, np.float32) / map_size
    q0, r0, q1, r1 = torch.from_numpy(boxes / scale).float().unbind(dim=1)
    return torch.stack([(r0 + r1) / 2, (q0 + q1) / 2, r1 - r0, q1 - q0], dim=1)


def _video_term(logits: Tensor, pairs: Sequence[TrainingPair], choices: Loss) -> Tensor:
    """Binary cross-entropy on "is this a copy?", for the pairs of which it is known (eq. 7)."""
    known = [i for i, pair in enumerate(pairs) if pair.is_copy is not None]
    if not known:
        return logits.new_zeros(())
    target = logits.new_tensor([float(bool(pairs[i].is_copy)) for i in known])
    weight = logits.new_tensor([pairs[i].weight for i in known])
    terms = weight * F.binary_cross_entropy_with_logits(
        logits[known].float(), target, reduction="none"
    )
    return terms.sum() if choices.video_reduction == "sum" else terms.mean()


class TokenQueue:
    """Class tokens of references seen lately: what a query's token must tell its own one from.

    The token after the self layer knows one video only, so what it learns here makes it an index
    vector. State of the run: it is saved with the checkpoint.
    """

    def __init__(self, size: int, dimension: int) -> None:
        self.tokens = torch.zeros(size, dimension)
        self.filled = 0
        self.next = 0

    def contrast(
        self, output: TransVCLOutput, pairs: Sequence[TrainingPair], choices: Loss
    ) -> Tensor:
        queries = F.normalize(output.query_token.float(), dim=1)
        references = F.normalize(output.reference_token.float(), dim=1)
        copies = [i for i, pair in enumerate(pairs) if pair.is_copy]
        others = self.tokens[: self.filled].to(references.device)
        self._remember(references.detach().cpu())
        if not copies:
            return queries.new_zeros(())
        logits = queries[copies] @ torch.cat([references, others]).T / choices.token_temperature
        return F.cross_entropy(logits, torch.tensor(copies, device=logits.device))

    def _remember(self, tokens: Tensor) -> None:
        for token in tokens[: len(self.tokens)]:
            self.tokens[self.next] = token
            self.next = (self.next + 1) % len(self.tokens)
            self.filled = min(self.filled + 1, len(self.tokens))

    def state(self) -> dict[str, Tensor | int]:
        return {"tokens": self.tokens, "filled": self.filled, "next": self.next}

    def load(self, state: dict[str, Tensor | int]) -> None:
        tokens, filled, following = state["tokens"], state["filled"], state["next"]
        assert isinstance(tokens, Tensor)
        self.tokens, self.filled, self.next = tokens.clone(), int(filled), int(following)
