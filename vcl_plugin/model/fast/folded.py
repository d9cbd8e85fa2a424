"""The detector as inference wants it: same numbers, fewer operations, nothing to train.

In: a trained `PAFPN` and `DetectionHead`. Out: one module, (batch, channels, size, size) to raw
rows (batch, anchors, 6). Batch norms are folded into the convolutions, and the four-corner stem
becomes one strided convolution, of one channel where those of the picture are equal.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vcl_plugin.model.config import TransVCLConfig
from vcl_plugin.model.detector import (
    PAFPN,
    STRIDES,
    Bottleneck,
    ConvBlock,
    CSPLayer,
    DetectionHead,
    SPPBottleneck,
)


def fold_norm(block: ConvBlock) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution that equals convolution and batch norm."""
    norm = block.bn
    assert norm.running_var is not None
    assert norm.running_mean is not None
    gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    weight = block.conv.weight * gain[:, None, None, None]
    return weight.detach(), (norm.bias - norm.running_mean * gain).detach()


def corners_to_kernel(weight: Tensor, channels: int) -> Tensor:
    """A 3x3 kernel over the corner slices as a 6x6 kernel of stride 2 over the picture itself.

    `channels` is 1 where the picture's three channels are equal: their kernels then add up.
    """
    outputs = len(weight)
    # Slices come as top left, bottom left, top right, bottom right, all channels of each.
    slices = weight.view(outputs, 2, 2, -1, 3, 3)  # (out, left, top, channel, row, column)
    if channels == 1:
        slices = slices.sum(dim=3, keepdim=True)
    # Cell (row, column) of slice (top, left) is pixel (2 row + top, 2 column + left).
    return slices.permute(0, 3, 4, 2, 5, 1).reshape(outputs, channels, 6, 6).contiguous()


