"""The tracker of parts: boxes in a video's pictures that stay where they are for seconds.

In: a video's frames in order. Out: `Views` of the kind `PART`, one run for each box.
The engine shows it every frame that it describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.descriptors import Descriptor
from retrieval.describe.parts import Box, box_overlap, cut, embed_cuts, propose_parts
from retrieval.describe.pictures import Frames
from retrieval.describe.views import ViewKind, Views, number_runs
from retrieval.plugins import Array

# An editor's frame stays for seconds, so every other second is enough to find it. A door post that
# the camera passes is not found three times: of 20 plain films seven had such parts described when
# a part had to be found twice, and one when it had to be found three times.
INSPECT_EVERY = 2
MIN_FINDS = 3
MAX_MISSED = 2  # inspections in a row at which a dark scene may hide the part
SAME_BOX = 0.8  # intersection over union
MAX_PARTS = 3  # at a time
BOXES_A_FRAME = 6
CLEAREST = 2  # so many boxes of a frame may take the place of one that is less clear
EMBED_AT_ONCE = 16


@dataclass(eq=False)
class PartRun:
    """One box that is followed; its crops wait here until it was found often enough."""

    box: Box
    first: int
    seen: int  # the last frame in which it was found
    rank: int  # among all boxes of that frame, the clearest first
    finds: int = 1
    missed: int = 0
    waiting: list[tuple[int, NDArray[np.uint8]]] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    vectors: list[Array] = field(default_factory=list)

    @property
    def is_sure(self) -> bool:
        return self.finds >= MIN_FINDS


class PartTracker:
    """Watches a video go by and describes the parts that stay in place.

    In a plain video it inspects every other frame and describes nothing.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.open: list[PartRun] = []
        self.closed: list[PartRun] = []
        self.count = 0
        self._inspected: tuple[NDArray[np.uint8], list[Box]] | None = None

    def watch(self, frames: Frames) -> None:
        for frame in frames:
            if self.count % INSPECT_EVERY == 0:
                self._inspect(frame)
            for run in self.open:
                # A copy: a slice would keep the whole batch in memory. Most wait in vain.
                run.waiting.append((self.count, cut(frame, run.box).copy()))
            self.count += 1
        self._embed(EMBED_AT_ONCE)

    def finish(self) -> Views:
        self._embed(1)
        described = [run for run in [*self.closed, *self.open] if run.frames]
        described.sort(key=lambda run: (run.first, run.box))
        return number_runs(
            ViewKind.PART, ((run.frames, np.concatenate(run.vectors)) for run in described)
        )

    def _inspect(self, frame: NDArray[np.uint8]) -> None:
        """Find the open runs' boxes in this frame; end runs that are gone, open new ones."""
        boxes = self._find_boxes(frame)
        ranks = dict(zip(boxes, range(len(boxes)), strict=True))
        for run in self.open:
            found = [box for box in ranks if box_overlap(box, run.box) >= SAME_BOX]
            if found:
                run.seen, run.finds, run.missed = self.count, run.finds + 1, 0
                run.rank = min(ranks.pop(box) for box in found)
            else:
                run.missed, run.rank = run.missed + 1, len(boxes)
        kept = [run for run in self.open if run.missed <= (MAX_MISSED if run.is_sure else 0)]
        for box, rank in ranks.items():
            run = PartRun(box, self.count, self.count, rank)
            if len(kept) < MAX_PARTS:
                kept.append(run)
                continue
            weakest = max(kept, key=lambda each: each.rank)
            # A shelf behind the speaker must not keep out the film that is then shown beside him.
            if run.rank < CLEAREST <= weakest.rank - 1:
                kept[kept.index(weakest)] = run
        gone = [run for run in self.open if run not in kept and run.is_sure]
        self._embed(1, gone)
        self.closed += gone
        self.open = kept

    def _find_boxes(self, frame: NDArray[np.uint8]) -> list[Box]:
        """The clearest first. A still is inspected once, however long it is shown."""
        if self._inspected is None or not np.array_equal(frame, self._inspected[0]):
            self._inspected = frame.copy(), propose_parts(frame)[:BOXES_A_FRAME]
        return self._inspected[1]

    def _embed(self, at_least: int, runs: Sequence[PartRun] | None = None) -> None:
        """Describe the crops of runs that are sure, up to the frame in which each was last seen."""
        for run in self.open if runs is None else runs:
            ready = [each for each in run.waiting if each[0] <= run.seen]
            if not run.is_sure or len(ready) < at_least:
                continue
            crops = np.stack([crop for _, crop in ready])
            run.vectors.append(embed_cuts(self.descriptor, crops))
            run.frames += [number for number, _ in ready]
            run.waiting = run.waiting[len(ready) :]
