"""The last blocks of EfficientNet-Lite0 and our head in torch, as far as they are fitted.

In: what the trunk says of pictures (`lite0.build_trunk`). Out: descriptors, and fitted weights.
Called by `fitting` alone; in service the same weights run in ONNX Runtime (`lite0.build_graph`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from retrieval.describe.lite0 import BLOCKS, BN_EPSILON, FEATURES, TRUNK_BLOCKS, Weights

# (convolution, its batch norm) within a block, in order.
LAYERS = (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2"))


class Tail(nn.Module):
    """Maps of the trunk to descriptors of unit length. Batch norms keep their statistics: what is
    fitted is convolutions, scales, shifts and the head."""

    def __init__(self, backbone: Weights, dimension: int, power: float = 3.0) -> None:
        super().__init__()
        self.power = power
        self.weight = nn.Parameter(torch.zeros(dimension, FEATURES))
        self.bias = nn.Parameter(torch.zeros(dimension))
        self._values: dict[str, Tensor] = {}
        for convolution, norm in _layer_names():
            for name in (f"{convolution}.weight", f"{norm}.weight", f"{norm}.bias"):
                value = nn.Parameter(torch.from_numpy(np.array(backbone[name], np.float32)))
                self.register_parameter(name.replace(".", "/"), value)
                self._values[name] = value
            for name in (f"{norm}.running_mean", f"{norm}.running_var"):
                self._values[name] = torch.from_numpy(np.array(backbone[name], np.float32))

    def forward(self, maps: Tensor, middle: Tensor) -> Tensor:
        return F.normalize(F.linear(self.pool(maps, middle), self.weight, self.bias))

    def pool(self, maps: Tensor, middle: Tensor) -> Tensor:
        """What the head is given: two poolings, each of unit length. (n, 1952)"""
        x = maps  # (n, 192, 7, 7)
        for block in BLOCKS[TRUNK_BLOCKS:]:
            before = x
            x = F.relu6(self._convolve(x, block.prefix + "_expand_conv", block.prefix + "_bn0"))
            x = F.relu6(self._convolve(x, block.prefix + "_depthwise_conv", block.prefix + "_bn1"))
            x = self._convolve(x, block.prefix + "_project_conv", block.prefix + "_bn2")
            if block.has_skip:
                x = x + before
        x = F.relu6(self._convolve(x, "_conv_head", "_bn1"))  # (n, 1280, 7, 7)
        x = x.clamp_min(1e-6).pow(self.power).mean(dim=(2, 3)).pow(1 / self.power)
        return torch.cat([F.normalize(x), middle], dim=1)

    def _convolve(self, x: Tensor, convolution: str, norm: str) -> Tensor:
        values = self._values
        scale = values[f"{norm}.weight"] / (values[f"{norm}.running_var"] + BN_EPSILON).sqrt()
        kernel = values[f"{convolution}.weight"] * scale[:, None, None, None]
        bias = values[f"{norm}.bias"] - values[f"{norm}.running_mean"] * scale
        groups = len(kernel) if kernel.shape[1] == 1 else 1
        return F.conv2d(x, kernel, bias, padding=kernel.shape[2] // 2, groups=groups)

    @torch.no_grad()
    def set_head(self, head: Weights) -> None:
        self.weight.copy_(torch.from_numpy(head["weight"]))
        self.bias.copy_(torch.from_numpy(head["bias"]))

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """All that was fitted, under the names of the state dict; the head's are plain."""
        return {
            name.replace("/", "."): each.detach().numpy().copy()
            for name, each in self.named_parameters()
        }


def _layer_names() -> Iterator[tuple[str, str]]:
    for block in BLOCKS[TRUNK_BLOCKS:]:
        for convolution, norm in LAYERS:
            yield block.prefix + convolution, block.prefix + norm
    yield "_conv_head", "_bn1"
