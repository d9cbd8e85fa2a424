"""What frames of a fixed camera agree in: their changes along a found line, and along none beside.

In: the query's frames, what each reference second adds to its scene, and a segment between them.
Out: four facts, see `LineFacts`.
Called by `rating`. The query is first taken at the reference's pace along the line and only then
asked for its changes: in a copy that runs faster each second has another scene around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from retrieval.plugins import Array
from retrieval.records import Segment
from vcl_plugin.model.similarity import SCENE_REACH, frame_changes

# Query seconds: a copy starts between two frames, and its line is not known better than that.
# Without thirds, of 84 edited validation files of fixed cameras four fewer are told from others.
PHASES = (-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0)
APART = 3  # query seconds from which on another line is another moment
PARALLELS = 9  # other lines to either side
# What one second says for a copy whose line is its best of all, and against one whose is not:
# logarithms of how much likelier that is in a copy (.85) than in two takes of a scene (.17).
VOTE_FOR, VOTE_AGAINST = 1.61, -1.71


class LineFacts(NamedTuple):
    """How changes agree along a line."""

    mean: float  # of their cosines
    lead: float  # above the best parallel line
    votes: float  # of seconds that agree best on the line, against chance
    proof: float  # lead over all parallel lines, in standard errors


def changes_of(frames: Array) -> Array:
    """What each frame adds to the scene around it, see `frame_changes`."""
    changes: Array = frame_changes(torch.from_numpy(np.array(frames, np.float32))).numpy()
    return changes


def describe_line(query: Array, reference_changes: Array, segment: Segment) -> LineFacts:
    """Facts of one segment; lines that mostly leave both videos take no part."""
    line, pace = segment.line, segment.line.pace
    first = min(int(segment.reference.start), len(reference_changes) - 1)
    seconds = reference_changes[first : max(math.ceil(segment.reference.end), first + 1)]
    step = max(1, round(1 / pace))
    nearest = int(APART / (step * pace)) + 1
    shifts = step * np.arange(nearest, nearest + PARALLELS)
    reach = int(shifts[-1]) + SCENE_REACH

    def along(phases: Sequence[float], margin: int) -> tuple[Array, NDArray[np.bool_]]:
        """Changes of the query at the reference's seconds, `margin` more to either side."""
        middles = np.arange(first - margin, first + len(seconds) + margin) + 0.5
        places = line.query_at(middles) - 0.5
        return _changes_at(query, places[:, None] + np.asarray(phases))

    changes, is_shown = along(PHASES, SCENE_REACH)
    inner = slice(SCENE_REACH, -SCENE_REACH)
    on = _agree(seconds, changes[inner], is_shown[inner])
    changes, is_shown = along((0.0,), reach)
    beside = np.arange(len(seconds))[:, None] + np.concatenate([-shifts, shifts])
    off = _agree(seconds, changes[reach + beside, 0], is_shown[reach + beside, 0])
    # A short query is left at once: there the line is one of its seconds and another reference's.
    rows = first + beside
    is_known = (rows >= 0) & (rows < len(reference_changes)) & is_shown[reach:-reach]
    others = reference_changes[rows.clip(0, len(reference_changes) - 1)]
    instead = _agree(changes[reach:-reach, 0], others, is_known)
    return _weigh(on, np.where(np.isnan(off), instead, off))


def _changes_at(frames: Array, places: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """Changes of frames taken at places (n, k), also between two; and where there are any."""
    is_inside = (places > -0.5) & (places < len(frames) - 0.5)
    inside = places.clip(0, len(frames) - 1)
    before = np.floor(inside).astype(int)
    after = np.minimum(before + 1, len(frames) - 1)
    share = (inside - before)[..., None].astype(np.float32)
    taken = (1 - share) * frames[before] + share * frames[after]
    return changes_of(taken * is_inside[..., None]), is_inside


def _agree(seconds: Array, changes: Array, is_shown: NDArray[np.bool_]) -> Array:
    """Cosines (seconds, lines); nan where a line has left the videos."""
    cosines: Array = np.where(is_shown, np.einsum("ij,ikj->ik", seconds, changes), np.nan)
    return cosines


def _weigh(on: Array, off: Array) -> LineFacts:
    """Facts by cosines on the line, at all its phases, and on those parallel to it."""
    means, others = _means(on), _means(off)
    best = int(means.argmax())
    mine, theirs = np.nan_to_num(on), np.nan_to_num(off)
    top = mine.max(axis=1)
    is_ahead = (top > theirs.max(axis=1)) & (top > 0)
    votes = float(np.where(is_ahead, VOTE_FOR, VOTE_AGAINST).sum())
    count = (~np.isnan(off)).sum(axis=1)
    leads = mine[:, best] - theirs.clip(0).sum(axis=1) / count.clip(1)
    errors = float(leads.mean()) / (float(leads.std()) + 0.1) * math.sqrt(len(leads))
    return LineFacts(
        float(means[best]),
        float(means[best] - others.max()),
        min(max(votes / 10, -4.0), 8.0),
        min(max(errors / 10, -1.0), 4.0),
    )


def _means(cosines: Array) -> Array:
    """Of each line; 0 for one of which more than half is in neither video."""
    is_known = ~np.isnan(cosines)
    count = is_known.sum(axis=0)
    sums = np.nan_to_num(cosines).clip(0).sum(axis=0)
    means: Array = np.where(2 * count >= len(cosines), sums / count.clip(1), 0.0)
    return means
