"""TransVCL for a retrieval engine: candidate pairs in, copied segments and claims out."""

from retrieval.plugins import load_localizer
from retrieval.records import Segment, Span

__all__ = ["Segment", "Span", "load_localizer"]
