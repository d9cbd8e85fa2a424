"""How much speaks for a found copy: facts of the map around it, and a probability from them.

In: a pair's maps and its segments. Out: facts (segments, 17), and calibrated scores.
The numbers of a `Rating` are fitted by `training/finishing.py`. A detector's score says "this looks
like a copy". The facts say what the detector cannot see at its resolution: whether frames agree
along the line and nowhere else. They do in a copy, and not in still shots, title cards or the next
take of a scene.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.records import Segment
from vcl_plugin.localize.boxes import box_areas, intersection_matrix
from vcl_plugin.localize.changes import describe_line
from vcl_plugin.localize.maps import Map, Maps

Facts = NDArray[np.float64]
FACTS = (
    "confidence",  # logit of the method's own score
    "match",  # mean similarity along the line
    "contrast",  # match minus background, the median of the map
    "deviations",  # the same in standard deviations of the background, divided by 10
    "worst",  # similarity that nine of ten frames along the line exceed
    "motion",  # match minus the rest of the box; 0 in a still shot
    "row_lead",  # match minus the best other reference frames of each query frame
    "column_lead",  # match minus the best other query frames of each reference frame
    "ridge",  # match minus the cells right beside the line
    "agreement",  # share of frames whose best partner in the box lies on the line
    "change",  # this and the next three: `changes.LineFacts`
    "change_lead",
    "change_votes",
    "change_proof",
    "video",  # what the method says of the pair as a whole, a logit; 0 if it says nothing
    "length",  # logarithm of the shorter side in seconds
    "tilt",  # absolute logarithm of the speed
)
REVISION = 2  # of how facts are measured; a rating that learnt from another one is refused
BAND = 3  # seconds beside the line that still belong to it: neighbouring frames look alike
MOST_SHARE = 0.9  # quantile that stands for "the best other frames"


@dataclass(frozen=True)
class Rating:
    """A small network from facts to a probability: scaling, one hidden layer, a logistic output.

    It holds plain numbers only, so that it can be stored as JSON in a weights file.
    """

    middle: tuple[float, ...]  # (facts,)
    scale: tuple[float, ...]  # (facts,)
    hidden: tuple[tuple[float, ...], ...]  # (units, facts + 1), the last column is the bias
    weights: tuple[float, ...]  # (units + 1,), the last one is the bias

    def __post_init__(self) -> None:
        count = len(FACTS)
        sizes = {len(self.middle), len(self.scale), *(len(row) - 1 for row in self.hidden)}
        if sizes != {count} or len(self.weights) != len(self.hidden) + 1:
            raise ValueError(
                f"a rating weighs {count} facts; this one has {sorted(sizes)} and "
                f"{len(self.weights)} weights for {len(self.hidden)} units"
            )

    def rate(self, facts: Facts) -> NDArray[np.float64]:
        """Probability that each described segment is a copy."""
        scaled = np.clip((facts - np.asarray(self.middle)) / np.asarray(self.scale), -6, 6)
        layer = np.asarray(self.hidden)
        units = np.tanh(scaled @ layer[:, :-1].T + layer[:, -1])
        logits = units @ np.asarray(self.weights[:-1]) + self.weights[-1]
        chances: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
        return chances

    def calibrated(self, slope: float, offset: float) -> Rating:
        """The rating whose logit is `slope` times this one's, plus `offset`."""
        *weights, bias = self.weights
        return replace(self, weights=(*(slope * each for each in weights), slope * bias + offset))

    def as_dict(self) -> dict[str, Any]:
        return {"facts": list(FACTS), "revision": REVISION, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rating:
        if tuple(values["facts"]) != FACTS:
            others = sorted(set(values["facts"]) ^ set(FACTS))
            raise ValueError(f"its rating and ours differ in the facts {', '.join(others)}")
        if (revision := values.get("revision", 1)) != REVISION:
            raise ValueError(f"its facts are of revision {revision}, ours of {REVISION}")
        return cls(
            tuple(values["middle"]),
            tuple(values["scale"]),
            tuple(tuple(row) for row in values["hidden"]),
            tuple(values["weights"]),
        )

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.as_dict()).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Support:
    """How much the logit of the whole pair raises the scores of the segments in it.

    It never lowers them: in front of a fixed camera the video-level head sees next to nothing, and
    a copy that its changes prove must not suffer from that. Nor does it raise them without limit:
    in a pair that does hold a copy, every look-alike scene would pass as one.
    """

    weight: float = 0.0  # of the logit above `middle`
    middle: float = 0.0
    most: float = math.inf  # logits; 1.1 turns odds of 1 to 1 into 3 to 1

    def lift(self, segment: Segment, video_logit: float) -> Segment:
        lift = min(self.weight * max(0.0, video_logit - self.middle), self.most)
        if not lift:
            return segment
        score = min(max(segment.score, 1e-6), 1 - 1e-6)
        return replace(segment, score=1 / (1 + math.exp(-(math.log(score / (1 - score)) + lift))))


