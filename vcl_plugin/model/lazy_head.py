"""The detection head of a wide detector on a CPU, with the class only where it can matter.

In: what the pyramid gives for one picture, and the lowest score anybody will ask for.
Out: raw rows (anchors, 6). Where the objectness alone is below that score the class is not computed
and its logit is -inf, so objectness x class is 0: no box at or above the score can be lost.
Called by `frozen`; narrow detectors and GPUs run the head with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vcl_plugin.model.folded import Activated, FoldedScale
from vcl_plugin.model.winograd import Plane, WinogradConv

# Two 3x3 convolutions reach two cells far.
_HALO = 2


class LazyHead:
    def __init__(self, scales: nn.ModuleList) -> None:
        self.scales = [LazyScale(each) for each in scales if isinstance(each, FoldedScale)]

    def __call__(self, maps: Sequence[Tensor], min_score: float) -> Tensor:
        """`maps` are (1, channels, side, side) at strides 8, 16 and 32."""
        rows = [scale(x, min_score) for scale, x in zip(self.scales, maps, strict=True)]
        return torch.cat(rows)


class LazyScale:
    def __init__(self, scale: FoldedScale) -> None:
        self.of_box = [_winograd(block) for block in scale.of_box]
        self.of_class = [_winograd(block) for block in scale.of_class]
        self.to_box, self.to_class = scale.to_box, scale.to_class

    def __call__(self, x: Tensor, min_score: float) -> Tensor:
        plane = Plane.of(x[0].permute(1, 2, 0))  # (side, side, channels)
        rows = _predict(_chain(self.of_box, plane), self.to_box)  # (side, side, 5)
        labels = torch.full((*rows.shape[:2], 1), -math.inf)
        doubtful = torch.nonzero(rows[..., 4].sigmoid() >= min_score)
        if len(doubtful):
            top, left = doubtful.amin(dim=0).tolist()
            bottom, right = (doubtful.amax(dim=0) + 1).tolist()
            # The window's own border is not the picture's: its outer two cells are thrown away.
            upper, outer = max(top - _HALO, 0), max(left - _HALO, 0)
            seen = plane.inside[upper : bottom + _HALO, outer : right + _HALO]
            window = plane if seen.shape == plane.inside.shape else Plane.of(seen)
            found = _predict(_chain(self.of_class, window), self.to_class)
            inside = found[top - upper :, left - outer :][: bottom - top, : right - left]
            labels[top:bottom, left:right] = inside
        return torch.cat([rows, labels], dim=2).flatten(0, 1)  # (cells, 6)


def _winograd(block: nn.Module) -> WinogradConv:
    assert isinstance(block, Activated)
    return WinogradConv(block)


def _chain(blocks: Sequence[WinogradConv], plane: Plane) -> Plane:
    for block in blocks:
        plane = block(plane)
    return plane


def _predict(plane: Plane, prediction: nn.Conv2d) -> Tensor:
    """A 1x1 convolution on channels-last data is one product; the frame is cut off afterwards."""
    assert prediction.bias is not None
    flat = torch.addmm(prediction.bias, plane.framed.flatten(0, 1), prediction.weight.flatten(1).T)
    framed = flat.view(*plane.framed.shape[:2], -1)
    return framed[1 : plane.height + 1, 1 : plane.width + 1]
