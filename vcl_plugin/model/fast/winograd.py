"""A 3x3 convolution with up to five times fewer multiplications: Winograd's F(6x6, 3x3).

In: a picture (batch, channels, height, width), weight and bias of a 3x3 convolution of stride 1.
Out: its result, padded to the same size, within 1e-4.
CPU runtimes multiply convolutions out at the processor's full rate, so that only fewer
multiplications can be faster (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
2016).

The transforms are NNPACK's, which torch brings along but takes for large batches only. It takes as
many threads as torch is told to; where torch was built without it, torch multiplies out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Also starts NNPACK: without this call its convolution fails.
HAS_NNPACK = torch._nnpack_available()
# With half as many channels a head won nothing by it.
MIN_CHANNELS = 128


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if HAS_NNPACK:
        return torch._nnpack_spatial_convolution(x, weight, bias, padding=1, stride=1)
    return F.conv2d(x, weight, bias, padding=1)
