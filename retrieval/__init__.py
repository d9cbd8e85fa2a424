"""The retrieval engine: a video in, candidate pairs out.

`enqueue_search(path)` asks the workers to search a video, `wait_search(id)` waits for it, and
`read_segments(id)` reads what was found. `read_frames(path)` decodes a file, `load_descriptor()`
describes frames.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrieval.describe.descriptors import load_descriptor
    from retrieval.findings import read_segments, wait_search
    from retrieval.media.video import read_frames
    from retrieval.tasks import enqueue_search

__all__ = ["enqueue_search", "load_descriptor", "read_frames", "read_segments", "wait_search"]

_PLACES = {
    "enqueue_search": "retrieval.tasks",
    "load_descriptor": "retrieval.describe.descriptors",
    "read_frames": "retrieval.media.video",
    "read_segments": "retrieval.findings",
    "wait_search": "retrieval.findings",
}


def __getattr__(name: str) -> Any:
    # On first use: Celery and ONNX Runtime take a second to import, records take none.
    if name not in _PLACES:
        raise AttributeError(f"module 'retrieval' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
