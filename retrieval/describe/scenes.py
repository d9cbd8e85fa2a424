"""Scenes before a camera that does not move, seen in two more ways: mirrored, and their middle.

In: a video's frames in order. Out: `Aspects`, described beside the whole frames; for a pair, which
way of seeing its still scenes makes them most alike.
Called by the engine when it describes a video and by `pairing` when two are compared. Frames of a
fixed camera differ in little, and an edit moves their descriptors by more than that: of a copy that
was mirrored or cropped, nothing would be left by which to tell its seconds apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe.descriptors import Descriptor
from retrieval.describe.parts import Box, cut, embed_cuts
from retrieval.describe.pictures import Frames
from retrieval.plugins import Array
from retrieval.store import NO_ASPECTS, Aspects, StoredDescriptors

# Cosines of neighbouring seconds are .9 and more before a fixed camera that nobody passes, .7 under
# a moving one. With .8 and five seconds a third of a corridor with passers-by was left out; with
# .65 and twelve, half of a film of quick cuts was taken in.
ALIKE = 0.75
REACH = 8  # seconds within which a scene comes back after someone has passed
MIN_SECONDS = 8  # shorter scenes stand beside others, by which a copy is told
EMBED_AT_ONCE = 16
# A crop of a fifth, the middle of what editors take; half of it is matched by a mixture.
MIDDLE: Box = (0.1, 0.1, 0.9, 0.9)

SAME_SCENE = 0.7  # cosine of two scenes' means, seen alike; other scenes have .1 to .5
MIN_MATCH = 0.8  # cosine of each second to the one most like it, on average
# A true edit undone gains .02 to .1; a plain copy seen otherwise loses as much.
MIN_GAIN = 0.01
# A talk between two cameras is hundreds of scenes that are all alike: each is held against the few
# most like it, and of a scene of hours some seconds speak for all.
PARTNERS, SAMPLE = 3, 500


class Second(NamedTuple):
    """One frame that waits until it is clear whether its scene stands still."""

    number: int
    frame: NDArray[np.uint8]
    vector: Array
    is_empty: bool


class StillWatcher:
    """Watches a video go by and describes its still scenes, frame by frame, in two more ways.

    Footage under a moving camera, black and cards cost nothing more.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.count = 0
        self._scene: list[Second] = []  # its last seconds
        self._seconds = 0  # of the scene so far
        self._waiting: list[Second] = []  # of the scene, not described yet
        self._doubtful: list[Second] = []  # since the scene was last seen
        self._stretches: list[tuple[list[int], list[Array], list[Array]]] = []

    def watch(self, frames: Frames, vectors: Array, is_empty: NDArray[np.bool_]) -> None:
        """Frames with their descriptors, and which of them tell nothing."""
        for frame, vector, empty in zip(frames, vectors, is_empty, strict=True):
            # A copy, or the whole batch would wait with it.
            self._take(Second(self.count, frame.copy(), vector, bool(empty)))
            self.count += 1

    def finish(self) -> Aspects:
        self._close()
        if not self._stretches:
            return NO_ASPECTS
        lengths = [len(frames) for frames, _, _ in self._stretches]
        return Aspects(
            np.concatenate([each for _, mirrored, _ in self._stretches for each in mirrored]),
            np.concatenate([each for *_, middle in self._stretches for each in middle]),
            np.concatenate([frames for frames, _, _ in self._stretches]).astype(np.int32),
            np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        )

    def _take(self, second: Second) -> None:
        if not self._shows_scene(second):
            self._doubtful.append(second)
            if len(self._doubtful) == REACH:
                self._start_anew()
            return
        joined = [*self._doubtful, second]
        self._doubtful = []
        self._scene = [*self._scene, *joined][-REACH:]
        self._waiting += joined
        self._seconds += len(joined)
        if self._seconds >= MIN_SECONDS and len(self._waiting) >= EMBED_AT_ONCE:
            self._describe()

    def _shows_scene(self, second: Second) -> bool:
        return not second.is_empty and any(
            float(each.vector @ second.vector) >= ALIKE
            for each in self._scene
            if second.number - each.number <= REACH
        )

    def _start_anew(self) -> None:
        """The scene does not come back: the first second after it begins another."""
        self._close()
        first, *others = self._doubtful
        self._doubtful = []
        self._scene, self._waiting, self._seconds = [first], [first], 1
        for each in others:
            self._take(each)

    def _close(self) -> None:
        if self._seconds >= MIN_SECONDS:
            self._describe()

    def _describe(self) -> None:
        """What waits of the scene joins its stretch; the first of a scene begins one."""
        if not self._waiting:
            return
        is_new = len(self._waiting) == self._seconds
        if is_new:
            self._stretches.append(([], [], []))
        frames, mirrored, middle = self._stretches[-1]
        pictures = np.stack([each.frame for each in self._waiting])
        mirrored.append(self.descriptor.embed(np.ascontiguousarray(pictures[:, :, ::-1])))
        cuts = np.stack([cut(each, MIDDLE) for each in pictures])
        middle.append(embed_cuts(self.descriptor, cuts))
        frames += [each.number for each in self._waiting]
        self._waiting = []


class Sight(NamedTuple):
    """Two scenes, one of either video, in the way that makes them most alike."""

    match: float
    query: Array
    reference: Array


