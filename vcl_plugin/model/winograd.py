"""A 3x3 convolution with 2.25 to 4 times fewer multiplications: Winograd's F(4x4, 3x3).

In: an `Activated` 3x3 convolution of stride 1. Out: the same values within 1e-4, on one picture.
Called by `lazy_head` for the wide convolutions of the detection head, which are a third of a paper
sized detector's work; CPU runtimes here multiply them out at the processor's full rate, so that
only fewer multiplications can be faster (Lavin and Gray, "Fast Algorithms for CNNs", 2016).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vcl_plugin.model.folded import Activated

# Interpolation at 0, 1, -1, 2, -2 and infinity: six inputs give four outputs of a 3-tap filter.
_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0)
_OUT, _IN = 4, 6
# As many tiles of 128 channels as stay in a core's cache between the three products.
_CACHED_TILES = 100
# Below this many channels the transforms cost more than they save.
MIN_CHANNELS = 128


def _polynomial(roots: list[float]) -> list[float]:
    """Coefficients of prod (x - root), lowest power first."""
    coefficients = [1.0]
    for root in roots:
        shifted = [0.0, *coefficients]
        scaled = [-root * each for each in coefficients] + [0.0]
        coefficients = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def transforms() -> tuple[Tensor, Tensor, Tensor]:
    """A^T (4, 6), G (6, 3) and B^T (6, 6) with conv(d, g) = A^T [(G g) * (B^T d)], in float64."""
    shapes = ((_OUT, _IN), (_IN, 3), (_IN, _IN))
    A, G, B = (torch.zeros(shape, dtype=torch.float64) for shape in shapes)
    for j, point in enumerate(_POINTS):
        others = [each for each in _POINTS if each != point]
        divisor = 1.0
        for each in others:
            divisor *= point - each
        A[:, j] = torch.tensor([point**i for i in range(_OUT)], dtype=torch.float64)
        G[j] = torch.tensor([point**i / divisor for i in range(3)], dtype=torch.float64)
        B[j, :5] = torch.tensor(_polynomial(others), dtype=torch.float64)
    A[-1, -1] = G[-1, -1] = 1.0
    B[-1] = torch.tensor(_polynomial(list(_POINTS)), dtype=torch.float64)
    return A, G, B


class WinogradConv:
    """`Activated` on a picture (height, width, channels), channels last and no batch."""

    def __init__(self, layer: Activated) -> None:
        A, G, B = transforms()
        weight = torch.einsum("xi,ocij,yj->xyco", G, layer.weight.double(), G)
        self.weight = weight.reshape(_IN * _IN, *weight.shape[2:]).float().contiguous()
        self.bias = layer.bias
        self.enter = torch.kron(B, B).float()  # (36, 36)
        self.leave = torch.kron(A, A).float()  # (16, 36)

    def __call__(self, x: Tensor) -> Tensor:
        height, width, channels = x.shape
        down, across = -(-height // _OUT), -(-width // _OUT)
        padded = F.pad(x, (0, 0, 1, 1 + across * _OUT - width, 1, 1 + down * _OUT - height))
        row, outputs = padded.shape[1] * channels, self.weight.shape[2]
        y = torch.empty(down, _OUT, across, _OUT, outputs)
        step = max(1, _CACHED_TILES // across)
        for top in range(0, down, step):
            count = min(step, down - top)
            tiles = padded.as_strided(
                (_IN, _IN, count, across, channels),
                (row, channels, _OUT * row, _OUT * channels, 1),
                padded.storage_offset() + top * _OUT * row,
            )
            seen = self.enter @ tiles.reshape(_IN * _IN, -1)  # (36, tiles * channels)
            mixed = torch.bmm(seen.view(_IN * _IN, count * across, channels), self.weight)
            # Cell (1, 1) reaches every output with weight 1: the cheapest place for the bias.
            mixed[_IN + 1] += self.bias
            left = F.silu(self.leave @ mixed.view(_IN * _IN, -1), inplace=True)
            left = left.view(_OUT, _OUT, count, across, outputs)
            y[top : top + count].copy_(left.permute(2, 0, 3, 1, 4))
        return y.view(down * _OUT, across * _OUT, outputs)[:height, :width]
