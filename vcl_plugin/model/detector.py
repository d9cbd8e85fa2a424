"""Copied segments as boxes in the map: the paper's third block, a YOLOX with one class.

In: pictures (batch, channels, size, size). Out: raw rows (batch, anchors, 6) and, decoded, boxes in
pixels with their probabilities. The names of the parameters are those of the authors' checkpoints.
`frozen` folds its norms and may hand it to another runtime.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vcl_plugin.model.config import TransVCLConfig

STRIDES = (8, 16, 32)


class ConvBlock(nn.Module):
    """Convolution, batch norm, SiLU; `k` is the kernel's side, padded to keep the size."""

    def __init__(self, inputs: int, outputs: int, k: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, k, stride, (k - 1) // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        activated: Tensor = self.act(self.bn(self.conv(x)))
        return activated


class Focus(nn.Module):
    """The four pixels of each 2x2 block become channels, then a 3x3 convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = ConvBlock(4 * inputs, outputs, 3)

    def forward(self, x: Tensor) -> Tensor:
        # Top left, bottom left, top right, bottom right: the order the weights expect.
        corners = [x[..., top::2, left::2] for left in (0, 1) for top in (0, 1)]
        activated: Tensor = self.conv(torch.cat(corners, dim=1))  # (B, outputs, size/2, size/2)
        return activated


class Bottleneck(nn.Module):
    def __init__(self, channels: int, has_shortcut: bool) -> None:
        super().__init__()
        self.conv1 = ConvBlock(channels, channels, 1)
        self.conv2 = ConvBlock(channels, channels, 3)
        self.has_shortcut = has_shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.conv1(x))
        return x + y if self.has_shortcut else y


class CSPLayer(nn.Module):
    """Cross-stage partial block: half the channels go through the bottlenecks, half around."""

    def __init__(self, inputs: int, outputs: int, count: int, has_shortcut: bool) -> None:
        super().__init__()
        hidden = outputs // 2
        self.conv1 = ConvBlock(inputs, hidden, 1)
        self.conv2 = ConvBlock(inputs, hidden, 1)
        self.conv3 = ConvBlock(2 * hidden, outputs, 1)
        self.m = nn.Sequential(*(Bottleneck(hidden, has_shortcut) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv3(torch.cat([self.m(self.conv1(x)), self.conv2(x)], dim=1))
        return y


class SPPBottleneck(nn.Module):
    """Spatial pyramid pooling: maxima over 5, 9 and 13 cells beside the cells themselves."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = ConvBlock(channels, channels // 2, 1)
        self.conv2 = ConvBlock(channels // 2 * 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        # A maximum over 9 is one over 5 of one over 5, and 13 once more: same values, fewer reads.
        five = F.max_pool2d(x, 5, 1, 2)
        nine = F.max_pool2d(five, 5, 1, 2)
        thirteen = F.max_pool2d(nine, 5, 1, 2)
        y: Tensor = self.conv2(torch.cat([x, five, nine, thirteen], dim=1))
        return y


class CSPDarknet(nn.Module):
    """The backbone: feature maps at strides 8, 16 and 32."""

    def __init__(self, width: float, depth: float, channels: int) -> None:
        super().__init__()
        base, count = int(width * 64), max(round(depth * 3), 1)

        def stage(inputs: int, blocks: int, *between: nn.Module, has_shortcut: bool) -> nn.Module:
            outputs = 2 * inputs
            csp = CSPLayer(outputs, outputs, blocks, has_shortcut)
            return nn.Sequential(ConvBlock(inputs, outputs, 3, stride=2), *between, csp)

        self.stem = Focus(channels, base)
        self.dark2 = stage(base, count, has_shortcut=True)
        self.dark3 = stage(2 * base, 3 * count, has_shortcut=True)
        self.dark4 = stage(4 * base, 3 * count, has_shortcut=True)
        self.dark5 = stage(8 * base, count, SPPBottleneck(16 * base), has_shortcut=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        eight = self.dark3(self.dark2(self.stem(x)))  # (B, 4 base, size/8, size/8)
        sixteen = self.dark4(eight)  # (B, 8 base, size/16, size/16)
        return eight, sixteen, self.dark5(sixteen)  # (B, 16 base, size/32, size/32)


class PAFPN(nn.Module):
    """The neck: the pyramid is read top down, then bottom up, so each scale knows the others."""

    def __init__(self, width: float, depth: float, channels: int = 3) -> None:
        super().__init__()
        low, mid, high = (int(width * channels) for channels in (256, 512, 1024))
        count = max(round(depth * 3), 1)
        self.backbone = CSPDarknet(width, depth, channels)
        self.lateral_conv0 = ConvBlock(high, mid, 1)
        self.C3_p4 = CSPLayer(2 * mid, mid, count, has_shortcut=False)
        self.reduce_conv1 = ConvBlock(mid, low, 1)
        self.C3_p3 = CSPLayer(2 * low, low, count, has_shortcut=False)
        self.bu_conv2 = ConvBlock(low, low, 3, stride=2)
        self.C3_n3 = CSPLayer(2 * low, mid, count, has_shortcut=False)
        self.bu_conv1 = ConvBlock(mid, mid, 3, stride=2)
        self.C3_n4 = CSPLayer(2 * mid, high, count, has_shortcut=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        eight, sixteen, thirty_two = self.backbone(x)
        # Top down: (B, mid, size/16, ...), then (B, low, size/8, ...).
        top = self.lateral_conv0(thirty_two)
        middle = self.reduce_conv1(self.C3_p4(torch.cat([_double(top), sixteen], dim=1)))
        fine = self.C3_p3(torch.cat([_double(middle), eight], dim=1))
        # Bottom up.
        medium = self.C3_n3(torch.cat([self.bu_conv2(fine), middle], dim=1))
        coarse = self.C3_n4(torch.cat([self.bu_conv1(medium), top], dim=1))
        return fine, medium, coarse


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


class DetectionHead(nn.Module):
    """Decoupled head: at each scale one branch for the class, one for box and objectness."""

    def __init__(self, width: float) -> None:
        super().__init__()
        hidden = int(256 * width)
        inputs = [int(width * channels) for channels in (256, 512, 1024)]
        self.stems = nn.ModuleList(ConvBlock(channels, hidden, 1) for channels in inputs)
        self.cls_convs = nn.ModuleList(_two_blocks(hidden) for _ in STRIDES)
        self.reg_convs = nn.ModuleList(_two_blocks(hidden) for _ in STRIDES)
        self.cls_preds = nn.ModuleList(nn.Conv2d(hidden, 1, 1) for _ in STRIDES)
        self.reg_preds = nn.ModuleList(nn.Conv2d(hidden, 4, 1) for _ in STRIDES)
        self.obj_preds = nn.ModuleList(nn.Conv2d(hidden, 1, 1) for _ in STRIDES)
        # A detector that starts by saying "copy" everywhere learns nothing else for a while.
        for prediction in [*self.cls_preds, *self.obj_preds]:
            assert isinstance(prediction, nn.Conv2d)
            assert prediction.bias is not None
            nn.init.constant_(prediction.bias, -math.log((1 - 0.01) / 0.01))

    def forward(self, scales: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        rows = []
        for i, x in enumerate(scales):
            x = self.stems[i](x)
            of_class, of_box = self.cls_convs[i](x), self.reg_convs[i](x)
            predictions = [self.reg_preds[i](of_box), self.obj_preds[i](of_box)]
            cells = torch.cat([*predictions, self.cls_preds[i](of_class)], dim=1)  # (B, 6, h, w)
            rows.append(cells.flatten(2))
        return torch.cat(rows, dim=2).transpose(1, 2)  # (B, anchors, 6), row-major


def _two_blocks(channels: int) -> nn.Module:
    return nn.Sequential(ConvBlock(channels, channels, 3), ConvBlock(channels, channels, 3))


def anchor_grid(config: TransVCLConfig) -> Tensor:
    """(anchors, 3): column, row and stride of the cell behind each output row."""
    grids = []
    for stride in STRIDES:
        row, column = np.mgrid[: config.map_size // stride, : config.map_size // stride]
        grids.append(np.stack([column, row, np.full_like(row, stride)], axis=2).reshape(-1, 3))
    return torch.from_numpy(np.concatenate(grids).astype(np.float32))


def decode_boxes(raw: Tensor, grid: Tensor) -> Tensor:
    """Raw rows to (batch, anchors, 6): cx, cy, w, h in pixels, objectness, class probability.

    x is the reference, y the query.
    """
    cells, stride = grid[:, :2], grid[:, 2:]
    centre = (raw[..., :2] + cells) * stride
    size = raw[..., 2:4].exp() * stride
    return torch.cat([centre, size, raw[..., 4:].sigmoid()], dim=-1)