def choose_aspects(query: StoredDescriptors, reference: StoredDescriptors) -> tuple[Array, Array]:
    """Descriptors of both videos for this pair: whole frames, or still scenes seen otherwise.

    Where nothing is gained by it, the same arrays come back.
    """
    if not len(query.aspects) and not len(reference.aspects):
        return query.descriptors, reference.descriptors
    asked, known = split_scenes(query), split_scenes(reference)
    best: tuple[dict[int, Sight], dict[int, Sight]] = {}, {}
    for numbers in _same_scenes(query, reference, asked, known):
        sight = _see(query, reference, asked[numbers[0]], known[numbers[1]])
        for sights, number in zip(best, numbers, strict=True):
            # A scene that is compared with several is seen as suits the one most like it.
            if number not in sights or sights[number].match < sight.match:
                sights[number] = sight
    return (
        _lay_over(query.descriptors, [(asked[n].frames, s.query) for n, s in best[0].items()]),
        _lay_over(
            reference.descriptors, [(known[n].frames, s.reference) for n, s in best[1].items()]
        ),
    )


def split_stretches(aspects: Aspects) -> list[Aspects]:
    """Each still scene by itself."""
    ends = np.flatnonzero(np.diff(aspects.stretches)) + 1
    return [
        Aspects(
            aspects.mirrored[rows],
            aspects.middle[rows],
            aspects.frames[rows],
            aspects.stretches[rows],
        )
        for rows in np.split(np.arange(len(aspects)), ends)
        if len(rows)
    ]


def split_scenes(video: StoredDescriptors) -> list[Aspects]:
    """Still scenes, and all else in pieces that have only themselves to show.

    A passer-by who hardly fills a picture fills its crop: a scene may be still in one video only.
    """
    still = split_stretches(video.aspects)
    rest = np.setdiff1d(np.arange(video.frames, dtype=np.int32), video.aspects.frames)
    runs = np.split(rest, np.flatnonzero(np.diff(rest) > 1) + 1)
    pieces = [run[at : at + MIN_SECONDS] for run in runs for at in range(0, len(run), MIN_SECONDS)]
    return still + [
        Aspects(video.descriptors[frames], video.descriptors[frames], frames, frames)
        for frames in pieces
    ]


def _same_scenes(
    query: StoredDescriptors,
    reference: StoredDescriptors,
    asked: Sequence[Aspects],
    known: Sequence[Aspects],
) -> list[list[int]]:
    """Which scenes of the two may be the same, by number; the others need no closer look, nor do
    two of which neither can be seen otherwise."""
    ones = [query.descriptors[each.frames] for each in asked], [each.mirrored for each in asked]
    others = [reference.descriptors[each.frames] for each in known], [each.middle for each in known]
    alike = np.max(
        [_means(one) @ _means(other).T for one, other in product(ones, others)], axis=0
    )  # (query scenes, reference scenes)
    is_still, is_known_still = (
        np.isin([each.frames[0] for each in scenes], video.aspects.frames)
        for video, scenes in ((query, asked), (reference, known))
    )
    alike[~(is_still[:, None] | is_known_still)] = -1.0
    is_near = _are_nearest(alike) | _are_nearest(alike.T).T
    found: list[list[int]] = np.argwhere(is_near & (alike >= SAME_SCENE)).tolist()
    return found


def _are_nearest(alike: Array) -> NDArray[np.bool_]:
    """The `PARTNERS` highest of each row."""
    chosen = np.zeros(alike.shape, bool)
    best = np.argpartition(-alike, min(PARTNERS, alike.shape[1]) - 1, axis=1)[:, :PARTNERS]
    np.put_along_axis(chosen, best, True, axis=1)
    return chosen


def _means(scenes: Sequence[Array]) -> Array:
    return unit(np.stack([each.mean(axis=0) for each in scenes]))


def _see(
    query: StoredDescriptors, reference: StoredDescriptors, asked: Aspects, known: Aspects
) -> Sight:
    """The query's scene may be mirrored. The reference's may be its middle, or something between
    that and the whole, for crops between the two. Of equals the first, whole frames, is taken."""
    plain, whole = query.descriptors[asked.frames], reference.descriptors[known.frames]
    ways = product((plain, asked.mirrored), (whole, known.middle, unit(whole + known.middle)))
    sights = [Sight(_match(one, other), one, other) for one, other in ways]
    best = max(sights, key=lambda each: each.match)
    is_clear = best.match >= MIN_MATCH and best.match - sights[0].match >= MIN_GAIN
    return best if is_clear else sights[0]


def _match(query: Array, reference: Array) -> float:
    """Cosine of each query second to the reference second most like it, on average."""
    some = query[:: -(-len(query) // SAMPLE)]
    return float((unit(some) @ unit(reference).T).max(axis=1).mean())


def _lay_over(rows: Array, scenes: Sequence[tuple[NDArray[np.int32], Array]]) -> Array:
    """The rows with those of some scenes in their place; the very same if they are their own."""
    chosen = rows
    for frames, vectors in scenes:
        if not np.array_equal(vectors, rows[frames]):
            chosen = rows.copy() if chosen is rows else chosen
            chosen[frames] = vectors
    return chosen