NO_SUPPORT = Support()


def rate_segments(segments: Sequence[Segment], facts: Facts, rating: Rating) -> list[Segment]:
    """The segments, each scored by its row of facts."""
    scores = rating.rate(facts).tolist()
    return [replace(each, score=score) for each, score in zip(segments, scores, strict=True)]


def choose_segments(
    segments: Sequence[Segment], min_score: float = 0.0, max_overlap: float = 0.3
) -> list[Segment]:
    """Of segments over the same frames the best, by score times seconds; in query order.

    Two are over the same frames if they share more than `max_overlap` of the smaller box. The
    threshold comes first: a long unlikely segment must not hide a short sure one.
    """
    likely = [each for each in segments if each.score >= min_score]
    ordered = sorted(likely, key=lambda each: -each.score * each.query.seconds)
    boxes = np.array([each.box for each in ordered]).reshape(-1, 4)
    areas = box_areas(boxes)
    common = intersection_matrix(boxes, boxes)
    kept: list[int] = []
    for i in range(len(ordered)):
        if all(common[i, k] <= max_overlap * min(areas[i], areas[k]) for k in kept):
            kept.append(i)
    return sorted((ordered[i] for i in kept), key=lambda each: each.box)


def describe_segments(maps: Maps, segments: Sequence[Segment], video_logit: float = 0.0) -> Facts:
    """(segments, facts), see `FACTS`."""
    if not segments:
        return np.zeros((0, len(FACTS)))
    similarity = maps.similarity
    stride = max(1, int(np.sqrt(similarity.size / 10_000)))
    sample = similarity[::stride, ::stride]
    background = float(np.median(sample))
    spread = max(1.4826 * float(np.median(np.abs(sample - background))), 1e-3)
    facts = [_describe(maps, each, background, spread) for each in segments]
    return np.insert(np.array(facts), FACTS.index("video"), video_logit, axis=1)


def _describe(maps: Maps, segment: Segment, background: float, spread: float) -> tuple[float, ...]:
    trace = Trace.of_segment(maps.similarity, segment)
    values = trace.values()
    match = float(values.mean())
    clipped = min(max(segment.score, 1e-4), 1 - 1e-4)
    return (
        float(np.log(clipped / (1 - clipped))),
        match,
        match - background,
        min((match - background) / spread, 40.0) / 10,
        float(np.quantile(values, 0.1)),
        match - _mean_or(trace.rest_of_box(), background),
        match - _best_others(trace.stripe, trace.is_beside, 1, background),
        match - _best_others(trace.across, trace.is_above_or_below(), 0, background),
        match - _mean_or(trace.shoulders(), background),
        trace.agreement(),
        *describe_line(maps.query, maps.reference_changes, segment),
        float(np.log(min(segment.query.seconds, segment.reference.seconds))),
        float(abs(np.log(segment.line.speed))),
    )


