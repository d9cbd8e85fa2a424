"""The self-supervised copy detection descriptor (SSCD), from its authors' TorchScript file.

In: `sscd_disc_mixup.torchscript.pt` (512 numbers a picture). Out: a `Descriptor` of 256.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from retrieval.describe.downloads import hash_weights, obtain_weights
from retrieval.describe.isc import choose_device
from retrieval.describe.pictures import Frames, check_frames, squash_frames
from retrieval.errors import MissingWeights
from retrieval.media.video import SAMPLE_FPS
from retrieval.records import Fingerprint
from retrieval.settings import load_settings

FILE_NAME = "sscd_disc_mixup.torchscript.pt"
SIDE = 320
DIMENSION = 256
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


class SscdDescriptor:
    """A `projection` file (safetensors, `weight` 256×d) replaces the built-in reduction."""

    name = "sscd"

    def __init__(
        self,
        weights: str | Path | None = None,
        sha256: str | None = None,
        projection: str | Path | None = None,
        device: str | None = None,
    ) -> None:
        settings = load_settings()
        path = obtain_weights(FILE_NAME, settings.home / "weights", weights, sha256)
        self._device = torch.device(choose_device(device or settings.device))
        try:
            self._network = torch.jit.load(str(path), map_location=self._device).eval()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise MissingWeights(f"{path} is not a TorchScript file ({reason})") from None
        self.frame_size = (SIDE, SIDE)
        width = self._measure(path)
        matrix = read_projection(Path(projection)) if projection else orthogonal_projection(width)
        if matrix.shape != (DIMENSION, width):
            raise MissingWeights(
                f"the projection is {matrix.shape}, the network gives {width} numbers; "
                f"it must be ({DIMENSION}, {width})"
            )
        self._projection = torch.from_numpy(matrix).to(self._device)
        # The built-in matrix goes by name: its last bits may differ between machines.
        reduction = hash_weights(Path(projection))[:8] if projection else "orthogonal"
        self.fingerprint = Fingerprint(
            self.name, hash_weights(path)[:16], DIMENSION, SAMPLE_FPS, f"squash{SIDE}-{reduction}"
        )

    def _measure(self, path: Path) -> int:
        """How many numbers the network gives a picture."""
        try:
            found = self._run(np.zeros((1, SIDE, SIDE, 3), np.uint8))
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise MissingWeights(
                f"{path} is of another network: it takes no picture of {SIDE}x{SIDE} ({reason})"
            ) from None
        if found.ndim != 2 or found.shape[1] < DIMENSION:
            raise MissingWeights(
                f"{path} is of another network: it gives {tuple(found.shape)} for one picture, "
                f"sscd needs (1, {DIMENSION}) or more numbers"
            )
        return found.shape[1]

    @torch.inference_mode()
    def embed(self, frames: Frames) -> NDArray[np.float32]:
        parts = [np.zeros((0, DIMENSION), np.float32)]
        for batch in squash_frames(check_frames(frames), self.frame_size):
            reduced = F.normalize(self._run(batch) @ self._projection.T)
            parts.append(reduced.float().cpu().numpy())
        return np.concatenate(parts)

    @torch.inference_mode()
    def _run(self, batch: Frames) -> torch.Tensor:
        pictures = torch.from_numpy(batch).to(self._device).permute(0, 3, 1, 2).float() / 255
        mean = torch.tensor(MEAN, device=self._device).view(1, 3, 1, 1)
        deviation = torch.tensor(DEVIATION, device=self._device).view(1, 3, 1, 1)
        out: torch.Tensor = self._network((pictures - mean) / deviation)
        return out


def read_projection(path: Path) -> NDArray[np.float32]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return np.ascontiguousarray(load_file(path)["weight"], dtype=np.float32)
    except (OSError, KeyError, SafetensorError) as error:
        raise MissingWeights(f"{path} holds no projection `weight` ({error})") from None


def orthogonal_projection(width: int) -> NDArray[np.float32]:
    """256 orthonormal rows, the same on every machine.

    SSCD's vectors are spread evenly over their sphere by training, so inner products survive any
    such projection about equally; a matrix fitted on a user's own material does better.
    """
    drawn = np.random.RandomState(256).standard_normal((width, DIMENSION))
    return np.ascontiguousarray(np.linalg.qr(drawn)[0].T, dtype=np.float32)
