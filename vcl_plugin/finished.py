"""TransVCL as it is meant to be used: detector, closer look, ends and rating in one localizer.

In: weights that training has finished. Out: a `Localizer` named `transvcl-finished`.
Loaded through the entry point of that name, by the command line and by evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from retrieval.arrays import as_descriptors
from retrieval.errors import MissingWeights
from retrieval.records import Segment
from vcl_plugin.localize import SHIPPED_WEIGHTS, TransVCLLocalizer
from vcl_plugin.model.checkpoint import read_facts
from vcl_plugin.rating import FinishedLocalizer, Rating
from vcl_plugin.zoom import Zoom


class FinishedTransVCL:
    """Localizer `transvcl-finished`.

    `min_score` is a threshold on the rated score; None takes the one chosen on validation pairs.
    Other options are those of `TransVCLLocalizer`.
    """

    name = "transvcl-finished"

    def __init__(
        self,
        weights: str | Path | None = None,
        device: str = "auto",
        *,
        min_score: float | None = None,
        **options: Any,
    ) -> None:
        path = SHIPPED_WEIGHTS if weights is None else Path(weights)
        facts = read_facts(path)
        if facts.get("rating") is None:
            raise MissingWeights(
                f"{path} brings no rating; use the method transvcl, or finish it by `vcl train`"
            )
        zoom = facts.get("zoom")
        detector = TransVCLLocalizer(path, device, min_score=facts["candidate_score"], **options)
        self._finished = FinishedLocalizer(
            detector,
            Rating.from_dict(facts["rating"]),
            facts["min_rating"] if min_score is None else min_score,
            None if zoom is None else Zoom(**zoom),
        )
        self.dimension = detector.network.config.dimension
        self.fingerprint = self._finished.fingerprint.replace("transvcl", self.name, 1)

    def localize(self, query: ArrayLike, reference: ArrayLike) -> list[Segment]:
        return self.localize_many(query, [reference])[0]

    def localize_many(
        self, query: ArrayLike, references: Sequence[ArrayLike]
    ) -> list[list[Segment]]:
        """One list a reference, in their order. All arrays are checked before any work."""
        checked = as_descriptors(query, "query", self.dimension)
        others = [
            as_descriptors(each, f"reference {i}", self.dimension)
            for i, each in enumerate(references)
        ]
        return self._finished.localize_many(checked, others)
