"""TransVCL as it is meant to be used: detector, closer look, ends and rating in one localizer.

In: weights. Out: a `Localizer` named `transvcl`, with the steps that the weights bring numbers for.
Loaded through the entry point of that name, by workers, the command line and evaluation.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from retrieval.arrays import as_descriptors
from retrieval.errors import MissingWeights
from retrieval.plugins import Array, Localizer
from retrieval.records import Segment
from vcl_plugin.localize.detection import SHIPPED_WEIGHTS, TransVCLLocalizer, choose_cascade
from vcl_plugin.localize.rating import FinishedLocalizer, Rating, Support
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model.checkpoint import load_transvcl, read_facts


def load_best(weights: str | Path | None = None, device: str = "auto", **options: Any) -> Localizer:
    """Localizer `transvcl`: finished where training has finished the weights, else the detector.

    The authors' weights bring no rating, so they are the detector of the paper and nothing more.
    Options are those of `TransVCLLocalizer`.
    """
    path = SHIPPED_WEIGHTS if weights is None else Path(weights)
    if path.is_file() and read_facts(path).get("rating") is not None:
        return FinishedTransVCL(path, device, **options)
    return TransVCLLocalizer(weights, device, **options)


# As the entry point's caller checks them: an option that neither takes gets a sentence.
load_best.__signature__ = inspect.signature(TransVCLLocalizer)  # type: ignore[attr-defined]


class VideoLogit:
    """What the video-level head says of a pair as a whole.

    A pair longer than one map is as suspicious as its most suspicious pair of tiles.
    """

    def __init__(self, detector: TransVCLLocalizer) -> None:
        self.detector = detector

    def __call__(self, query: Array, reference: Array) -> float:
        queries = list(self.detector.tiles(query, side=0))
        return max(
            self.detector.network.match(one.state, other.state).video_logit
            for other in self.detector.tiles(reference, side=1)
            for one in queries
        )


class FinishedTransVCL:
    """Detector, closer look, ends and rating.

    `min_score` is a threshold on the rated score; None takes the one chosen on validation pairs.
    Other options are those of `TransVCLLocalizer`.
    """

    name = "transvcl"

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
                f"{path} brings no rating; use the method transvcl-detector, or finish it by "
                "`vcl train`"
            )
        zoom = facts.get("zoom")
        # The network, not its file: that brings a calibration for the detector alone, and the
        # rating was fitted on scores as they are.
        options["cascade"] = choose_cascade(options.get("cascade", "auto"), facts) or "off"
        detector = TransVCLLocalizer(
            load_transvcl(path), device, min_score=facts["candidate_score"], **options
        )
        try:
            rating = Rating.from_dict(facts["rating"])
        except ValueError as reason:
            raise MissingWeights(
                f"{path} was finished by another version ({reason}); finish it anew by `vcl finish`"
            ) from None
        self._finished = FinishedLocalizer(
            detector,
            rating,
            facts["min_rating"] if min_score is None else min_score,
            None if zoom is None else Zoom(**zoom),
            read_logit=VideoLogit(detector),
            support=Support(**facts.get("support", {})),
        )
        self.dimension = detector.network.config.dimension
        self.fingerprint = self._finished.fingerprint

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
