"""The detection head of a wide detector on a CPU, with the class only where it can matter.

In: what the pyramid gives for one picture, and the lowest score anybody will ask for.
Out: raw rows (anchors, 6). Where the objectness alone is below that score the class is not computed
and its logit is -inf, so objectness x class is 0: no box at or above the score can be lost.
Narrow detectors and GPUs run the head with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vcl_plugin.model.fast.folded import Activated, FoldedScale
from vcl_plugin.model.fast.winograd import convolve

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
        self.of_box, self.of_class = scale.of_box, scale.of_class
        self.to_box, self.to_class = scale.to_box, scale.to_class

    def __call__(self, x: Tensor, min_score: float) -> Tensor:
        rows = self.to_box(_chain(self.of_box, x))  # (1, 5, side, side)
        labels = torch.full_like(rows[:, :1], -math.inf)
        doubtful = torch.nonzero(rows[0, 4].sigmoid() >= min_score)
        if len(doubtful):
            top, left = doubtful.amin(dim=0).tolist()
            bottom, right = (doubtful.amax(dim=0) + 1).tolist()
            # The window's own border is not the picture's: its outer two cells are thrown away.
            upper, outer = max(top - _HALO, 0), max(left - _HALO, 0)
            window = x[..., upper : bottom + _HALO, outer : right + _HALO]
            found = self.to_class(_chain(self.of_class, window))
            inside = found[..., top - upper :, left - outer :]
            labels[..., top:bottom, left:right] = inside[..., : bottom - top, : right - left]
        return torch.cat([rows, labels], dim=1)[0].flatten(1).T  # (cells, 6)


def _chain(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in blocks:
        assert isinstance(block, Activated)
        x = F.silu(convolve(x, block.weight, block.bias), inplace=True)
    return x
