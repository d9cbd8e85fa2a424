"""The paper's network as a localizer: two descriptor arrays in, copied segments out.

In: a query and its candidate references, (frames, 256) each, one frame a second.
Out: `Segment`s, ordered by query time, inside both videos, with score, direction and speed.
Loaded through the entry point `transvcl-detector`, and by `transvcl` with weights of this network.

    1. encode   every tile of either video, once             model.fast.frozen
    2. compare  every query tile with every reference tile   model.fast.frozen
    3. detect   boxes above the threshold, suppressed        model.fast.frozen, boxes
    4. stitch   pieces of one copy that a tile border cut    boxes

The score is objectness times class probability; the authors keep objectness alone.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from retrieval.arrays import as_descriptors
from retrieval.errors import BadSetting, MissingWeights
from retrieval.plugins import Array
from retrieval.records import Segment, Span
from vcl_plugin.localize.boxes import Boxes, clamp_boxes, nms, stitch_boxes, tile_starts
from vcl_plugin.model.checkpoint import fingerprint_weights, open_transvcl
from vcl_plugin.model.fast.device import HalvingBatch, choose_device
from vcl_plugin.model.fast.frozen import FrozenTransVCL, VideoState
from vcl_plugin.model.transvcl import TransVCL

Detected = tuple[Boxes, NDArray[Any], Boxes]  # boxes, their scores, the tile that saw each
REVISION = 2  # raised when the same weights begin to give other segments
MIN_SCORE = 0.1  # for weights that bring no threshold of their own
MAX_IOU = 0.3  # of two boxes that are kept
OVERLAP = 200  # frames that neighbouring tiles share, at most a quarter of a tile
MIN_SIDE = 0.5  # seconds; a box of which clamping leaves less is dropped
ASKED_SECONDS = 256  # of a segment, at most, to tell its direction
FALLING = -0.5  # a reversed copy's correlation of query and reference time is below this


@dataclass(frozen=True, slots=True)
class Tile:
    """Frames `[start, end)` of a video, as the network keeps them."""

    start: int
    end: int
    state: VideoState


class TransVCLLocalizer:
    """Localizer `transvcl-detector`.

    `weights` is our safetensors or the authors' `.pth`, or a network in memory (training asks for
    its score that way; it is copied); None is the file shipped with the package. `min_score` None
    is the threshold that the weights bring. `batch_frames` bounds what is kept and done at once.
    """

    name = "transvcl-detector"

    def __init__(
        self,
        weights: str | Path | TransVCL | None = None,
        device: str = "auto",
        *,
        min_score: float | None = None,
        batch_frames: int = 20_000,
        runtime: str = "auto",
    ) -> None:
        if batch_frames < 1:
            raise BadSetting(f"batch_frames is {batch_frames}; it must be positive")
        if min_score is not None and not 0.0 <= min_score <= 1.0:
            raise BadSetting(f"min_score is {min_score}; it must lie within 0 and 1")
        chosen = choose_device(device)
        model, learnt_score, self.descriptor = open_network(weights)
        self.min_score = learnt_score if min_score is None else min_score
        settings = repr((REVISION, self.min_score, MAX_IOU, OVERLAP, MIN_SIDE)).encode()
        digest = hashlib.sha256(settings).hexdigest()[:8]
        self.fingerprint = f"transvcl-{fingerprint_weights(model)}-{digest}"
        self.network = FrozenTransVCL(model, chosen, runtime)
        self._states = _StateCache(max_frames=batch_frames)
        # A CPU runs pictures one by one fastest; a GPU wants them together.
        most = 1 if chosen.type == "cpu" else max(1, batch_frames // model.config.max_frames)
        self._batch = HalvingBatch(self._detect_pictures, most)

    def localize(self, query: ArrayLike, reference: ArrayLike) -> list[Segment]:
        dimension = self.network.config.dimension
        one = as_descriptors(query, "query", dimension)
        return self._localize(one, as_descriptors(reference, "reference", dimension))

    def localize_many(
        self, query: ArrayLike, references: Sequence[ArrayLike]
    ) -> list[list[Segment]]:
        """One list a reference, in their order. All arrays are checked before any work."""
        dimension = self.network.config.dimension
        checked = as_descriptors(query, "query", dimension)
        others = [
            as_descriptors(each, f"reference {i}", dimension) for i, each in enumerate(references)
        ]
        return [self._localize(checked, other) for other in others]

    def _localize(self, query: Array, reference: Array) -> list[Segment]:
        found, scores, tiles = self._detect(query, reference)
        found, scores = stitch_boxes(found, scores, tiles, (len(query), len(reference)))
        segments = [
            make_segment(query, reference, found[i], float(scores[i]))
            for i in nms(found, scores, MAX_IOU).tolist()
        ]
        return sorted(segments, key=lambda each: each.box)

    def _detect(self, query: Array, reference: Array) -> Detected:
        query_tiles = list(self._tiles(query, side=0))
        parts: list[Detected] = [(np.zeros((0, 4)), np.zeros(0), np.zeros((0, 4)))]
        waiting: list[tuple[Tile, Tile, torch.Tensor]] = []
        for r in self._tiles(reference, side=1):
            for q in query_tiles:
                waiting.append((q, r, self.network.picture(self.network.match(q.state, r.state))))
                if len(waiting) >= self._batch.size:
                    parts += self._read_boxes(waiting)
                    waiting = []
        parts += self._read_boxes(waiting)
        boxes, scores, tiles = (np.concatenate(each) for each in zip(*parts, strict=True))
        return boxes, scores, tiles

    def _tiles(self, video: Array, side: int) -> Iterator[Tile]:
        longest = self.network.config.max_frames
        for start in tile_starts(len(video), longest, min(OVERLAP, longest // 4)):
            frames = video[start : start + longest]
            state = self._states.get(frames, side)
            if state is None:
                # A copy: torch refuses read-only memory maps, and a state must not change later.
                state = self.network.encode(torch.from_numpy(frames.copy()), side)
                self._states.put(frames, side, state)
            yield Tile(start, start + len(frames), state)

    def _detect_pictures(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.network.detect(pictures, self.min_score)

    def _read_boxes(self, waiting: Sequence[tuple[Tile, Tile, torch.Tensor]]) -> list[Detected]:
        if not waiting:
            return []
        rows = self._batch.run([picture for _, _, picture in waiting])
        size = self.network.config.map_size
        read: list[Detected] = []
        for (q, r, _), each in zip(waiting, rows, strict=True):
            boxes, scores = select_boxes(
                each.cpu().numpy(), self.min_score, (q.end - q.start, r.end - r.start), size
            )
            kept = nms(boxes, scores, MAX_IOU)
            shift = np.asarray([q.start, r.start, q.start, r.start])
            tile = np.asarray([[q.start, r.start, q.end, r.end]], dtype=np.float64)
            read.append((boxes[kept] + shift, scores[kept], tile.repeat(len(kept), axis=0)))
        return read


def open_network(weights: str | Path | TransVCL | None) -> tuple[TransVCL, float, str | None]:
    """A network, the threshold it was trained to be used at, and its descriptor if that is known.

    `weights` is a file, ours or the authors' `.pth`, or a network in memory; None is what ships.
    """
    if isinstance(weights, TransVCL):
        return weights, MIN_SCORE, None
    model, facts = open_transvcl(weights)
    min_score = facts.get("min_score", MIN_SCORE)
    if not isinstance(min_score, float | int) or not 0 <= min_score <= 1:
        raise MissingWeights(
            f"{weights} says that its min_score is {min_score!r}, which does not lie within 0 and "
            "1; use the version that wrote it"
        )
    return model, float(min_score), facts.get("descriptor")


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
    clamped, kept = clamp_boxes(boxes, *frames, min_side=MIN_SIDE)
    return clamped, scores[chosen][kept]


def make_segment(query: Array, reference: Array, box: Boxes, score: float) -> Segment:
    """The box as a segment. Its sides say the speed, the frames inside it the direction."""
    q_start, r_start, q_end, r_end = (float(value) for value in box)
    return Segment(
        Span(q_start, q_end),
        Span(r_start, r_end),
        min(score, 1.0),
        is_reversed(query, reference, box),
        speed=(r_end - r_start) / (q_end - q_start),
    )


def is_reversed(query: Array, reference: Array, box: Boxes) -> bool:
    """Whether the best matches of the query's seconds, inside the box, run backwards.

    Each counts by how far it stands out of its row. In a still scene the best matches lie anywhere,
    so only a clear fall is a reversal.
    """
    q_start, r_start = np.floor(box[:2]).astype(int)
    q_end, r_end = np.ceil(box[2:]).astype(int)
    count = min(q_end - q_start, ASKED_SECONDS)
    rows = np.linspace(q_start, q_end - 1, count).round().astype(int)
    if count < 3:
        return False
    cosine = query[rows] @ reference[r_start:r_end].T  # (seconds, reference frames of the box)
    weights = (cosine.max(axis=1) - cosine.mean(axis=1)) ** 2 + 1e-9
    (of_query, both), (_, of_best) = np.cov(rows, cosine.argmax(1), ddof=0, aweights=weights)
    return bool(both < FALLING * np.sqrt(of_query * of_best))


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
