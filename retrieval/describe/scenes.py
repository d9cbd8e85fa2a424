"""Scenes in front of a fixed camera: their frames are also described mirrored and by their middle.

In: a video's frames in order, with their descriptors. Out: `Views`, two runs for each such scene.
The engine shows it every frame that it describes.

In front of a fixed camera one second differs little from the next, and mirroring or cropping
changes a descriptor by more than that. Whole frames alone would not tell which second of the scene
a mirrored or cropped copy shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.descriptors import Descriptor
from retrieval.describe.parts import Box, cut, embed_cuts
from retrieval.describe.pictures import Frames
from retrieval.describe.views import ViewKind, Views, join_views, number_runs
from retrieval.plugins import Array

# The cosine of neighbouring seconds is .9 or more in front of a fixed camera that nobody passes,
# and .7 under a moving one. A threshold of .8 with five seconds left out a third of a corridor with
# passers-by; .65 with twelve seconds took in half of a film of quick cuts.
ALIKE = 0.75
REACH = 8  # seconds within which a scene comes back after someone has passed
MIN_SECONDS = 8  # a copy of a shorter scene is told by the scenes around it
EMBED_AT_ONCE = 16
# The margins are a fifth of either side, the middle of what editors crop. For half of that crop,
# `pairing` mixes the middle with the whole frame.
MIDDLE: Box = (0.1, 0.1, 0.9, 0.9)


class Second(NamedTuple):
    """One frame that waits until it is clear whether its scene is of a fixed camera."""

    number: int
    frame: NDArray[np.uint8]
    vector: Array
    is_empty: bool


@dataclass(eq=False)
class SceneRun:
    """What is described so far of one scene."""

    frames: list[int] = field(default_factory=list)
    mirrored: list[Array] = field(default_factory=list)
    middle: list[Array] = field(default_factory=list)


class SceneWatcher:
    """Watches a video go by and describes the views of its scenes in front of a fixed camera.

    Footage of a moving camera, black frames and title cards cost nothing more.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.count = 0
        self.scenes: list[SceneRun] = []
        self._recent: list[Second] = []  # the last seconds of the scene that goes on
        self._seconds = 0  # of that scene so far
        self._waiting: list[Second] = []  # of that scene, not described yet
        self._doubtful: list[Second] = []  # since that scene was last seen

    def watch(self, frames: Frames, vectors: Array, is_empty: NDArray[np.bool_]) -> None:
        """Frames with their descriptors, and which of them carry no information."""
        for frame, vector, empty in zip(frames, vectors, is_empty, strict=True):
            # A copy: a slice would keep the whole batch in memory.
            self._take(Second(self.count, frame.copy(), vector, bool(empty)))
            self.count += 1

    def finish(self) -> Views:
        self._close()
        mirrored = ((each.frames, np.concatenate(each.mirrored)) for each in self.scenes)
        middle = ((each.frames, np.concatenate(each.middle)) for each in self.scenes)
        return join_views(
            [number_runs(ViewKind.MIRRORED, mirrored), number_runs(ViewKind.MIDDLE, middle)]
        )

    def _take(self, second: Second) -> None:
        if not self._shows_scene(second):
            self._doubtful.append(second)
            if len(self._doubtful) == REACH:
                self._start_anew()
            return
        joined = [*self._doubtful, second]
        self._doubtful = []
        self._recent = [*self._recent, *joined][-REACH:]
        self._waiting += joined
        self._seconds += len(joined)
        if self._seconds >= MIN_SECONDS and len(self._waiting) >= EMBED_AT_ONCE:
            self._describe()

    def _shows_scene(self, second: Second) -> bool:
        return not second.is_empty and any(
            float(each.vector @ second.vector) >= ALIKE
            for each in self._recent
            if second.number - each.number <= REACH
        )

    def _start_anew(self) -> None:
        """The scene does not come back: the first second after it begins another."""
        self._close()
        first, *others = self._doubtful
        self._doubtful = []
        self._recent, self._waiting, self._seconds = [first], [first], 1
        for each in others:
            self._take(each)

    def _close(self) -> None:
        if self._seconds >= MIN_SECONDS:
            self._describe()

    def _describe(self) -> None:
        """Describe the seconds that wait; those that begin a scene open its record."""
        if not self._waiting:
            return
        if len(self._waiting) == self._seconds:
            self.scenes.append(SceneRun())
        scene = self.scenes[-1]
        pictures = np.stack([each.frame for each in self._waiting])
        scene.mirrored.append(self.descriptor.embed(np.ascontiguousarray(pictures[:, :, ::-1])))
        cuts = np.stack([cut(each, MIDDLE) for each in pictures])
        scene.middle.append(embed_cuts(self.descriptor, cuts))
        scene.frames += [each.number for each in self._waiting]
        self._waiting = []
