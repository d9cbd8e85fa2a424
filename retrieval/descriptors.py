"""Frames become descriptors: 256 numbers of unit length a frame, alike for a frame and its copies.

In: uint8 RGB frames of any size. Out: float32 (n, 256), and which frames tell nothing.
Called by the engine once a batch; `load_descriptor` is the only door, a setting names what is
behind it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.errors import BadDescriptors, UnknownPlugin
from retrieval.lite0 import build_graph, find_backbone, read_backbone
from retrieval.records import Fingerprint
from retrieval.settings import load_settings
from retrieval.video import SAMPLE_FPS

Frames = NDArray[np.uint8]
Array = NDArray[np.float32]

DIMENSION = 256
BATCH_FRAMES = 16
HEAD_PATH = Path(__file__).with_name("weights") / "lite0-head.safetensors"


@runtime_checkable
class Descriptor(Protocol):
    """Turns pictures into vectors whose inner product says how likely one copies the other."""

    name: str
    fingerprint: Fingerprint
    frame_size: tuple[int, int]
    """(width, height) that `embed` works on; frames decoded at this size are not scaled again."""

    def embed(self, frames: Frames) -> Array:
        """(n, height, width, 3) uint8 RGB of any size to (n, 256) float32 of unit length."""
        ...


def load_descriptor(name: str | None = None, **arguments: Any) -> Descriptor:
    """The descriptor of that name; None takes the one of the settings."""
    chosen = load_settings().descriptor if name is None else name
    if chosen not in DESCRIPTORS:
        known = ", ".join(sorted(DESCRIPTORS))
        raise UnknownPlugin(f"no descriptor is called {chosen!r}; there are: {known}")
    return DESCRIPTORS[chosen](**arguments)


class Lite0Descriptor:
    """The default: EfficientNet-Lite0, GeM pooling and our learnt head, through ONNX Runtime.

    The graph is made from the weights once a machine and kept under the home folder.
    """

    name = "lite0"

    def __init__(
        self,
        head: str | Path | None = None,
        side: int = 224,
        power: float = 3.0,
        threads: int = 0,
        cache_dir: str | Path | None = None,
    ) -> None:
        backbone, head_path = find_backbone(), Path(head or HEAD_PATH)
        self.frame_size = (side, side)
        weights = hashlib.sha256(backbone.read_bytes() + head_path.read_bytes()).hexdigest()
        self.fingerprint = Fingerprint(
            name=self.name,
            weights=weights[:16],
            dimension=DIMENSION,
            fps=SAMPLE_FPS,
            preprocessing=f"squash{side}-gem{power:g}",
        )
        cache = Path(cache_dir) if cache_dir is not None else load_settings().home / "cache"
        graph = cache / f"{self.fingerprint.key}.onnx"
        if not graph.exists():
            from safetensors.numpy import load_file

            head_weights = {
                name: each.astype(np.float32) for name, each in load_file(head_path).items()
            }
            write_atomically(graph, build_graph(read_backbone(backbone), head_weights, power))
        self._session = open_session(graph, threads)

    def embed(self, frames: Frames) -> Array:
        frames = check_frames(frames)
        parts = [
            self._session.run(None, {"pictures": part})[0]
            for part in scaled_batches(frames, self.frame_size)
        ]
        return np.concatenate([np.zeros((0, DIMENSION), np.float32), *parts])


DESCRIPTORS: dict[str, Callable[..., Descriptor]] = {"lite0": Lite0Descriptor}


def check_frames(frames: Frames) -> Frames:
    frames = np.asarray(frames)
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3:
        raise BadDescriptors(
            f"frames are {frames.dtype} of shape {frames.shape}; "
            "give uint8 of shape (n, height, width, 3)",
            code="not_an_array",
        )
    if 0 in frames.shape[1:3]:
        raise BadDescriptors(f"frames of shape {frames.shape} hold no pixel", code="no_frames")
    return frames


def scaled_batches(frames: Frames, size: tuple[int, int]) -> list[Frames]:
    """Batches for the network, each frame squashed to `size`; aspect ratios are not kept, because
    copies rarely keep them either."""
    if frames.shape[2:0:-1] != size:
        squashed = [
            np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX, reducing_gap=2.0))
            if frame.shape[0] >= size[1] and frame.shape[1] >= size[0]
            else np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BILINEAR))
            for frame in frames
        ]
        frames = np.stack(squashed) if squashed else np.zeros((0, size[1], size[0], 3), np.uint8)
    return [frames[at : at + BATCH_FRAMES] for at in range(0, len(frames), BATCH_FRAMES)]


def flag_low_information(frames: Frames) -> NDArray[np.bool_]:
    """Frames that match anything and prove nothing: black, flat, title cards, colour bars. (n,)"""
    frames = check_frames(frames)
    return np.array([_is_low_information(frame) for frame in frames], dtype=bool)


def _is_low_information(frame: NDArray[np.uint8]) -> bool:
    grey = np.asarray(Image.fromarray(frame).convert("L").resize((96, 96), Image.Resampling.BOX))
    tiles = grey.reshape(16, 6, 16, 6).swapaxes(1, 2).reshape(256, 36).astype(np.float32)
    return bool((tiles.std(axis=1) < 3.0).mean() > 0.8)


def open_session(graph: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads would take the core that the decoder child needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        str(graph), options, providers=onnxruntime.get_available_providers()
    )


def write_atomically(path: Path, content: bytes) -> None:
    """Whole or not at all: two processes that fill a cold cache write the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
