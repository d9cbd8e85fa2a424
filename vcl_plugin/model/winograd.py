"""A 3x3 convolution with 2.25 to 4 times fewer multiplications: Winograd's F(4x4, 3x3).

In: an `Activated` 3x3 convolution of stride 1 and a `Plane`. Out: its result, within 1e-4.
Called by `lazy_head` for the wide convolutions of the detection head, which are a third of a paper
sized detector's work; CPU runtimes here multiply them out at the processor's full rate, so that
only fewer multiplications can be faster (Lavin and Gray, "Fast Algorithms for CNNs", 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Plane:
    """A picture with channels last, inside a frame of zeros that whole tiles can read.

    A convolution writes straight into the frame of the next one, so nothing is padded twice.
    """

    framed: Tensor  # (1 + rows + 1, 1 + columns + 1, channels), sides rounded up to whole tiles
    height: int
    width: int

    @classmethod
    def blank(cls, height: int, width: int, channels: int) -> Plane:
        """Room for a picture; only the frame is set, and `close` sets what lies behind it."""
        down, across = -(-height // _OUT), -(-width // _OUT)
        framed = torch.empty(down * _OUT + 2, across * _OUT + 2, channels)
        framed[0] = framed[:, 0] = 0.0
        return cls(framed, height, width)

    @classmethod
    def of(cls, picture: Tensor) -> Plane:
        """A copy of (height, width, channels), of any strides."""
        plane = cls.blank(*picture.shape)
        plane.inside.copy_(picture)
        return plane.close()

    @property
    def inside(self) -> Tensor:
        return self.framed[1 : self.height + 1, 1 : self.width + 1]

    def close(self) -> Plane:
        self.framed[self.height + 1 :] = self.framed[:, self.width + 1 :] = 0.0
        return self


class WinogradConv:
    """`Activated` with a 3x3 kernel of stride 1, from one plane to the next."""

    def __init__(self, layer: Activated) -> None:
        A, G, B = transforms()
        weight = torch.einsum("xi,ocij,yj->xyco", G, layer.weight.double(), G)
        self.weight = weight.reshape(_IN * _IN, *weight.shape[2:]).float().contiguous()
        self.bias = layer.bias
        self.enter = torch.kron(B, B).float()  # (36, 36)
        self.leave = torch.kron(A, A).float()  # (16, 36)

    def __call__(self, x: Plane) -> Plane:
        rows, columns, channels = x.framed.shape
        down, across, outputs = rows // _OUT, columns // _OUT, self.weight.shape[2]
        y = Plane.blank(x.height, x.width, outputs)
        interior = y.framed[1:-1, 1:-1].unflatten(1, (across, _OUT)).unflatten(0, (down, _OUT))
        row, step = columns * channels, max(1, _CACHED_TILES // across)
        for top in range(0, down, step):
            count = min(step, down - top)
            tiles = x.framed.as_strided(
                (_IN, _IN, count, across, channels),
                (row, channels, _OUT * row, _OUT * channels, 1),
                top * _OUT * row,
            )
            seen = self.enter @ tiles.reshape(_IN * _IN, -1)  # (36, tiles * channels)
            mixed = torch.bmm(seen.view(_IN * _IN, count * across, channels), self.weight)
            # Cell (1, 1) reaches every output with weight 1: the cheapest place for the bias.
            mixed[_IN + 1] += self.bias
            left = F.silu(self.leave @ mixed.view(_IN * _IN, -1), inplace=True)
            left = left.view(_OUT, _OUT, count, across, outputs)
            interior[top : top + count].copy_(left.permute(2, 0, 3, 1, 4))
        return y.close()
