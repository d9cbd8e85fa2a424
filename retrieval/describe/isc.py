"""The winning descriptor of the Image Similarity Challenge 2021, from its authors' weights file.

In: `isc_ft_v107.pth.tar` (EfficientNetV2-M, 256 numbers a picture). Out: a `Descriptor`.
Module names follow the file, so that it loads strictly.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from retrieval.describe.downloads import hash_weights, obtain_weights
from retrieval.describe.pictures import Frames, check_frames, squash_frames
from retrieval.errors import MissingWeights
from retrieval.media.video import SAMPLE_FPS
from retrieval.records import Fingerprint
from retrieval.settings import load_settings

FILE_NAME = "isc_ft_v107.pth.tar"


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks of one kind: plain convolution, fused, or depthwise with squeeze-and-excite."""

    kind: str
    repeats: int
    stride: int
    expansion: int
    channels: int


STEM = 24
STAGES = (
    Stage("plain", 3, 1, 1, 24),
    Stage("fused", 5, 2, 4, 48),
    Stage("fused", 5, 2, 4, 80),
    Stage("depthwise", 7, 2, 4, 160),
    Stage("depthwise", 14, 1, 6, 176),
    Stage("depthwise", 18, 2, 6, 304),
    Stage("depthwise", 5, 1, 6, 512),
)


class SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow does: the odd pixel goes to the end."""

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for side, kernel, stride in zip(
            reversed(x.shape[-2:]), reversed(self.kernel_size), reversed(self.stride), strict=True
        ):
            total = max((-(side // -stride) - 1) * stride + kernel - side, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, reduced, 1)
        self.conv_expand = nn.Conv2d(reduced, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.conv_expand(F.silu(self.conv_reduce(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(gate)


class PlainBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.conv = SameConv(before, after, 3, stride, bias=False)
        self.bn1 = _norm(after)
        self.has_skip = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.bn1(self.conv(x)))
        return x + y if self.has_skip else y


class FusedBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.conv_exp = SameConv(before, wide, 3, stride, bias=False)
        self.bn1 = _norm(wide)
        self.conv_pwl = SameConv(wide, after, 1, bias=False)
        self.bn2 = _norm(after)
        self.has_skip = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.bn1(self.conv_exp(x)))
        y = self.bn2(self.conv_pwl(y))
        return x + y if self.has_skip else y


class DepthwiseBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        self.conv_pw = SameConv(before, wide, 1, bias=False)
        self.bn1 = _norm(wide)
        self.conv_dw = SameConv(wide, wide, 3, stride, groups=wide, bias=False)
        self.bn2 = _norm(wide)
        self.se = SqueezeExcite(wide, before // 4)
        self.conv_pwl = SameConv(wide, after, 1, bias=False)
        self.bn3 = _norm(after)
        self.has_skip = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.bn1(self.conv_pw(x)))
        y = self.se(F.silu(self.bn2(self.conv_dw(y))))
        y = self.bn3(self.conv_pwl(y))
        return x + y if self.has_skip else y


BLOCKS = {"plain": PlainBlock, "fused": FusedBlock, "depthwise": DepthwiseBlock}


class Backbone(nn.Module):
    """EfficientNetV2 without its classifier: (n, 3, h, w) to (n, channels, h/32, w/32)."""

    def __init__(self, stages: tuple[Stage, ...], stem: int) -> None:
        super().__init__()
        self.conv_stem = SameConv(3, stem, 3, 2, bias=False)
        self.bn1 = _norm(stem)
        channels, built = stem, []
        for stage in stages:
            blocks = []
            for repeat in range(stage.repeats):
                stride = stage.stride if repeat == 0 else 1
                block = BLOCKS[stage.kind](channels, stage.channels, stride, stage.expansion)
                blocks.append(block)
                channels = stage.channels
            built.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*built)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.blocks(F.silu(self.bn1(self.conv_stem(x))))
        return out


class IscNetwork(nn.Module):
    """Pictures in [-1, 1] to unit vectors: backbone, mean over places, linear, batch norm."""

    def __init__(self, stages: tuple[Stage, ...], stem: int) -> None:
        super().__init__()
        self.backbone = Backbone(stages, stem)
        self.fc = nn.Linear(stages[-1].channels, 256, bias=False)
        self.bn = nn.BatchNorm1d(256)

    def forward(self, x: Tensor) -> Tensor:
        x = self.backbone(x).clamp(min=1e-6).mean((2, 3))
        return F.normalize(self.bn(self.fc(x)))


class IscDescriptor:
    """Slow on a CPU (about a second a frame), good on a GPU; needs the authors' file."""

    name = "isc"

    def __init__(
        self,
        weights: str | Path | None = None,
        sha256: str | None = None,
        side: int | None = None,
        device: str | None = None,
    ) -> None:
        settings = load_settings()
        path = obtain_weights(FILE_NAME, settings.home / "weights", weights, sha256)
        state, trained_side = read_checkpoint(path)
        side = side or trained_side
        self.frame_size = (side, side)
        self.fingerprint = Fingerprint(
            self.name, hash_weights(path)[:16], 256, SAMPLE_FPS, f"squash{side}"
        )
        self._device = torch.device(choose_device(device or settings.device))
        self._network = IscNetwork(STAGES, STEM).to(self._device).eval()
        try:
            self._network.load_state_dict(state)
        except RuntimeError as error:
            first = str(error).splitlines()[1:2]
            raise MissingWeights(f"{path} is not an ISC network: {' '.join(first)}") from None

    @torch.inference_mode()
    def embed(self, frames: Frames) -> NDArray[np.float32]:
        parts = [np.zeros((0, 256), np.float32)]
        for batch in squash_frames(check_frames(frames), self.frame_size):
            pictures = torch.from_numpy(batch).to(self._device).permute(0, 3, 1, 2)
            parts.append(self._network(pictures.float() / 127.5 - 1).float().cpu().numpy())
        return np.concatenate(parts)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], int]:
    """State dict without the `module.` of parallel training, and the side it was trained at."""
    try:
        # The file also holds the training's arguments: a plain record, allowed by name.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
        state = content["state_dict"]
    except Exception as error:
        raise MissingWeights(f"{path} is not a checkpoint of ISC21 ({error})") from None
    side = int(getattr(content.get("args"), "input_size", 512))
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}, side


def choose_device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"
