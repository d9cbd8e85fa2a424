"""Changes of two videos, compared along a segment's line and along lines parallel to it.

In: the query's frames, the changes of all reference seconds, and a segment between them.
Out: four facts of the segment, see `LineFacts`.
`changes_of` also by `maps`.

In front of a fixed camera all frames look alike, so their similarity cannot tell a copy from
another hour of the same place. Changes can: the change of a frame is what it adds to the frames
around it (a passer-by, a door). In a copy they agree along the line and nowhere else.

A copy at another speed has other frames around each second. So the query is first resampled along
the line, one frame a reference second, and its changes are computed from those frames.
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

# The line is tried at these distances from where it was found, in query seconds: a copy may start
# between two frames, so its line is not known better than that. Without the thirds, four fewer of
# 84 edited validation files of fixed cameras are told from footage that is no copy.
PHASES = (-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0)
APART = 3  # query seconds; a parallel line farther away than this shows another moment
PARALLELS = 9  # parallel lines on either side
# A second votes for the copy if its changes agree better on the line than on all parallel ones,
# and against it if not. The weights are logarithms of likelihood ratios: the line is best in .85
# of the seconds of a copy, and in .17 of those of two takes of a scene.
VOTE_FOR, VOTE_AGAINST = 1.61, -1.71


class LineFacts(NamedTuple):
    """How well changes agree along a line."""

    mean: float  # cosine
    lead: float  # of that mean over the best parallel line's
    votes: float  # sum of all seconds' votes, divided by 10
    proof: float  # mean lead over all parallel lines, in standard errors, divided by 10


def changes_of(frames: Array) -> Array:
    """What each frame adds to the frames around it, see `frame_changes`."""
    changes: Array = frame_changes(torch.from_numpy(np.array(frames, np.float32))).numpy()
    return changes


def describe_line(query: Array, reference_changes: Array, segment: Segment) -> LineFacts:
    """Facts of one segment.

    The parallel lines are the segment's own, moved along the query. Where that leads out of the
    query, as it soon does in a short one, the line is moved along the reference instead.
    """
    line, pace = segment.line, segment.line.pace
    first = min(int(segment.reference.start), len(reference_changes) - 1)
    seconds = reference_changes[first : max(math.ceil(segment.reference.end), first + 1)]
    step = max(1, round(1 / pace))  # reference seconds between two parallel lines
    nearest = int(APART / (step * pace)) + 1
    shifts = step * np.arange(nearest, nearest + PARALLELS)
    reach = int(shifts[-1]) + SCENE_REACH

    def along(phases: Sequence[float], margin: int) -> tuple[Array, NDArray[np.bool_]]:
        """Changes of the resampled query, from `margin` seconds before the segment to as many
        after it; and which of its frames lie inside the query."""
        middles = np.arange(first - margin, first + len(seconds) + margin) + 0.5
        places = line.query_at(middles) - 0.5
        return _changes_at(query, places[:, None] + np.asarray(phases))

    changes, is_shown = along(PHASES, SCENE_REACH)
    inner = slice(SCENE_REACH, -SCENE_REACH)
    on = _agree(seconds, changes[inner], is_shown[inner])
    changes, is_shown = along((0.0,), reach)
    beside = np.arange(len(seconds))[:, None] + np.concatenate([-shifts, shifts])
    off = _agree(seconds, changes[reach + beside, 0], is_shown[reach + beside, 0])
    rows = first + beside  # for where a parallel line leaves the query, see above
    is_known = (rows >= 0) & (rows < len(reference_changes)) & is_shown[reach:-reach]
    others = reference_changes[rows.clip(0, len(reference_changes) - 1)]
    instead = _agree(changes[reach:-reach, 0], others, is_known)
    return _weigh(on, np.where(np.isnan(off), instead, off))


def _changes_at(frames: Array, places: NDArray[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """Changes of k videos made of the frames at `places` (n, k), and which places are inside.

    A place between two frames gets a mixture of both; one outside gets no frame.
    """
    is_inside = (places > -0.5) & (places < len(frames) - 0.5)
    inside = places.clip(0, len(frames) - 1)
    before = np.floor(inside).astype(int)
    after = np.minimum(before + 1, len(frames) - 1)
    share = (inside - before)[..., None].astype(np.float32)
    taken = (1 - share) * frames[before] + share * frames[after]
    return changes_of(taken * is_inside[..., None]), is_inside


def _agree(seconds: Array, changes: Array, is_shown: NDArray[np.bool_]) -> Array:
    """Cosines (seconds, lines); nan where a line is outside the videos."""
    cosines: Array = np.where(is_shown, np.einsum("ij,ikj->ik", seconds, changes), np.nan)
    return cosines


def _weigh(on: Array, off: Array) -> LineFacts:
    """Facts from the cosines on the line, one column a phase, and on the parallel lines."""
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
    """Mean cosine of each line; 0 if more than half of the line is outside the videos."""
    is_known = ~np.isnan(cosines)
    count = is_known.sum(axis=0)
    sums = np.nan_to_num(cosines).clip(0).sum(axis=0)
    means: Array = np.where(2 * count >= len(cosines), sums / count.clip(1), 0.0)
    return means
