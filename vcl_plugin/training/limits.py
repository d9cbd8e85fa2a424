"""Limits of the cascade: when encoder and map show so little that the detector is not run.

In: a network and training pairs. Out: a `Cascade`, or None where nothing may be skipped.
The limits are stored in the weights file, and the localizer uses them. Most looks at a pair, and
nearly all at its tiles, show nothing, so skipping the detector saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Array
from vcl_plugin.localize.boxes import iou_matrix
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.weights import Cascade
from vcl_plugin.localize.zoom import Zoom, cut_pair
from vcl_plugin.model.fast.frozen import Match
from vcl_plugin.model.transvcl import TransVCL
from vcl_plugin.training.augment import TrainingPair

RIGHT_IOU = 0.3
MAX_LOST = 0.001  # of the looks in which the detector is right; most copies are seen in several


class Looks(NamedTuple):
    """One row a look at a pair or a tile of it."""

    logits: NDArray[np.float64]
    peaks: NDArray[np.float64]
    is_right: NDArray[np.bool_]  # the detector found a copy that is there


@dataclass(frozen=True)
class Recorder(Cascade):
    """A cascade that skips nothing and writes down what it was asked about."""

    max_logit: float = -np.inf
    max_peak: float = -np.inf
    seen: list[tuple[float, float]] = field(default_factory=list)

    def is_sure_negative(self, match: Match) -> bool:
        self.seen.append((match.video_logit, match.peak()))
        return False


def collect_looks(
    model: TransVCL,
    pairs: Iterable[TrainingPair],
    zoom: Zoom | None,
    min_score: float,
    on_pair: Callable[[], None] = lambda: None,
) -> Looks:
    """What encoder and map say of every look at the pairs, and whether the detector is right."""
    recorder = Recorder()
    localizer = TransVCLLocalizer(model, min_score=min_score, cascade=recorder)
    rows: list[tuple[float, float, bool]] = []
    for pair in pairs:
        for low, start, part, tile in cut_pair(pair.query, pair.reference, zoom):
            recorder.seen.clear()
            boxes = [each.box for each in localizer.localize(part, tile)]
            truth = clip_boxes(pair.boxes, (low, start), (len(part), len(tile)))
            is_right = bool(boxes) and bool(len(truth)) and iou_matrix(boxes, truth).max()
            logit, peak = (max(values) for values in zip(*recorder.seen, strict=True))
            rows.append((logit, peak, bool(is_right >= RIGHT_IOU)))
        on_pair()
    logits, peaks, right = zip(*rows, strict=True) if rows else ((), (), ())
    return Looks(np.array(logits), np.array(peaks), np.array(right, bool))


def clip_boxes(
    boxes: Array | None, starts: tuple[int, int], sides: tuple[int, int]
) -> NDArray[np.float64]:
    """True boxes in the time of a tile, cut to the tile.

    >>> clip_boxes(np.array([[10, 20, 40, 50], [0, 0, 5, 5]]), (20, 0), (30, 40)).tolist()
    [[0.0, 20.0, 20.0, 40.0]]
    """
    if boxes is None or not len(boxes):
        return np.zeros((0, 4))
    moved = np.asarray(boxes, np.float64) - np.array([*starts, *starts])
    clipped = moved.clip(0, np.array([*sides, *sides]))
    return clipped[(clipped[:, 2:] - clipped[:, :2] >= 1).all(axis=1)]


def choose_cascade(looks: Looks, max_lost: float = MAX_LOST) -> Cascade | None:
    """Limits of which each, taken alone, would skip at most `max_lost` of the right looks.

    Skipped is only what is below both. Choosing the two together, so that both at once lose that
    share, skipped more training pairs, but also every real copy in front of a fixed camera: their
    logits and peaks are lower than any in training.
    """
    if not looks.is_right.any():
        return None
    limits = (
        np.quantile(each[looks.is_right], max_lost, method="lower")
        for each in (looks.logits, looks.peaks)
    )
    # A look at the limit is skipped, so the limit lies just below the lowest look to keep.
    return Cascade(*(float(np.nextafter(each, -np.inf)) for each in limits))


def skipped_share(looks: Looks, cascade: Cascade) -> float:
    """Share of all looks at which the detector is not run."""
    is_skipped = (looks.logits <= cascade.max_logit) & (looks.peaks <= cascade.max_peak)
    return float(is_skipped.mean())
