"""How much speaks for a found copy: facts of the map around it, and a probability from them.

In: a pair's maps and its segments. Out: facts (segments, 17), and calibrated scores.
Called after refinement, for any method that brings a fitted `Rating`. A detector's confidence says
"this looks like a copy"; the facts say what it cannot see at its resolution: whether frames agree
along the line and nowhere else, as in a copy and not in stills, cards or the next take of a scene.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Array, Localizer
from retrieval.records import Segment
from vcl_plugin.localize.boxes import box_areas, intersection_matrix
from vcl_plugin.localize.changes import describe_line
from vcl_plugin.localize.ends import DEFAULT, Maps, Refinement, map_pair, refine_segment
from vcl_plugin.localize.zoom import Zoom, join_pieces, look_closer, shift_segment

Map = NDArray[np.float32]
Facts = NDArray[np.float64]
FACTS = (
    "confidence",  # logit of the method's own score
    "match",  # similarity along the line
    "contrast",  # the same above the pair's background
    "deviations",  # the same in the background's own spread
    "worst",  # similarity that nine of ten frames along the line exceed
    "motion",  # along the line, above the rest of the box: a still shot has none
    "row_lead",  # above the best other reference frames of each query frame
    "column_lead",  # above the best other query frames of each reference frame
    "ridge",  # along the line, above the cells right beside it
    "agreement",  # share of frames whose best partner in the box lies on the line
    "change",  # similarity of changes along the line: what a fixed camera's frames agree in
    "change_lead",  # the same above the best line beside it
    "change_votes",  # seconds whose changes agree best on the line, against chance
    "change_proof",  # the same above all lines beside it, in standard errors
    "video",  # what the method says of the pair as a whole, a logit; 0 if it says nothing
    "length",  # logarithm of the shorter side in seconds
    "tilt",  # distance of the speed from 1
)
REVISION = 2  # of how facts are measured: a rating is of no use with those of another
BAND = 3  # seconds beside the line that still belong to it: neighbouring frames look alike
# Beyond this many cells of a map (64 MB) each candidate is judged in its surroundings alone.
MAX_CELLS, SURROUNDINGS = 16_000_000, 300
MOST_SHARE = 0.9  # quantile that stands for "the best other frames"


@dataclass(frozen=True)
class Rating:
    """Facts to a probability: scaled, one hidden layer, a logistic end. Plain numbers throughout,
    so that it travels as JSON inside a weights file."""

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
    """How far a method's say on the whole pair, a logit, lifts the segments in it.

    It may speak for them and never against: before a fixed camera a video-level head sees next to
    nothing, and a copy that its changes prove must not be talked down. Nor is its word ever proof:
    in a pair that does hold a copy it would carry every look-alike scene along.
    """

    weight: float = 0.0
    middle: float = 0.0
    most: float = math.inf  # logits; 1.1 makes odds of 1 to 1 ones of 3 to 1

    def lift(self, segment: Segment, video_logit: float) -> Segment:
        lift = min(self.weight * max(0.0, video_logit - self.middle), self.most)
        if not lift:
            return segment
        score = min(max(segment.score, 1e-6), 1 - 1e-6)
        return replace(segment, score=1 / (1 + math.exp(-(math.log(score / (1 - score)) + lift))))


NO_SUPPORT = Support()


def finish_segments(
    query: Array,
    reference: Array,
    candidates: Sequence[Segment],
    rating: Rating | None,
    min_score: float = 0.0,
    refinement: Refinement = DEFAULT,
    video_logit: float = 0.0,
    support: Support = NO_SUPPORT,
) -> list[Segment]:
    """Candidates become results: ends to the second, pieces joined, scores that mean what they say.

    `min_score` is applied to the new scores; without a rating the old ones stay. `video_logit` is
    what the method says of the whole pair: a fact, and a support. Of two results over the same
    frames the one with more to expect (score times seconds) is kept.
    """
    if not candidates:
        return []
    if len(query) * len(reference) <= MAX_CELLS:
        rated = rate_candidates(
            map_pair(query, reference), candidates, rating, video_logit, support, refinement
        )
    else:
        rated = []
        for each in candidates:
            low = [max(0, int(side.start) - SURROUNDINGS) for side in (each.query, each.reference)]
            high = [int(side.end) + SURROUNDINGS for side in (each.query, each.reference)]
            part = map_pair(query[low[0] : high[0]], reference[low[1] : high[1]])
            moved = [shift_segment(each, -low[0], -low[1])]
            found = rate_candidates(part, moved, rating, video_logit, support, refinement)
            rated += [shift_segment(one, low[0], low[1]) for one in found]
    return choose_segments([each for each in rated if each.score >= min_score])


def rate_candidates(
    maps: Maps,
    candidates: Sequence[Segment],
    rating: Rating | None,
    video_logit: float = 0.0,
    support: Support = NO_SUPPORT,
    refinement: Refinement = DEFAULT,
) -> list[Segment]:
    """Candidates refined, joined and, if there is a rating, scored by it."""
    refined = refine_candidates(maps, candidates, refinement)
    if rating is None:
        return refined
    scores = rating.rate(describe_segments(maps, refined, video_logit))
    return [
        support.lift(replace(each, score=float(score)), video_logit)
        for each, score in zip(refined, scores, strict=True)
    ]


def refine_candidates(
    maps: Maps, candidates: Sequence[Segment], refinement: Refinement = DEFAULT
) -> list[Segment]:
    """Refined, joined where they are pieces of one copy, and refined again where they were."""
    refined = [refine_segment(maps, each, refinement) for each in candidates]
    joined = join_pieces(refined)
    known = set(refined)
    return [each if each in known else refine_segment(maps, each, refinement) for each in joined]


def choose_segments(segments: Sequence[Segment], max_overlap: float = 0.3) -> list[Segment]:
    """Best first by score times seconds; what shares more than `max_overlap` of the smaller box
    with a better one is left out. In query order."""
    ordered = sorted(segments, key=lambda each: -each.score * each.query.seconds)
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
    similarity = maps.similarity
    rows, columns = similarity.shape
    q_start, r_start, q_end, r_end = segment.box
    q0, q1 = int(q_start), max(int(np.ceil(q_end)), int(q_start) + 1)
    q1 = min(q1, rows)
    r0, r1 = int(r_start), min(max(int(np.ceil(r_end)), int(r_start) + 1), columns)
    slope = segment.line.speed
    line = segment.line.reference_at(np.arange(q0, q1) + 0.5)
    line = np.clip(line - 0.5, 0, columns - 1)  # (L,) column of each row
    near = np.clip(np.rint(line).astype(int)[:, None] + np.array([-1, 0, 1]), 0, columns - 1)
    stripe = similarity[q0:q1]  # (L, m)
    values = np.take_along_axis(stripe, near, axis=1).max(axis=1)  # (L,)
    is_beside = np.abs(np.arange(columns)[None] - line[:, None]) > BAND * max(1.0, slope)
    inside = is_beside[:, r0:r1]
    rest = stripe[:, r0:r1][inside]
    if rest.size < 4:  # a box as narrow as the line: what lies beside it must do
        low, high = max(r0 - 10, 0), min(r1 + 10, columns)
        rest = stripe[:, low:high][is_beside[:, low:high]]
    mean = float(values.mean())
    across = similarity[:, r0:r1]  # (n, W)
    passing = np.interp(
        np.arange(r0, r1),
        np.sort(line),
        (np.arange(q0, q1)[::-1] if segment.is_reversed else np.arange(q0, q1)).astype(float),
    )
    is_above = np.abs(np.arange(rows)[:, None] - passing[None]) > BAND * max(1.0, 1 / slope)
    box = stripe[:, r0:r1]
    is_on = ~is_beside[:, r0:r1]
    by_row = np.take_along_axis(is_on, box.argmax(axis=1)[:, None], axis=1).mean()
    by_column = is_on[box.argmax(axis=0), np.arange(r1 - r0)].mean()
    reach = np.array([-5, -4, 4, 5]) * max(1.0, slope)
    beside = np.rint(line[:, None] + reach).astype(int)
    is_cell = (beside >= 0) & (beside < columns)
    shoulder = np.take_along_axis(stripe, beside.clip(0, columns - 1), axis=1)[is_cell]
    clipped = min(max(segment.score, 1e-4), 1 - 1e-4)
    return (
        float(np.log(clipped / (1 - clipped))),
        mean,
        mean - background,
        min((mean - background) / spread, 40.0) / 10,
        float(np.quantile(values, 0.1)),
        mean - (float(rest.mean()) if rest.size else background),
        mean - _best_others(stripe, is_beside, 1, background),
        mean - _best_others(across, is_above, 0, background),
        mean - (float(shoulder.mean()) if shoulder.size else background),
        float(by_row + by_column) / 2,
        *describe_line(maps.query, maps.reference_changes, segment),
        float(np.log(min(q_end - q_start, r_end - r_start))),
        float(abs(np.log(slope))),
    )


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


class FinishedLocalizer:
    """Any localizer, its candidates from one look or two, refined, joined and rated."""

    def __init__(
        self,
        localizer: Localizer,
        rating: Rating | None = None,
        min_score: float = 0.0,
        zoom: Zoom | None = None,
        refinement: Refinement = DEFAULT,
        read_logit: Callable[[Array, Array], float] | None = None,
        support: Support = NO_SUPPORT,
    ) -> None:
        self.localizer, self.rating, self.min_score = localizer, rating, min_score
        self.read_logit, self.support = read_logit, support
        self.zoom, self.refinement = zoom, refinement
        self.name = localizer.name
        facts = json.dumps(
            {
                "rating": None if rating is None else rating.fingerprint,
                "support": asdict(support),
                "min_score": min_score,
                "zoom": None if zoom is None else asdict(zoom),
                "refinement": asdict(refinement),
            }
        )
        digest = hashlib.sha256(facts.encode()).hexdigest()[:8]
        self.fingerprint = f"{localizer.fingerprint}+finish-{digest}"

    def localize(self, query: Array, reference: Array) -> list[Segment]:
        found = look_closer(self.localizer, query, reference, self.zoom)
        logit = self.read_logit(query, reference) if self.read_logit and found else 0.0
        return finish_segments(
            query,
            reference,
            found,
            self.rating,
            self.min_score,
            self.refinement,
            logit,
            self.support,
        )

    def localize_many(self, query: Array, references: Sequence[Array]) -> list[list[Segment]]:
        return [self.localize(query, each) for each in references]
