"""TransVCL as a localizer: two descriptor arrays in, copied segments out, whatever their length.

In: a query and its candidate references, (frames, 256) each, one frame a second.
Out: `Segment`s, ordered by query time, inside both videos, with score, direction and speed.
The first step of `pipeline`; alone it is loaded through the entry point `transvcl-detector`.

A video longer than one map is cut into overlapping tiles, every query tile meets every reference
tile, and pieces of one copy are stitched. The score is objectness x class probability (the authors
keep objectness alone), calibrated where the weights file brings a calibration.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from retrieval.arrays import as_descriptors
from retrieval.errors import BadSetting
from retrieval.plugins import Array
from retrieval.records import Segment, Span
from vcl_plugin.localize.boxes import Boxes, clamp_boxes, nms, stitch_boxes, tile_starts
from vcl_plugin.localize.motion import estimate_motion
from vcl_plugin.localize.weights import Cascade, WeightsFacts, open_weights
from vcl_plugin.localize.zoom import Look
from vcl_plugin.model.checkpoint import fingerprint_weights
from vcl_plugin.model.fast.device import HalvingBatch, choose_device
from vcl_plugin.model.fast.frozen import FrozenTransVCL, VideoState
from vcl_plugin.model.transvcl import TransVCL

Detected = tuple[Boxes, NDArray[Any], Boxes]  # boxes, their scores, the tile that saw each
_MIN_SIDE = 0.5  # seconds; a box of which clamping leaves less is dropped
# Direction and speed are read from the middle of a long segment: a map of 2 hours takes 200 MB.
_MOTION_FRAMES = 1200


@dataclass(frozen=True)
class LocalizerOptions:
    """Everything besides the weights that can change a result; part of the fingerprint."""

    min_score: float = 0.1
    iou_threshold: float = 0.3
    overlap: int = 200  # frames that neighbouring tiles share
    has_reversed_pass: bool = False  # a second look with the reference turned round; twice the cost
    cascade: Cascade | None = None
    calibration: tuple[float, float] = (1.0, 0.0)  # slope and offset on the score's logit

    def __post_init__(self) -> None:
        for name in ("min_score", "iou_threshold"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BadSetting(f"{name} is {getattr(self, name)}; it must lie within 0 and 1")
        if self.overlap < 0:
            raise BadSetting(f"overlap is {self.overlap}; it must be 0 or more frames")
        if not self.calibration[0] > 0:
            raise BadSetting(f"calibration slope {self.calibration[0]} must be positive")


@dataclass(frozen=True, slots=True)
class Tile:
    """Frames `[start, end)` of a video, as the network keeps them."""

    start: int
    end: int
    state: VideoState


class TransVCLLocalizer:
    """Localizer `transvcl-detector`: the network's boxes as they are.

    `weights` is our safetensors or the authors' `.pth`, or a network in memory (training asks for
    its score that way; it is copied); None is the file shipped with the package.
    `cascade` "auto" uses the limits that training wrote into the weights file, if any, so it is
    off for the authors' weights; "off" never skips the detector. `has_reversed_pass` also looks at
    the reference backwards: for weights that were not trained on reversed copies.
    """

    name = "transvcl-detector"

    def __init__(
        self,
        weights: str | Path | TransVCL | None = None,
        device: str = "auto",
        *,
        min_score: float | None = None,
        iou_threshold: float = 0.3,
        overlap: int = 200,
        has_reversed_pass: bool = False,
        cascade: Cascade | str = "auto",
        batch_frames: int = 20_000,
        runtime: str = "auto",
    ) -> None:
        if batch_frames < 1:
            raise BadSetting(f"batch_frames is {batch_frames}; it must be positive")
        chosen = choose_device(device)
        model, facts = open_weights(weights)
        self.descriptor = facts.descriptor
        self.options = LocalizerOptions(
            min_score=facts.min_score if min_score is None else min_score,
            iou_threshold=iou_threshold,
            # A quarter of the map at most, for networks with a short one.
            overlap=min(overlap, model.config.max_frames // 4),
            has_reversed_pass=has_reversed_pass,
            cascade=choose_cascade(cascade, facts),
            calibration=facts.calibration,
        )
        self.fingerprint = _fingerprint(fingerprint_weights(model), self.options)
        self.network = FrozenTransVCL(model, chosen, runtime)
        self._states = _StateCache(max_frames=batch_frames)
        # A CPU runs pictures one by one fastest; a GPU wants them together.
        most = 1 if chosen.type == "cpu" else max(1, batch_frames // model.config.max_frames)
        self._batch = HalvingBatch(self._detect_pictures, most)

    def localize(self, query: ArrayLike, reference: ArrayLike) -> list[Segment]:
        dimension = self.network.config.dimension
        one = as_descriptors(query, "query", dimension)
        return self.look(one, as_descriptors(reference, "reference", dimension)).segments

    def localize_many(
        self, query: ArrayLike, references: Sequence[ArrayLike]
    ) -> list[list[Segment]]:
        """One list a reference, in their order. All arrays are checked before any work."""
        dimension = self.network.config.dimension
        checked = as_descriptors(query, "query", dimension)
        others = [
            as_descriptors(each, f"reference {i}", dimension) for i, each in enumerate(references)
        ]
        return [self.look(checked, other).segments for other in others]

    def look(self, query: Array, reference: Array) -> Look:
        """Segments, and the video-level head's logit: that of the most suspicious pair of tiles."""
        (found, scores, tiles), logit = self._detect(query, reference)
        if self.options.has_reversed_pass:
            (turned, more, seen), _ = self._detect(query, np.ascontiguousarray(reference[::-1]))
            found = np.concatenate([found, _turn(turned, len(reference))])
            tiles = np.concatenate([tiles, _turn(seen, len(reference))])
            scores = np.concatenate([scores, more])
        found, scores = stitch_boxes(found, scores, tiles, (len(query), len(reference)))
        kept = nms(found, scores, self.options.iou_threshold)
        segments = [
            self._segment(query, reference, found[i], float(scores[i])) for i in kept.tolist()
        ]
        return Look(sorted(segments, key=lambda each: each.box), logit)

    def _detect(self, query: Array, reference: Array) -> tuple[Detected, float]:
        query_tiles = list(self._tiles(query, side=0))
        logit = -math.inf
        parts: list[Detected] = []
        waiting: list[tuple[Tile, Tile, torch.Tensor]] = []
        for r in self._tiles(reference, side=1):
            for q in query_tiles:
                match = self.network.match(q.state, r.state)
                logit = max(logit, match.video_logit)
                cascade = self.options.cascade
                if cascade is not None and cascade.is_sure_negative(match):
                    continue
                waiting.append((q, r, self.network.picture(match)))
                if len(waiting) >= self._batch.size:
                    parts += self._read_boxes(waiting)
                    waiting = []
        parts += self._read_boxes(waiting)
        if not parts:
            return (np.zeros((0, 4)), np.zeros(0), np.zeros((0, 4))), logit
        boxes, scores, tiles = (np.concatenate(each) for each in zip(*parts, strict=True))
        return (boxes, scores, tiles), logit

    def _tiles(self, video: Array, side: int) -> Iterator[Tile]:
        longest = self.network.config.max_frames
        for start in tile_starts(len(video), longest, self.options.overlap):
            frames = video[start : start + longest]
            state = self._states.get(frames, side)
            if state is None:
                # A copy: torch refuses read-only memory maps, and a state must not change later.
                state = self.network.encode(torch.from_numpy(frames.copy()), side)
                self._states.put(frames, side, state)
            yield Tile(start, start + len(frames), state)

    def _detect_pictures(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.network.detect(pictures, self.options.min_score)

    def _read_boxes(self, waiting: Sequence[tuple[Tile, Tile, torch.Tensor]]) -> list[Detected]:
        if not waiting:
            return []
        rows = self._batch.run([picture for _, _, picture in waiting])
        size = self.network.config.map_size
        read: list[Detected] = []
        for (q, r, _), each in zip(waiting, rows, strict=True):
            boxes, scores = select_boxes(
                each.cpu().numpy(), self.options.min_score, (q.end - q.start, r.end - r.start), size
            )
            kept = nms(boxes, scores, self.options.iou_threshold)
            shift = np.asarray([q.start, r.start, q.start, r.start])
            tile = np.asarray([[q.start, r.start, q.end, r.end]], dtype=np.float64)
            read.append((boxes[kept] + shift, scores[kept], tile.repeat(len(kept), axis=0)))
        return read

    def _segment(self, query: Array, reference: Array, box: Boxes, score: float) -> Segment:
        is_reversed, speed = read_motion(query, reference, box)
        q_start, r_start, q_end, r_end = (float(value) for value in box)
        return Segment(
            Span(q_start, q_end),
            Span(r_start, r_end),
            calibrate(score, self.options.calibration),
            is_reversed,
            speed,
        )


def select_boxes(
    rows: NDArray[Any], min_score: float, frames: tuple[int, int], map_size: int
) -> tuple[Boxes, NDArray[Any]]:
    """Decoded rows (cx, cy, w, h, obj, cls) to clamped boxes in frames, and their scores.

    y is the query, x the reference; the map was `frames` long before it was resized.
    """
    scores = rows[:, 4].astype(np.float64) * rows[:, 5]
    chosen = np.flatnonzero(scores >= min_score)
    centre, half = rows[chosen, :2].astype(np.float64), rows[chosen, 2:4].astype(np.float64) / 2
    scale = np.asarray([frames[1], frames[0]]) / map_size
    low, high = (centre - half) * scale, (centre + half) * scale
    boxes = np.stack([low[:, 1], low[:, 0], high[:, 1], high[:, 0]], axis=1)
    clamped, kept = clamp_boxes(boxes, *frames, min_side=_MIN_SIDE)
    return clamped, scores[chosen][kept]


def read_motion(query: Array, reference: Array, box: Boxes) -> tuple[bool, float]:
    """Direction and speed from the cosines inside the box, or inside the middle of a long one."""
    sides = box[2:] - box[:2]
    share = min(1.0, _MOTION_FRAMES / float(sides.max()))
    low = (box[:2] + box[2:]) / 2 - sides / 2 * share
    high = low + sides * share
    q0, r0 = (max(0, math.floor(value)) for value in low)  # rounding can end just below 0
    q1, r1 = (math.ceil(value) for value in high)
    cosine = query[q0:q1] @ reference[r0:r1].T
    inside = (low[0] - q0, low[1] - r0, high[0] - q0, high[1] - r0)
    return estimate_motion(cosine, inside)


def calibrate(score: float, calibration: tuple[float, float]) -> float:
    """The score's logit times slope plus offset, as a probability again.

    >>> calibrate(0.25, (1.0, 0.0))
    0.25
    """
    slope, offset = calibration
    if (slope, offset) == (1.0, 0.0) or not 0.0 < score < 1.0:
        return min(max(score, 0.0), 1.0)
    return 1.0 / (1.0 + math.exp(-(slope * math.log(score / (1.0 - score)) + offset)))


def _turn(boxes: Boxes, reference_frames: int) -> Boxes:
    """Boxes of a reference that was read backwards, in its own time again."""
    turned = boxes.copy()
    turned[:, 1], turned[:, 3] = reference_frames - boxes[:, 3], reference_frames - boxes[:, 1]
    return turned


def choose_cascade(cascade: Cascade | str, facts: WeightsFacts) -> Cascade | None:
    """The limits to use: those given, or for "auto" those of the weights file, if it has any."""
    if isinstance(cascade, Cascade):
        return cascade
    if cascade not in ("auto", "off"):
        raise BadSetting(f"cascade is {cascade!r}; use auto, off or Cascade(max_logit, max_peak)")
    return facts.cascade if cascade == "auto" else None


def _fingerprint(weights: str, options: LocalizerOptions) -> str:
    facts = json.dumps(asdict(options), sort_keys=True)
    return f"transvcl-{weights}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


class _StateCache:
    """The most recently used tiles' states, by content: the query's, and popular references'."""

    def __init__(self, max_frames: int) -> None:
        self.max_frames = max_frames
        self.frames = 0
        self._states: OrderedDict[bytes, VideoState] = OrderedDict()

    def get(self, frames: Array, side: int) -> VideoState | None:
        key = self._key(frames, side)
        if key in self._states:
            self._states.move_to_end(key)
        return self._states.get(key)

    def put(self, frames: Array, side: int, state: VideoState) -> None:
        self._states[self._key(frames, side)] = state
        self.frames += state.frames
        while self.frames > self.max_frames and len(self._states) > 1:
            self.frames -= self._states.popitem(last=False)[1].frames

    def _key(self, frames: Array, side: int) -> bytes:
        return hashlib.blake2b(frames.data, digest_size=16, salt=bytes([side])).digest()
