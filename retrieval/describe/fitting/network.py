"""The blocks of EfficientNet-Lite0 that are fitted, and our head, in torch.

In: what the first blocks say of pictures (`lite0.build_first_blocks`). Out: descriptors, and the
fitted weights. In service the same weights run in ONNX Runtime (`lite0.build_graph`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from retrieval.describe.lite0 import (
    BLOCKS,
    BN_EPSILON,
    FEATURES,
    FIRST_BLOCKS,
    MIDDLE_BLOCK,
    Weights,
)

# (convolution, its batch norm) within a block, in order.
LAYERS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))


class Network(nn.Module):
    """Maps of the first blocks to descriptors of unit length. Batch norms keep their statistics:
    what is fitted is convolutions, scales, shifts and the head."""

    def __init__(self, backbone: Weights, dimension: int, power: float = 3.0) -> None:
        super().__init__()
        self.power = power
        dice = torch.Generator().manual_seed(0)
        start = torch.randn(dimension, FEATURES, generator=dice) / FEATURES**0.5
        self.weight = nn.Parameter(start)
        self.bias = nn.Parameter(torch.zeros(dimension))
        self._values: dict[str, Tensor] = {}
        for convolution, norm in _layer_names():
            for name in (f"{convolution}.weight", f"{norm}.weight", f"{norm}.bias"):
                value = nn.Parameter(torch.from_numpy(np.array(backbone[name], np.float32)))
                self.register_parameter(name.replace(".", "/"), value)
                self._values[name] = value
            for name in (f"{norm}.running_mean", f"{norm}.running_var"):
                self._values[name] = torch.from_numpy(np.array(backbone[name], np.float32))

    def forward(self, maps: Tensor) -> Tensor:
        return F.normalize(F.linear(self.pool(maps), self.weight, self.bias))

    def pool(self, maps: Tensor) -> Tensor:
        """What the head is given: two poolings, each of unit length. (n, 1952)"""
        x, middle = maps, maps
        for number, block in enumerate(BLOCKS[FIRST_BLOCKS:], start=FIRST_BLOCKS):
            before, prefix = x, block.prefix
            x = F.relu6(self._convolve(x, prefix + "_expand_conv", prefix + "_bn0"))
            if number == MIDDLE_BLOCK:
                middle = x
            depthwise = prefix + "_depthwise_conv"
            x = F.relu6(self._convolve(x, depthwise, prefix + "_bn1", block.stride))
            x = self._convolve(x, prefix + "_project_conv", prefix + "_bn2")
            if block.has_skip:
                x = x + before
        x = F.relu6(self._convolve(x, "_conv_head", "_bn1"))  # (n, 1280, high, wide)
        return torch.cat([self._pool_one(x), self._pool_one(middle)], dim=1)

    def _pool_one(self, x: Tensor) -> Tensor:
        x = x.clamp_min(1e-6).pow(self.power).mean(dim=(2, 3)).pow(1 / self.power)
        return F.normalize(x)

    def _convolve(self, x: Tensor, convolution: str, norm: str, stride: int = 1) -> Tensor:
        values = self._values
        scale = values[f"{norm}.weight"] / (values[f"{norm}.running_var"] + BN_EPSILON).sqrt()
        kernel = values[f"{convolution}.weight"] * scale[:, None, None, None]
        bias = values[f"{norm}.bias"] - values[f"{norm}.running_mean"] * scale
        groups = len(kernel) if kernel.shape[1] == 1 else 1
        total = max(kernel.shape[2] - stride, 0)  # of padding, the odd pixel at the end
        if total:
            low, high = total // 2, total - total // 2
            x = F.pad(x, (low, high, low, high))
        return F.conv2d(x, kernel, bias, stride=stride, groups=groups)

    @torch.no_grad()
    def set_head(self, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
        self.weight.copy_(torch.from_numpy(weight))
        self.bias.copy_(torch.from_numpy(bias))

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """All that was fitted, under the names of the state dict; the head's are plain."""
        return {
            name.replace("/", "."): each.detach().numpy().copy()
            for name, each in self.named_parameters()
        }


def _layer_names() -> Iterator[tuple[str, str]]:
    for block in BLOCKS[FIRST_BLOCKS:]:
        for convolution, norm in LAYERS:
            yield block.prefix + convolution, block.prefix + norm
    yield "_conv_head", "_bn1"