@dataclass(frozen=True)
class Trace:
    """A segment's line in the cells of a map (n, m), and its box of L rows and W columns."""

    similarity: Map
    rows: slice
    columns: slice
    line: NDArray[np.float64]  # (L,) column of each row
    speed: float
    is_reversed: bool
    is_beside: NDArray[np.bool_]  # (L, m): not on the line, as seen along each row

    @classmethod
    def of_segment(cls, similarity: Map, segment: Segment) -> Trace:
        height, width = similarity.shape
        q_start, r_start, q_end, r_end = segment.box
        q0, q1 = int(q_start), min(max(int(np.ceil(q_end)), int(q_start) + 1), height)
        r0, r1 = int(r_start), min(max(int(np.ceil(r_end)), int(r_start) + 1), width)
        seconds = segment.line.reference_at(np.arange(q0, q1) + 0.5)
        line = np.clip(seconds - 0.5, 0, width - 1)
        speed = segment.line.speed
        is_beside = np.abs(np.arange(width)[None] - line[:, None]) > BAND * max(1.0, speed)
        rows, columns = slice(q0, q1), slice(r0, r1)
        return cls(similarity, rows, columns, line, speed, segment.is_reversed, is_beside)

    @property
    def stripe(self) -> Map:
        """(L, m): the box's rows in full."""
        return self.similarity[self.rows]

    @property
    def across(self) -> Map:
        """(n, W): the box's columns in full."""
        return self.similarity[:, self.columns]

    def values(self) -> Map:
        """(L,): similarity on the line, the best of three neighbouring cells."""
        last = self.similarity.shape[1] - 1
        near = np.clip(np.rint(self.line).astype(int)[:, None] + np.array([-1, 0, 1]), 0, last)
        values: Map = np.take_along_axis(self.stripe, near, axis=1).max(axis=1)
        return values

    def rest_of_box(self) -> Map:
        """Cells of the box that are not on the line."""
        rest = self.stripe[:, self.columns][self.is_beside[:, self.columns]]
        if rest.size >= 4:
            return rest
        # The box is as narrow as the line: the cells to either side of it take its place.
        wider = slice(max(self.columns.start - 10, 0), self.columns.stop + 10)
        return self.stripe[:, wider][self.is_beside[:, wider]]

    def shoulders(self) -> Map:
        """Cells four and five seconds beside the line."""
        width = self.similarity.shape[1]
        reach = np.array([-5, -4, 4, 5]) * max(1.0, self.speed)
        beside = np.rint(self.line[:, None] + reach).astype(int)
        is_cell = (beside >= 0) & (beside < width)
        cells: Map = np.take_along_axis(self.stripe, beside.clip(0, width - 1), axis=1)[is_cell]
        return cells

    def is_above_or_below(self) -> NDArray[np.bool_]:
        """(n, W): not on the line, as seen along each column."""
        rows = np.arange(self.rows.start, self.rows.stop, dtype=float)
        columns = np.arange(self.columns.start, self.columns.stop)
        met = np.interp(columns, np.sort(self.line), rows[::-1] if self.is_reversed else rows)
        away = np.abs(np.arange(len(self.similarity))[:, None] - met[None])
        is_away: NDArray[np.bool_] = away > BAND * max(1.0, 1 / self.speed)
        return is_away

    def agreement(self) -> float:
        """Share of the box's rows and columns whose best cell is on the line."""
        box, is_on = self.stripe[:, self.columns], ~self.is_beside[:, self.columns]
        by_row = np.take_along_axis(is_on, box.argmax(axis=1)[:, None], axis=1).mean()
        by_column = is_on[box.argmax(axis=0), np.arange(box.shape[1])].mean()
        return float(by_row + by_column) / 2


def _mean_or(cells: Map, fallback: float) -> float:
    return float(cells.mean()) if cells.size else fallback


def _best_others(values: Map, is_other: NDArray[np.bool_], axis: int, fallback: float) -> float:
    """Mean over rows (or columns) of a high quantile of their cells away from the line."""
    hidden = np.where(is_other, values, -2.0)
    count = is_other.sum(axis=axis)
    if not count.any():
        return fallback
    ordered = np.sort(hidden, axis=axis)
    length = values.shape[axis]
    place = np.minimum(length - 1, length - 1 - ((1 - MOST_SHARE) * count).astype(int))
    best = np.take_along_axis(ordered, np.expand_dims(place, axis), axis=axis).squeeze(axis)
    return float(best[count > 0].mean())
