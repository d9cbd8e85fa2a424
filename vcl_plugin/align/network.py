"""Temporal network: the best chains of matching frames, each step forward in both videos.

In: a similarity map. Out: `Path`s, strongest first.
Loaded by the name "tn" (Tan et al., "Scalable detection of partial near-duplicate videos by
visual-temporal consistency", ACM Multimedia 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vcl_plugin.align.aligner import Aligner, Indices, Map, Path, background

NEVER = np.float32(-1e9)


@dataclass(frozen=True)
class TemporalNetwork(Aligner):
    """Nodes are the `top_k` best reference frames of each query frame; an edge leads to a later
    node at most `max_step` seconds on. A node is worth its similarity above a floor, an edge costs
    the frames it skips and the time it shifts. Paths are the chains worth most.

    The floor lies `deviations` above the map's own background and between `min_similarity` and
    `sure_similarity`: frames at least that alike always count.
    """

    name: ClassVar[str] = "tn"

    top_k: int = 5
    max_step: int = 10
    min_similarity: float = 0.3
    sure_similarity: float = 0.7
    deviations: float = 3.0
    min_length: int = 4
    min_strength: float = 0.8
    skip_cost: float = 0.02
    shift_cost: float = 0.04
    max_speed: float = 2.5

    def find_paths(self, similarity: Map) -> list[Path]:
        middle, spread = background(similarity)
        floor = float(
            np.clip(middle + self.deviations * spread, self.min_similarity, self.sure_similarity)
        )
        columns, worth = best_columns(similarity, self.top_k, floor)
        totals, previous = self._chain(columns, worth)
        return [
            path for path in unravel_paths(columns, totals, previous) if self._is_plausible(path)
        ]

    def _chain(
        self, columns: Indices, worth: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], Indices]:
        """The worth of the best chain that ends in each node, and the node before it (-1: none).

        Nodes are numbered row by row, `top_k` a row.
        """
        rows, width = columns.shape
        step = min(self.max_step, max(rows - 1, 1))
        totals = np.full((rows + step, width), NEVER, dtype=np.float32)  # `step` rows of nothing
        previous = np.full((rows, width), -1, dtype=np.intp)
        edges = self._edge_costs(columns, step)  # (rows, width, step * width)
        for row in range(rows):
            reach = totals[row : row + step].reshape(-1) - edges[row]  # (width, step * width)
            before = reach.argmax(axis=1)
            gain = reach[np.arange(width), before]
            linked = gain > 0
            totals[row + step] = worth[row] + np.where(linked, gain, 0)
            previous[row, linked] = (row - step) * width + before[linked]
        return totals[step:], previous

    def _edge_costs(self, columns: Indices, step: int) -> NDArray[np.float32]:
        rows, width = columns.shape
        padded = np.concatenate([np.full((step, width), -1), columns])
        windows = np.lib.stride_tricks.sliding_window_view(padded, step, axis=0)[:rows]
        earlier = windows.transpose(0, 2, 1).reshape(rows, 1, step * width)
        run = np.repeat(np.arange(step, 0, -1, dtype=np.float32), width)  # query seconds of a step
        rise = (columns[:, :, None] - earlier).astype(np.float32)  # reference seconds of a step
        legal = (
            (rise >= 0) & (rise <= self.max_speed * run + 1) & (rise >= run / self.max_speed - 1)
        )
        cost = self.skip_cost * (run - 1) + self.shift_cost * np.abs(rise - run)
        return np.where(legal & (rise <= self.max_step * self.max_speed), cost, -NEVER).astype(
            np.float32
        )

    def _is_plausible(self, path: Path) -> bool:
        q_start, r_start, q_end, r_end = path.box
        shortest = min(len(np.unique(path.rows)), len(np.unique(path.columns)))
        slope = (r_end - r_start) / (q_end - q_start)
        return (
            path.strength >= self.min_strength
            and shortest >= self.min_length
            and 1 / (self.max_speed + 0.5) <= slope <= self.max_speed + 0.5
        )


def best_columns(similarity: Map, count: int, floor: float) -> tuple[Indices, NDArray[np.float32]]:
    """Per row the `count` columns most alike and how far above `floor` they are (below: NEVER)."""
    rows, width = similarity.shape
    count = min(count, width)
    if count == width:
        columns = np.tile(np.arange(width), (rows, 1))
    else:
        columns = np.argpartition(similarity, width - count, axis=1)[:, width - count :]
    worth = np.take_along_axis(similarity, columns, axis=1) - np.float32(floor)
    return columns, np.where(worth > 0, worth, NEVER).astype(np.float32)


def unravel_paths(columns: Indices, totals: NDArray[np.float32], previous: Indices) -> list[Path]:
    """Paths that share no node: from the best end back to its start or to a stronger path."""
    width = columns.shape[1]
    flat_columns, flat_totals, flat_previous = columns.ravel(), totals.ravel(), previous.ravel()
    used = np.zeros(flat_totals.shape, dtype=bool)
    paths = []
    ends = np.flatnonzero(flat_totals > 0)
    for end in ends[np.argsort(-flat_totals[ends], kind="stable")]:
        nodes = []
        node = int(end)
        while node >= 0 and not used[node]:
            nodes.append(node)
            node = int(flat_previous[node])
        if not nodes:
            continue
        chain = np.array(nodes[::-1])
        used[chain] = True
        inherited = float(flat_totals[node]) if node >= 0 else 0.0
        paths.append(Path(chain // width, flat_columns[chain], float(flat_totals[end]) - inherited))
    return sorted(paths, key=lambda path: -path.strength)
