"""What a weights file says besides its weights: thresholds, rating, limits and where it comes from.

In: a weights file of any age, or the facts stored in it. Out: `WeightsFacts`, or a network with it.
Read by `detection`, `pipeline` and `benchmarks/compare.py`; written by `training/finishing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from retrieval.errors import MissingWeights
from vcl_plugin.localize.rating import NO_SUPPORT, Rating, Support
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model.checkpoint import open_transvcl
from vcl_plugin.model.fast.frozen import Match
from vcl_plugin.model.transvcl import TransVCL

SHIPPED_WEIGHTS = Path(__file__).parents[1] / "weights" / "transvcl-small.safetensors"
_OF_DETECTOR = ("min_score", "calibration", "cascade", "descriptor")
_OF_FINISH = ("candidate_score", "rating", "min_rating", "zoom", "support")


@dataclass(frozen=True)
class Cascade:
    """When the detector is skipped: both the video logit and the map's peak are this low."""

    max_logit: float
    max_peak: float

    def is_sure_negative(self, match: Match) -> bool:
        return match.video_logit <= self.max_logit and match.peak() <= self.max_peak


@dataclass(frozen=True)
class Finish:
    """Numbers that turn a network's boxes into results of `transvcl`; fitted by finishing."""

    candidate_score: float  # boxes of the detector are rated from this score on
    rating: Rating
    min_rating: float  # threshold on the rated score
    zoom: Zoom | None = None
    support: Support = NO_SUPPORT


@dataclass(frozen=True)
class WeightsFacts:
    """Facts of one weights file; the defaults are those of a file that says nothing."""

    min_score: float = 0.1  # threshold and calibration of the detector alone
    calibration: tuple[float, float] = (1.0, 0.0)
    cascade: Cascade | None = None
    finish: Finish | None = None
    refusal: str = ""  # why this version cannot use the rating that the file has
    descriptor: str | None = None
    history: Mapping[str, Any] = field(default_factory=dict)  # for people: hours, pairs, numbers

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> WeightsFacts:
        """The stored facts, also those of older files, which lack some."""
        typed = (*_OF_DETECTOR, *_OF_FINISH)
        slope, offset = values.get("calibration", (1.0, 0.0))
        limits = values.get("cascade")
        finish, refusal = None, ""
        if values.get("rating") is not None:
            try:
                finish = _read_finish(values)
            except ValueError as reason:
                refusal = str(reason)
        return cls(
            min_score=values.get("min_score", 0.1),
            calibration=(slope, offset),
            cascade=Cascade(**limits) if limits else None,
            finish=finish,
            refusal=refusal,
            descriptor=values.get("descriptor"),
            history={name: value for name, value in values.items() if name not in typed},
        )

    def as_dict(self) -> dict[str, Any]:
        """As they are stored: flat, so that a version before this record reads them, too."""
        stored: dict[str, Any] = {
            **self.history,
            "min_score": self.min_score,
            "calibration": list(self.calibration),
            "cascade": None if self.cascade is None else asdict(self.cascade),
            "descriptor": self.descriptor,
            **dict.fromkeys(_OF_FINISH),
        }
        if self.finish is not None:
            zoom = self.finish.zoom
            stored |= {
                "candidate_score": self.finish.candidate_score,
                "rating": self.finish.rating.as_dict(),
                "min_rating": self.finish.min_rating,
                "zoom": None if zoom is None else asdict(zoom),
                "support": asdict(self.finish.support),
            }
        return stored


def _read_finish(values: Mapping[str, Any]) -> Finish:
    zoom = values.get("zoom")
    return Finish(
        candidate_score=values["candidate_score"],
        rating=Rating.from_dict(values["rating"]),
        min_rating=values["min_rating"],
        zoom=None if zoom is None else Zoom(**zoom),
        support=Support(**values.get("support", {})),
    )


def open_weights(weights: str | Path | TransVCL | None) -> tuple[TransVCL, WeightsFacts]:
    """Network and facts of a file, ours or the authors' `.pth`; None is the file that ships.

    A network in memory has no facts.
    """
    if isinstance(weights, TransVCL):
        return weights, WeightsFacts()
    path = SHIPPED_WEIGHTS if weights is None else Path(weights)
    if weights is None and not path.is_file():
        raise MissingWeights(
            f"this installation ships no trained weights ({path.name} is absent); pass "
            f"weights=PATH, ours or the authors' .pth, or train with `vcl train`"
        )
    model, stored = open_transvcl(path)
    try:
        return model, WeightsFacts.from_dict(stored)
    except (KeyError, TypeError, ValueError) as reason:
        raise MissingWeights(
            f"{path} holds facts this version cannot read ({reason!r}); use the version that "
            "wrote it"
        ) from None
