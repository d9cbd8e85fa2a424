"""From two descriptor arrays to segments: all steps of the method `transvcl`, in their order.

In: a localizer that proposes segments (TransVCL's detector, or any other), and fitted numbers.
Out: `Pipeline`, a `Localizer`. Workers, `vcl localize` and evaluation load it by the entry point
`transvcl`; finishing and `benchmarks/compare.py` stop after the steps whose results they need.

    1. look    the detector on the whole pair and on tiles of it      zoom, detection, motion
    2. map     every query frame against every reference frame        maps
    3. ends    each end moved to where the frames stop agreeing       ends
    4. facts   what speaks for each candidate                         rating, changes
    5. rate    facts become a probability                             rating.Rating
    6. lift    what the network says of the pair as a whole           rating.Support
    7. choose  threshold, then one of those over the same frames      rating.choose_segments
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from retrieval.arrays import as_descriptors
from retrieval.errors import MissingWeights
from retrieval.plugins import Array, Localizer
from retrieval.records import Segment
from vcl_plugin.localize.detection import TransVCLLocalizer, choose_cascade
from vcl_plugin.localize.ends import DEFAULT, Refinement, refine_segment
from vcl_plugin.localize.maps import Maps, map_surroundings
from vcl_plugin.localize.rating import (
    NO_SUPPORT,
    Facts,
    Rating,
    Support,
    choose_segments,
    describe_segments,
    rate_segments,
)
from vcl_plugin.localize.weights import SHIPPED_WEIGHTS, Cascade, open_weights
from vcl_plugin.localize.zoom import Zoom, join_pieces, look_closer, shift_segment


@dataclass(frozen=True)
class Candidates:
    """Segments that may be copies, with all that a rating needs to know of them."""

    segments: list[Segment]
    facts: Facts  # (segments, facts), see `rating.FACTS`
    logit: float  # what the network says of the pair as a whole; 0 if it says nothing


class Pipeline:
    """A localizer's segments with exact ends and rated scores.

    Without a rating the localizer's own scores stay. `min_score` is a threshold on the score at
    the end.
    """

    def __init__(
        self,
        localizer: Localizer,
        rating: Rating | None = None,
        min_score: float = 0.0,
        zoom: Zoom | None = None,
        refinement: Refinement = DEFAULT,
        support: Support = NO_SUPPORT,
        name: str | None = None,
        dimension: int = 256,
    ) -> None:
        self.localizer, self.rating, self.min_score = localizer, rating, min_score
        self.zoom, self.refinement, self.support = zoom, refinement, support
        self.name = localizer.name if name is None else name
        self.dimension = dimension
        numbers = json.dumps(
            {
                "rating": None if rating is None else rating.fingerprint,
                "support": asdict(support),
                "min_score": min_score,
                "zoom": None if zoom is None else asdict(zoom),
                "refinement": asdict(refinement),
            }
        )
        digest = hashlib.sha256(numbers.encode()).hexdigest()[:8]
        self.fingerprint = f"{localizer.fingerprint}+finish-{digest}"

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
        return [
            # 7. Those above the threshold, and one of those over the same frames.
            choose_segments(self.rate(self.find(checked, other)), self.min_score)
            for other in others
        ]

    def find(self, query: Array, reference: Array) -> list[Candidates]:
        """Steps 1 to 4. One group for the pair, or one a candidate where the pair is very long."""
        # 1. Segments of the whole pair and of its tiles, each with direction and speed.
        look = look_closer(self.localizer, query, reference, self.zoom)
        groups = []
        # 2. The maps around them.
        for maps, segments, low, start in map_surroundings(query, reference, look.segments):
            # 3. Ends to the second; pieces of one copy become one segment.
            refined = refine_candidates(maps, segments, self.refinement)
            # 4. What speaks for each of them.
            facts = describe_segments(maps, refined, look.logit)
            moved = [shift_segment(each, low, start) for each in refined]
            groups.append(Candidates(moved, facts, look.logit))
        return groups

    def rate(self, groups: Sequence[Candidates]) -> list[Segment]:
        """Steps 5 and 6: all candidates with their final scores, before any threshold."""
        rated: list[Segment] = []
        for group in groups:
            if self.rating is None:
                rated += group.segments
                continue
            # 5. A probability from the facts, in place of the localizer's score.
            scored = rate_segments(group.segments, group.facts, self.rating)
            # 6. Higher where the network takes the whole pair for a copy.
            rated += [self.support.lift(each, group.logit) for each in scored]
        return rated


def refine_candidates(
    maps: Maps, candidates: Sequence[Segment], refinement: Refinement = DEFAULT
) -> list[Segment]:
    """Refined, joined where they are pieces of one copy, and refined again where they were."""
    refined = [refine_segment(maps, each, refinement) for each in candidates]
    joined = join_pieces(refined)
    known = set(refined)
    return [each if each in known else refine_segment(maps, each, refinement) for each in joined]


def load_pipeline(
    weights: str | Path | None = None,
    device: str = "auto",
    *,
    min_score: float | None = None,
    iou_threshold: float = 0.3,
    overlap: int = 200,
    has_reversed_pass: bool = False,
    cascade: Cascade | str = "auto",
    batch_frames: int = 20_000,
    runtime: str = "auto",
) -> Localizer:
    """Localizer `transvcl`: the pipeline where the weights bring a rating, else the detector alone.

    The authors' weights bring none, so they are the detector of the paper and nothing more.
    `min_score` is a threshold on the final score; None takes the one that the weights bring. The
    other options are those of `TransVCLLocalizer`.
    """
    model, facts = open_weights(weights)
    if facts.refusal:
        raise MissingWeights(
            f"{weights or SHIPPED_WEIGHTS} was finished by another version ({facts.refusal}); "
            "finish it anew by `vcl finish`"
        )
    finish = facts.finish
    # With a rating the detector gets the network and not its file: that brings a calibration for
    # the detector alone, and the rating was fitted on scores as they are.
    detector = TransVCLLocalizer(
        weights if finish is None else model,
        device,
        min_score=min_score if finish is None else finish.candidate_score,
        iou_threshold=iou_threshold,
        overlap=overlap,
        has_reversed_pass=has_reversed_pass,
        cascade=choose_cascade(cascade, facts) or "off",
        batch_frames=batch_frames,
        runtime=runtime,
    )
    if finish is None:
        return detector
    return Pipeline(
        detector,
        finish.rating,
        finish.min_rating if min_score is None else min_score,
        finish.zoom,
        support=finish.support,
        name="transvcl",
        dimension=model.config.dimension,
    )
