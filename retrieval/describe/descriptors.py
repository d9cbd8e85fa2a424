"""Frames become descriptors: 256 numbers of unit length a frame, alike for a frame and its copies.

In: uint8 RGB frames of any size. Out: float32 (n, 256).
`load_descriptor` gives the one that a setting names. Descriptors are found by the entry point
`retrieval.descriptors`: `lite0` comes with the installation, `isc` and `sscd` need a weights file,
and a package of yours may bring another.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.pictures import Frames
from retrieval.errors import BadSetting
from retrieval.plugins import load_plugin
from retrieval.records import Fingerprint
from retrieval.settings import load_settings

Array = NDArray[np.float32]

DIMENSION = 256


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

    All of ours take `weights` (a path, or an address with its `sha256`) and `device`; `lite0` also
    `side`, `power`, `threads` and `cache_dir`, `isc` also `side`, `sscd` also `projection`.
    """
    chosen = load_settings().descriptor if name is None else name
    descriptor: Descriptor = load_plugin("retrieval.descriptors", "descriptor", chosen, **arguments)
    if descriptor.fingerprint.dimension != DIMENSION:
        raise BadSetting(
            f"the descriptor {chosen!r} gives {descriptor.fingerprint.dimension} numbers a frame, "
            f"the engine and its localizers take {DIMENSION}; project them to {DIMENSION}"
        )
    return descriptor
