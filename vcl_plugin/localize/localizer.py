"""From two descriptor arrays to segments: all steps of the method `transvcl`, in their order.

In: a query and its candidate references, (frames, 256) each, one frame a second.
Out: `Segment`s, ordered by query time, inside both videos, with score, direction and speed.
Loaded through the entry point `transvcl`.

    1. compare  every second with every second, in nine ways              streams
    2. read     the probability of each cell that may be copied           reading, model.reader
    3. join     cells that touch become segments, if they are sure enough lines
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from retrieval.arrays import as_descriptors, unit
from retrieval.errors import BadSetting, MissingWeights
from retrieval.plugins import Array, Localizer
from retrieval.records import Segment
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.lines import find_segments
from vcl_plugin.localize.reading import ALIKE, CORE, DEVIATIONS, MANY, MARGIN, ONE_WINDOW, Reading
from vcl_plugin.localize.streams import STREAMS, PairStreams
from vcl_plugin.model.fast.device import choose_device
from vcl_plugin.model.reader_file import is_reader_file, open_reader

SHIPPED_READER = Path(__file__).parents[1] / "weights" / "lines.safetensors"
REVISION = 2  # raised when the same weights begin to give other segments


class LineLocalizer:
    """Localizer `transvcl`. `weights` None is the file that ships; `min_score` None is its own."""

    name = "transvcl"

    def __init__(
        self,
        weights: str | Path | None = None,
        device: str = "auto",
        *,
        min_score: float | None = None,
    ) -> None:
        if min_score is not None and not 0.0 <= min_score <= 1.0:
            raise BadSetting(f"min_score is {min_score}; it must lie within 0 and 1")
        reader, facts, digest = open_reader(SHIPPED_READER if weights is None else weights)
        if reader.config.streams != len(STREAMS):
            raise MissingWeights(
                f"{weights} reads {reader.config.streams} maps of a pair, and this version makes "
                f"{len(STREAMS)}; teach it again with `vcl lines train`"
            )
        self.min_score = facts.min_score if min_score is None else min_score
        self.descriptor = facts.descriptor
        self.dimension = reader.config.dimension
        self._reading = Reading(reader, choose_device(device))
        settings = (REVISION, self.min_score, ONE_WINDOW, CORE, MARGIN, ALIKE, DEVIATIONS, MANY)
        setting = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
        self.fingerprint = f"{self.name}-{digest}-{setting}"

    def localize(self, query: ArrayLike, reference: ArrayLike) -> list[Segment]:
        return self.localize_many(query, [reference])[0]

    def localize_many(
        self, query: ArrayLike, references: Sequence[ArrayLike]
    ) -> list[list[Segment]]:
        """One list a reference, in their order. All arrays are checked before any work."""
        checked = unit(as_descriptors(query, "query", self.dimension))
        others = [
            unit(as_descriptors(each, f"reference {number}", self.dimension))
            for number, each in enumerate(references)
        ]
        return [self._localize(checked, other) for other in others]

    def _localize(self, query: Array, reference: Array) -> list[Segment]:
        streams = PairStreams(query, reference)
        cells = self._reading.read(streams)
        return find_segments(cells, self.min_score)


def load_transvcl_localizer(
    weights: str | Path | None = None,
    device: str = "auto",
    *,
    min_score: float | None = None,
    batch_frames: int = 20_000,
    runtime: str = "auto",
) -> Localizer:
    """What the method `transvcl` is with these weights.

    Weights of a line reader, as they ship, make a `LineLocalizer`. Weights of the paper's network,
    ours or the authors' `.pth`, make its detector, a `TransVCLLocalizer`; the options behind
    `min_score` are of that one.
    """
    if weights is None or is_reader_file(weights):
        return LineLocalizer(weights, device, min_score=min_score)
    return TransVCLLocalizer(
        weights, device, min_score=min_score, batch_frames=batch_frames, runtime=runtime
    )
