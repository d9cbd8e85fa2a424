"""Pairing: two videos as a localizer is to see them, each by the views that suit the other.

In: what the store holds of a query and of its references. Out: descriptor arrays, or segments.
Whoever compares two videos calls it, so that all see the same pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe.scenes import MIN_SECONDS
from retrieval.describe.views import ViewKind, Views
from retrieval.plugins import Array, Localizer
from retrieval.records import Segment
from retrieval.store import StoredDescriptors

# How much better than the whole frames a part must match, over how many seconds. Unrelated parts
# are better by chance for a moment; a true one is for as long as it shows the copy.
MARGIN = 0.1
RUN_SECONDS = 5

SAME_SCENE = 0.7  # cosine of the means of two scenes; different scenes have .1 to .5
MIN_MATCH = 0.8  # cosine of each second to the one most like it, on average
# The right view of an edited scene gains .02 to .1; any view of a plain copy loses as much.
MIN_GAIN = 0.01
# A talk between two cameras is hundreds of scenes that are all alike: each is compared with the few
# most like it. Of a scene of hours so many seconds are compared.
PARTNERS, SAMPLE = 3, 500


def localize_views(
    localizer: Localizer, query: StoredDescriptors, references: Sequence[StoredDescriptors]
) -> list[list[Segment]]:
    """`localize_many`, each pair as `match_rows` sees it."""
    found: list[list[Segment]] = [[] for _ in references]
    plain: dict[int, Array] = {}
    for number, reference in enumerate(references):
        rows, others = match_rows(query, reference)
        if rows is query.descriptors:
            plain[number] = others
        else:
            found[number] = localizer.localize(rows, others)
    if plain:
        many = localizer.localize_many(query.descriptors, list(plain.values()))
        for number, segments in zip(plain, many, strict=True):
            found[number] = segments
    return found


def match_rows(query: StoredDescriptors, reference: StoredDescriptors) -> tuple[Array, Array]:
    """Descriptors of both for this pair; the very arrays of the store where whole frames do best.

    A query that shows the reference in a part of its pictures is not also seen mirrored or
    cropped: who shows a film small does not hide it as well.
    """
    parts = _choose_parts(query, reference.descriptors)
    if parts:
        return _replace_rows(query.descriptors, parts), reference.descriptors
    asked, known = _choose_scenes(query, reference)
    return _replace_rows(query.descriptors, asked), _replace_rows(reference.descriptors, known)


class Chosen(NamedTuple):
    """Rows that stand for these frames in a pair."""

    frames: NDArray[np.int32]
    rows: Array


def _replace_rows(whole: Array, chosen: Iterable[Chosen]) -> Array:
    """A copy with the chosen rows in their places; `whole` itself if they are its own."""
    rows = whole
    for each in chosen:
        if not np.array_equal(each.rows, whole[each.frames]):
            rows = whole.copy() if rows is whole else rows
            rows[each.frames] = each.rows
    return rows


def _choose_parts(query: StoredDescriptors, reference: Array) -> list[Chosen]:
    """Where parts of the query's pictures match this reference better than its whole frames.

    One frame's match decides nothing: over `RUN_SECONDS` a part must be better by `MARGIN` on
    average, and then stands for all of these seconds.
    """
    parts = query.views.runs_of(ViewKind.PART)
    if not parts:
        return []
    reference = unit(reference)
    best_whole = (unit(query.descriptors) @ reference.T).max(axis=1)
    gain = np.full(query.frames, MARGIN, np.float32)
    chosen = []
    for run in parts:
        better = (unit(run.vectors) @ reference.T).max(axis=1) - best_whole[run.frames]
        lasting = _best_mean(better, min(RUN_SECONDS, len(better)))
        wins = lasting > gain[run.frames]
        if wins.any():
            chosen.append(Chosen(run.frames[wins], run.vectors[wins]))
            gain[run.frames[wins]] = lasting[wins]
    return chosen


def _best_mean(values: Array, length: int) -> Array:
    """For each place the best mean of so many neighbours that include it."""
    sums = np.convolve(values, np.ones(length) / length, mode="valid")
    padded = np.pad(sums, length - 1, constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, length).max(axis=1).astype(np.float32)


class Scene(NamedTuple):
    """Successive frames of one video, whole and by one kind of view.

    Where there is no such view, `view` is `whole` again.
    """

    frames: NDArray[np.int32]
    whole: Array
    view: Array
    has_view: bool


class Match(NamedTuple):
    """Two scenes, one of each video, by the rows that make them most alike."""

    cosine: float
    query: Array
    reference: Array


def _choose_scenes(
    query: StoredDescriptors, reference: StoredDescriptors
) -> tuple[list[Chosen], list[Chosen]]:
    """The query's scenes as they are or mirrored, the reference's whole or by their middle.

    A scene that may be the same as several takes the rows that suit the one most like it.
    """
    mirrored = query.views.runs_of(ViewKind.MIRRORED)
    middle = reference.views.runs_of(ViewKind.MIDDLE)
    if not mirrored and not middle:
        return [], []
    asked = _split_scenes(query.descriptors, mirrored)
    known = _split_scenes(reference.descriptors, middle)
    best: tuple[dict[int, Match], dict[int, Match]] = {}, {}
    for numbers in _pair_scenes(asked, known):
        match = _match_scenes(asked[numbers[0]], known[numbers[1]])
        for matches, number in zip(best, numbers, strict=True):
            if number not in matches or matches[number].cosine < match.cosine:
                matches[number] = match
    return (
        [Chosen(asked[number].frames, match.query) for number, match in best[0].items()],
        [Chosen(known[number].frames, match.reference) for number, match in best[1].items()],
    )


def _split_scenes(whole: Array, runs: Sequence[Views]) -> list[Scene]:
    """The scenes that have views, then all other frames in short pieces.

    The pieces count because a scene may have views in one video only: a passer-by who fills little
    of the whole picture fills much of its crop.
    """
    has_view = np.zeros(len(whole), bool)
    for run in runs:
        has_view[run.frames] = True
    rest = np.flatnonzero(~has_view).astype(np.int32)
    gaps = np.split(rest, np.flatnonzero(np.diff(rest) > 1) + 1)
    pieces = [gap[at : at + MIN_SECONDS] for gap in gaps for at in range(0, len(gap), MIN_SECONDS)]
    return [
        *(Scene(run.frames, whole[run.frames], run.vectors, True) for run in runs),
        *(Scene(frames, whole[frames], whole[frames], False) for frames in pieces),
    ]


def _pair_scenes(asked: Sequence[Scene], known: Sequence[Scene]) -> list[list[int]]:
    """Numbers of each two scenes that may be the same and of which one has a view at least."""
    has_view, known_has_view = (
        np.array([each.has_view for each in scenes]) for scenes in (asked, known)
    )
    ones, others = (
        [_means([each.whole for each in scenes]), _means([each.view for each in scenes])]
        for scenes in (asked, known)
    )
    alike = np.max([one @ other.T for one, other in product(ones, others)], axis=0)
    alike[~(has_view[:, None] | known_has_view)] = -1.0  # (query scenes, reference scenes)
    is_near = _are_nearest(alike) | _are_nearest(alike.T).T
    found: list[list[int]] = np.argwhere(is_near & (alike >= SAME_SCENE)).tolist()
    return found


def _means(scenes: Sequence[Array]) -> Array:
    return unit(np.stack([each.mean(axis=0) for each in scenes]))


def _are_nearest(alike: Array) -> NDArray[np.bool_]:
    """The `PARTNERS` highest of each row."""
    chosen = np.zeros(alike.shape, bool)
    best = np.argpartition(-alike, min(PARTNERS, alike.shape[1]) - 1, axis=1)[:, :PARTNERS]
    np.put_along_axis(chosen, best, True, axis=1)
    return chosen


def _match_scenes(asked: Scene, known: Scene) -> Match:
    """The best of all combinations; whole frames unless another is clearly better.

    The mean of whole and middle is for crops between the two.
    """
    mixed = unit(known.whole + known.view)
    ways = product((asked.whole, asked.view), (known.whole, known.view, mixed))
    plain, *others = (Match(_cosine(one, other), one, other) for one, other in ways)
    best = max([plain, *others], key=lambda each: each.cosine)
    is_clear = best.cosine >= MIN_MATCH and best.cosine - plain.cosine >= MIN_GAIN
    return best if is_clear else plain


def _cosine(query: Array, reference: Array) -> float:
    """Of each query second to the reference second most like it, on average."""
    some = query[:: -(-len(query) // SAMPLE)]
    return float((unit(some) @ unit(reference).T).max(axis=1).mean())