class Activated(nn.Module):
    """Convolution with bias, then SiLU."""

    def __init__(self, weight: Tensor, bias: Tensor, stride: int, padding: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(F.conv2d(x, self.weight, self.bias, self.stride, self.padding), inplace=True)


def fold(block: nn.Module) -> Activated:
    assert isinstance(block, ConvBlock)
    conv = block.conv
    return Activated(*fold_norm(block), conv.stride[0], conv.kernel_size[0] // 2)


class FoldedCSP(nn.Module):
    def __init__(self, layer: CSPLayer) -> None:
        super().__init__()
        self.enter, self.around, self.leave = (
            fold(block) for block in (layer.conv1, layer.conv2, layer.conv3)
        )
        self.has_shortcut = False
        inner, outer = [], []
        for bottleneck in layer.m:
            assert isinstance(bottleneck, Bottleneck)
            self.has_shortcut = bottleneck.has_shortcut
            inner.append(fold(bottleneck.conv1))
            outer.append(fold(bottleneck.conv2))
        self.inner, self.outer = nn.ModuleList(inner), nn.ModuleList(outer)

    def forward(self, x: Tensor) -> Tensor:
        through = self.enter(x)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            y = outer(inner(through))
            through = through + y if self.has_shortcut else y
        left: Tensor = self.leave(torch.cat([through, self.around(x)], dim=1))
        return left


class Doubled(nn.Module):
    """A 1x1 `Activated` on [above, doubled; beside], without making either.

    Doubling a picture and mixing its channels commute, so `above` is mixed at its own size.
    """

    def __init__(self, layer: Activated, above: int) -> None:
        super().__init__()
        self.of_above = nn.Parameter(layer.weight[:, :above].contiguous(), requires_grad=False)
        self.of_beside = nn.Parameter(layer.weight[:, above:].contiguous(), requires_grad=False)
        self.bias = layer.bias

    def forward(self, above: Tensor, beside: Tensor) -> Tensor:
        doubled = F.interpolate(F.conv2d(above, self.of_above), scale_factor=2.0, mode="nearest")
        return F.silu(doubled + F.conv2d(beside, self.of_beside, self.bias))


class FoldedMerge(nn.Module):
    """A `CSPLayer` of the way down: reads the coarser scale, doubled, and the one beside it."""

    def __init__(self, layer: CSPLayer, above: int) -> None:
        super().__init__()
        folded = FoldedCSP(layer)
        self.enter, self.around = Doubled(folded.enter, above), Doubled(folded.around, above)
        self.inner, self.outer, self.leave = folded.inner, folded.outer, folded.leave

    def forward(self, above: Tensor, beside: Tensor) -> Tensor:
        through = self.enter(above, beside)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            through = outer(inner(through))
        left: Tensor = self.leave(torch.cat([through, self.around(above, beside)], dim=1))
        return left


class FoldedSPP(nn.Module):
    def __init__(self, layer: SPPBottleneck) -> None:
        super().__init__()
        self.enter, self.leave = fold(layer.conv1), fold(layer.conv2)

    def forward(self, x: Tensor) -> Tensor:
        pooled = [self.enter(x)]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        left: Tensor = self.leave(torch.cat(pooled, dim=1))
        return left


class FoldedScale(nn.Module):
    """One scale of the head: what is there (box and objectness), and what it is (class)."""

    def __init__(self, head: DetectionHead, i: int) -> None:
        super().__init__()
        of_box, of_class = head.reg_convs[i], head.cls_convs[i]
        assert isinstance(of_box, nn.Sequential)
        assert isinstance(of_class, nn.Sequential)
        self.of_box = nn.ModuleList(fold(block) for block in of_box)
        self.of_class = nn.ModuleList(fold(block) for block in of_class)
        box, objectness, label = head.reg_preds[i], head.obj_preds[i], head.cls_preds[i]
        assert isinstance(box, nn.Conv2d)
        assert isinstance(objectness, nn.Conv2d)
        assert isinstance(label, nn.Conv2d)
        self.to_box, self.to_class = _join(box, objectness), _join(label)

    def forward(self, x: Tensor) -> Tensor:
        of_box = of_class = x
        for block in self.of_box:
            of_box = block(of_box)
        for block in self.of_class:
            of_class = block(of_class)
        return torch.cat([self.to_box(of_box), self.to_class(of_class)], dim=1).flatten(2)


def _join(*predictions: nn.Conv2d) -> nn.Conv2d:
    """1x1 convolutions of one input as a single one, apart from the trainable originals."""
    weight = torch.cat([each.weight.detach() for each in predictions])
    bias = torch.cat([each.bias.detach() for each in predictions if each.bias is not None])
    joined = nn.Conv2d(weight.shape[1], len(weight), 1).requires_grad_(False)
    joined.weight.data, joined.bias.data = weight, bias  # type: ignore[union-attr]
    return joined


class FoldedPyramid(nn.Module):
    """Backbone, neck and the head's three stems: a picture to what each scale's head reads."""

    def __init__(self, pyramid: PAFPN, head: DetectionHead, channels: int) -> None:
        super().__init__()
        body = pyramid.backbone
        weight, bias = fold_norm(body.stem.conv)
        self.stem = Activated(corners_to_kernel(weight, channels), bias, 2, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(*(_fold_any(layer) for layer in stage.children()))
            for stage in (body.dark2, body.dark3, body.dark4, body.dark5)
        )
        self.to_top, self.to_middle = fold(pyramid.lateral_conv0), fold(pyramid.reduce_conv1)
        self.to_medium, self.to_coarse = fold(pyramid.bu_conv2), fold(pyramid.bu_conv1)
        self.middle = FoldedMerge(pyramid.C3_p4, above=len(self.to_top.bias))
        self.fine = FoldedMerge(pyramid.C3_p3, above=len(self.to_middle.bias))
        self.medium, self.coarse = FoldedCSP(pyramid.C3_n3), FoldedCSP(pyramid.C3_n4)
        self.stems = nn.ModuleList(fold(stem) for stem in head.stems)

    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        eight = self.stages[1](self.stages[0](self.stem(picture)))
        sixteen = self.stages[2](eight)
        top = self.to_top(self.stages[3](sixteen))
        middle = self.to_middle(self.middle(top, sixteen))
        fine = self.fine(middle, eight)
        medium = self.medium(torch.cat([self.to_medium(fine), middle], dim=1))
        coarse = self.coarse(torch.cat([self.to_coarse(medium), top], dim=1))
        return self.stems[0](fine), self.stems[1](medium), self.stems[2](coarse)


class FoldedDetector(nn.Module):
    """`DetectionHead(PAFPN(x))` for a picture of `channels` channels."""

    def __init__(self, pyramid: PAFPN, head: DetectionHead, config: TransVCLConfig) -> None:
        super().__init__()
        self.channels = 1 if config.detector_input in ("map", "cosine") else config.channels
        self.pyramid = FoldedPyramid(pyramid, head, self.channels)
        self.scales = nn.ModuleList(FoldedScale(head, i) for i in range(len(STRIDES)))

    def forward(self, picture: Tensor) -> Tensor:
        scales = zip(self.scales, self.pyramid(picture), strict=True)
        return torch.cat([scale(x) for scale, x in scales], dim=2).transpose(1, 2)


def _fold_any(layer: nn.Module) -> nn.Module:
    if isinstance(layer, CSPLayer):
        return FoldedCSP(layer)
    return FoldedSPP(layer) if isinstance(layer, SPPBottleneck) else fold(layer)
