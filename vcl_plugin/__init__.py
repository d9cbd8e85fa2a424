"""TransVCL for a retrieval engine: candidate pairs in, copied segments and claims out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval.records import Segment, Span

if TYPE_CHECKING:
    from retrieval.plugins import load_localizer

__all__ = ["Segment", "Span", "load_localizer"]


def __getattr__(name: str) -> Any:
    # On first use: `vcl --help` passes here, too, and needs no numpy.
    if name == "load_localizer":
        from retrieval.plugins import load_localizer

        return load_localizer
    raise AttributeError(f"module 'vcl_plugin' has no attribute {name!r}")
