"""Parts of a picture that stay where they are for seconds: a film shown small, half a screen.

In: a video's frames in order. Out: `Parts`, described beside the whole frames; for a pair, which
seconds of the query are better seen through a part.
Called by the engine when it describes a video and by `pairing` when two are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe.descriptors import Descriptor
from retrieval.describe.parts import Box, box_overlap, cut, embed_cuts, propose_parts
from retrieval.describe.pictures import Frames
from retrieval.plugins import Array
from retrieval.store import NO_PARTS, Parts, StoredDescriptors

# An editor's frame stands for seconds, so looking at every other second finds it; a door post that
# the camera passes is gone by the next look or the one after. With two looks instead of three,
# seven of 20 plain films had such parts described, with three one.
LOOK_EVERY = 2
MIN_LOOKS = 3
MAX_MISSED = 2  # looks in a row at which a dark scene may hide the frame
SAME_BOX = 0.8  # intersection over union
MAX_TRACKS = 3  # at a time
BOXES_A_LOOK = 6
CLEAREST = 2  # so many boxes of a look may take the place of one that is less clear
EMBED_AT_ONCE = 16

# How much better than the whole frames a part must match, over how many seconds. Unrelated parts
# are better by chance for a moment; a true one is for as long as it shows the copy.
MARGIN = 0.1
RUN_SECONDS = 5


@dataclass(eq=False)
class Track:
    """One box, followed; crops wait here until it is clear that the box stands still."""

    box: Box
    first: int
    seen: int  # the last frame in which it was found
    rank: int  # among all boxes of that look, the clearest first
    looks: int = 1
    missed: int = 0
    waiting: list[tuple[int, NDArray[np.uint8]]] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    vectors: list[Array] = field(default_factory=list)

    @property
    def stands(self) -> bool:
        return self.looks >= MIN_LOOKS


class PartTracker:
    """Watches a video go by and describes the parts that stand still in it.

    A plain video costs one look every other frame; only a part that was found again is described.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.open: list[Track] = []
        self.closed: list[Track] = []
        self.count = 0
        self._looked_at: tuple[NDArray[np.uint8], list[Box]] | None = None

    def watch(self, frames: Frames) -> None:
        for frame in frames:
            if self.count % LOOK_EVERY == 0:
                self._look(frame)
            for track in self.open:
                # A copy, or the whole batch would wait with it; most wait in vain.
                track.waiting.append((self.count, cut(frame, track.box).copy()))
            self.count += 1
        self._embed(EMBED_AT_ONCE)

    def finish(self) -> Parts:
        self._embed(1)
        standing = [track for track in [*self.closed, *self.open] if track.frames]
        if not standing:
            return NO_PARTS
        standing.sort(key=lambda track: (track.first, track.box))
        lengths = [len(track.frames) for track in standing]
        return Parts(
            np.concatenate([each for track in standing for each in track.vectors]),
            np.concatenate([track.frames for track in standing]).astype(np.int32),
            np.repeat(np.arange(len(standing), dtype=np.int32), lengths),
        )

    def _look(self, frame: NDArray[np.uint8]) -> None:
        boxes = self._find_boxes(frame)
        ranks = dict(zip(boxes, range(len(boxes)), strict=True))
        for track in self.open:
            found = [box for box in ranks if box_overlap(box, track.box) >= SAME_BOX]
            if found:
                track.seen, track.looks, track.missed = self.count, track.looks + 1, 0
                track.rank = min(ranks.pop(box) for box in found)
            else:
                track.missed, track.rank = track.missed + 1, len(boxes)
        kept = [t for t in self.open if t.missed <= (MAX_MISSED if t.stands else 0)]
        fresh = [Track(box, self.count, self.count, rank) for box, rank in ranks.items()]
        for track in fresh:
            if len(kept) < MAX_TRACKS:
                kept.append(track)
                continue
            weakest = max(kept, key=lambda each: each.rank)
            # A shelf behind the speaker must not keep out the film that is then shown beside him.
            if track.rank < CLEAREST <= weakest.rank - 1:
                kept[kept.index(weakest)] = track
        gone = [track for track in self.open if track not in kept and track.stands]
        self._embed(1, gone)
        self.closed += gone
        self.open = kept

    def _find_boxes(self, frame: NDArray[np.uint8]) -> list[Box]:
        """The clearest cut first. A still is looked at once, however long it is shown."""
        if self._looked_at is None or not np.array_equal(frame, self._looked_at[0]):
            self._looked_at = frame.copy(), propose_parts(frame)[:BOXES_A_LOOK]
        return self._looked_at[1]

    def _embed(self, at_least: int, tracks: Sequence[Track] | None = None) -> None:
        """Describe the crops of standing tracks, up to where each was last seen."""
        for track in self.open if tracks is None else tracks:
            ready = [each for each in track.waiting if each[0] <= track.seen]
            if not track.stands or len(ready) < at_least:
                continue
            crops = np.stack([crop for _, crop in ready])
            track.vectors.append(embed_cuts(self.descriptor, crops))
            track.frames += [number for number, _ in ready]
            track.waiting = track.waiting[len(ready) :]


def split_tracks(parts: Parts) -> list[Parts]:
    """Each track by itself."""
    ends = np.flatnonzero(np.diff(parts.tracks)) + 1
    return [
        Parts(parts.vectors[rows], parts.frames[rows], parts.tracks[rows])
        for rows in np.split(np.arange(len(parts)), ends)
        if len(rows)
    ]


def choose_views(query: StoredDescriptors, reference: Array) -> Array:
    """The query's descriptors for this reference: whole frames, and parts where those match better.

    A frame's best match alone decides nothing: over `RUN_SECONDS` a part must be better by `MARGIN`
    on average, and then stands for all of them. Where no part is, the same array comes back.
    """
    whole = query.descriptors
    if not len(query.parts):
        return whole
    reference = unit(reference)
    best_whole = (unit(whole) @ reference.T).max(axis=1)
    gain = np.full(len(whole), MARGIN, np.float32)
    chosen = whole
    for track in split_tracks(query.parts):
        better = (unit(track.vectors) @ reference.T).max(axis=1) - best_whole[track.frames]
        lasting = _best_run(better, min(RUN_SECONDS, len(better)))
        wins = lasting > gain[track.frames]
        if wins.any():
            chosen = whole.copy() if chosen is whole else chosen
            chosen[track.frames[wins]] = track.vectors[wins]
            gain[track.frames[wins]] = lasting[wins]
    return chosen


def _best_run(values: Array, length: int) -> Array:
    """For each place the best mean of a run of that length which holds it."""
    sums = np.convolve(values, np.ones(length) / length, mode="valid")
    padded = np.pad(sums, length - 1, constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, length).max(axis=1).astype(np.float32)
