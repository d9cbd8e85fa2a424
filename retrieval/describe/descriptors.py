"""Frames become descriptors: 256 numbers of unit length a frame, alike for a frame and its copies.

In: uint8 RGB frames of any size. Out: float32 (n, 256).
`load_descriptor` gives the one that a setting names: `lite0` comes with the installation, `isc` and
`sscd` need a weights file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.lite0 import build_graph, find_backbone, read_backbone
from retrieval.describe.pictures import (
    Frames,
    check_frames,
    flag_low_information,
    number_pictures,
    squash_frames,
)
from retrieval.errors import MissingWeights, UnknownPlugin
from retrieval.media.video import SAMPLE_FPS
from retrieval.records import Fingerprint
from retrieval.settings import load_settings
from retrieval.store import write_atomically

__all__ = ["Descriptor", "Lite0Descriptor", "flag_low_information", "load_descriptor"]

Array = NDArray[np.float32]

DIMENSION = 256
SHIPPED_WEIGHTS = Path(__file__).parents[1] / "weights" / "lite0.safetensors"


@runtime_checkable
class Descriptor(Protocol):
    """Turns pictures into vectors whose inner product says how likely one copies the other.

    Frames that are decoded at `frame_size` (width, height) are not scaled again.
    """

    name: str
    fingerprint: Fingerprint
    frame_size: tuple[int, int]

    def embed(self, frames: Frames) -> Array:
        """(n, height, width, 3) uint8 RGB of any size to (n, 256) float32 of unit length."""
        ...


def load_descriptor(name: str | None = None, **arguments: Any) -> Descriptor:
    """The descriptor of that name, None for the one of the settings.

    `lite0` takes `weights` (a path), `side`, `power`, `threads`, `cache_dir`; `isc` and `sscd` take
    `weights` (a path or URL), `sha256` and `device`.
    """
    chosen = load_settings().descriptor if name is None else name
    if chosen not in DESCRIPTORS:
        known = ", ".join(sorted(DESCRIPTORS))
        raise UnknownPlugin(f"no descriptor is called {chosen!r}; there are: {known}")
    return DESCRIPTORS[chosen](**arguments)


class Lite0Descriptor:
    """The default: EfficientNet-Lite0 with a fitted tail, GeM pooling and head, by ONNX Runtime.

    The graph is made from the weights once a machine and kept under the home folder; once it is
    there, no torch is imported. `threads` 0 takes every core.
    """

    name = "lite0"

    def __init__(
        self,
        weights: str | Path | None = None,
        side: int = 224,
        power: float = 3.0,
        threads: int = 0,
        cache_dir: str | Path | None = None,
    ) -> None:
        backbone, fitted = find_backbone(), Path(weights or SHIPPED_WEIGHTS)
        self.frame_size = (side, side)
        self.fingerprint = Fingerprint(
            name=self.name,
            weights=_hash_files(backbone, fitted)[:16],
            dimension=DIMENSION,
            fps=SAMPLE_FPS,
            preprocessing=f"squash{side}-gem{power:g}-middle",
        )
        cache = Path(cache_dir) if cache_dir is not None else load_settings().home / "cache"
        graph = cache / f"{self.fingerprint.key}.onnx"
        if not graph.exists():
            head = _read_weights(fitted)
            # What was fitted of the network takes the place of what came with its package.
            write_atomically(graph, build_graph({**read_backbone(backbone), **head}, head, power))
        self._session = open_session(graph, threads)

    def embed(self, frames: Frames) -> Array:
        # A still is described once, or a file of five kilobytes could keep a worker for ten hours.
        shown = number_pictures(check_frames(frames))
        pictures = np.asarray(frames)[np.flatnonzero(np.diff(shown, prepend=-1))]
        parts = [np.zeros((0, DIMENSION), np.float32)]
        for batch in squash_frames(pictures, self.frame_size):
            parts.append(self._session.run(None, {"pictures": batch})[0])
        return np.concatenate(parts)[shown]


def _load_isc(**arguments: Any) -> Descriptor:
    from retrieval.describe.isc import IscDescriptor  # imports torch

    return IscDescriptor(**arguments)


def _load_sscd(**arguments: Any) -> Descriptor:
    from retrieval.describe.sscd import SscdDescriptor  # imports torch

    return SscdDescriptor(**arguments)


DESCRIPTORS: dict[str, Callable[..., Descriptor]] = {
    "lite0": Lite0Descriptor,
    "isc": _load_isc,
    "sscd": _load_sscd,
}


def open_session(graph: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads would take the core that the decoder child needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    providers = onnxruntime.get_available_providers()
    return onnxruntime.InferenceSession(str(graph), options, providers=providers)


def _hash_files(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            raise MissingWeights(
                f"{path} cannot be read ({error.strerror}); install the package again"
            ) from None
    return digest.hexdigest()


def _read_weights(path: Path) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return {name: each.astype(np.float32) for name, each in load_file(path).items()}
    except SafetensorError as error:
        raise MissingWeights(f"{path} is not a safetensors file ({error})") from None
