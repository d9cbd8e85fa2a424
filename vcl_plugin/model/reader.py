"""The line reader: a small network that says of every cell of a pair whether it is copied.

In: streams of a pair (`localize.streams`), (batch, streams, query seconds, reference seconds).
Out: logits (batch, query seconds, reference seconds); a copy is a line of high ones.

A U-shaped network at one cell a second. Going down, cells are pooled two by two, so that a cell
far down sees minutes of both videos; going up, what was seen there meets the fine cells again.
A copy of two seconds and one of two minutes are both read at full resolution.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


@dataclass(frozen=True)
class ReaderConfig:
    """Size of the network. `streams` is the number of input maps."""

    streams: int = 9
    widths: tuple[int, ...] = (12, 24, 48, 64, 96)  # channels of each level, the finest first
    dimension: int = 256  # of the descriptors that the streams are made from

    def __post_init__(self) -> None:
        numbers = (self.streams, self.dimension, *self.widths)
        if not 2 <= len(self.widths) <= 8 or not all(0 < each <= 4096 for each in numbers):
            raise ValueError(f"{self} describes no line reader")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ReaderConfig:
        values = json.loads(text)
        return cls(**{**values, "widths": tuple(values["widths"])})


class LineReader(nn.Module):
    """Streams of a pair to the logit of each cell."""

    def __init__(self, config: ReaderConfig | None = None) -> None:
        super().__init__()
        self.config = config or ReaderConfig()
        widths = self.config.widths
        self.down = nn.ModuleList(
            nn.Sequential(convolve(before, width), convolve(width, width))
            for before, width in zip((self.config.streams, *widths), widths, strict=False)
        )
        self.up = nn.ModuleList(
            convolve(below + width, width)
            for below, width in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.last = nn.Conv2d(widths[0], 1, 1)
        nn.init.constant_(self.last.bias, -4.0)  # type: ignore[arg-type]

    def forward(self, streams: Tensor) -> Tensor:
        rows, columns = streams.shape[-2:]
        # 1. Sides that can be halved as often as there are levels.
        step = 2 ** (len(self.down) - 1)
        x = F.pad(streams, (0, -columns % step, 0, -rows % step))
        # 2. Down: each level sees twice as far.
        fine: list[Tensor] = []
        for level in self.down[:-1]:
            x = level(x)
            fine.append(x)
            x = F.max_pool2d(x, 2)  # (batch, width, rows / 2, columns / 2)
        x = self.down[-1](x)
        # 3. Up: beside what was seen from afar, the cells as they were on the way down.
        for level, skipped in zip(self.up, reversed(fine), strict=True):
            wide = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = level(torch.cat([wide, skipped], dim=1))
        # 4. One logit a cell.
        logits: Tensor = self.last(x)[:, 0, :rows, :columns]
        return logits

    def fold_norms(self) -> LineReader:
        """The same network for inference, its batch norms folded into the convolutions."""
        folded = LineReader(self.config)
        folded.load_state_dict(self.state_dict())
        folded.eval()
        for block in folded.modules():
            if isinstance(block, nn.Sequential) and isinstance(block[0], nn.Conv2d):
                block[0] = fuse_conv_bn_eval(block[0], block[1])  # type: ignore[arg-type]
                block[1] = nn.Identity()
        return folded.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload]


def convolve(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )
