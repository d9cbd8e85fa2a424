"""The retrieval engine: a video in, candidate pairs out.

`enqueue_search(path)` asks the workers to search a video; `load_descriptor()` describes frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrieval.describe.descriptors import load_descriptor
    from retrieval.tasks import enqueue_search

__all__ = ["enqueue_search", "load_descriptor"]


def __getattr__(name: str) -> Any:
    # On first use: Celery and ONNX Runtime take a second to import, records take none.
    if name == "enqueue_search":
        from retrieval.tasks import enqueue_search

        return enqueue_search
    if name == "load_descriptor":
        from retrieval.describe.descriptors import load_descriptor

        return load_descriptor
    raise AttributeError(f"module 'retrieval' has no attribute {name!r}")
