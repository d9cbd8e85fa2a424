"""Temporal network: the best chains of matching frames, each step forward in both videos.

In: a similarity map. Out: `Path`s that share no cell.
Loaded by the name "tn" (Tan et al., "Scalable detection of partial near-duplicate videos by
visual-temporal consistency", ACM Multimedia 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vcl_plugin.align.aligner import Aligner
from vcl_plugin.align.matches import Indices, Map, Matches
from vcl_plugin.align.paths import Path

NEVER = np.float32(-1e9)


@dataclass(frozen=True)
class TemporalNetwork(Aligner):
    """Nodes are the `top_k` best reference frames of each query frame; an edge leads to a later
    node at most `max_step` seconds on. A node is worth its similarity above the floor, an edge
    costs the frames it skips and the time it shifts. Paths are the chains worth most.
    """

    name: ClassVar[str] = "tn"

    top_k: int = 5
    max_step: int = 10
    skip_cost: float = 0.05
    shift_cost: float = 0.08

    def find_paths(self, matches: Matches) -> list[Path]:
        best = matches.best(self.top_k)
        places = best.row_places()
        shape = (best.shape[0], int(places.max()) + 1)
        columns = np.full(shape, -1, dtype=np.intp)
        worth = np.zeros(shape, dtype=np.float32)  # 0: no node
        columns[best.rows, places] = best.columns
        worth[best.rows, places] = best.worth
        totals, previous = self._chain(columns, worth)
        return unravel_paths(columns, totals, previous)

    def _chain(self, columns: Indices, worth: Map) -> tuple[Map, Indices]:
        """The worth of the best chain that ends in each node, and the node before it (-1: none).

        Nodes are numbered row by row, as many a row as `columns` is wide.
        """
        rows, width = columns.shape
        step = min(self.max_step, rows)
        is_node = worth > 0
        totals = np.full((rows + step, width), NEVER)  # the first `step` rows hold nothing
        previous = np.full((rows, width), -1, dtype=np.intp)
        active = np.flatnonzero(is_node.any(axis=1))
        costs = self._edge_costs(columns, active, step)  # (active, width, step * width)
        every = np.arange(width)
        for row, cost in zip(active.tolist(), costs, strict=True):
            reach = totals[row : row + step].reshape(-1) - cost  # (width, step * width)
            before = reach.argmax(axis=1)
            gain = reach[every, before]
            linked = (gain > 0) & is_node[row]
            totals[row + step] = np.where(is_node[row], worth[row] + np.maximum(gain, 0), NEVER)
            previous[row, linked] = (row - step) * width + before[linked]
        return totals[step:], previous

    def _edge_costs(self, columns: Indices, active: Indices, step: int) -> NDArray[np.float32]:
        """What it costs to reach each node of the active rows from each node of `step` rows before.

        A single edge may be twice as steep as a whole path: one frame a second is a coarse grid.
        """
        width = columns.shape[1]
        padded = np.concatenate([np.full((step, width), -1), columns]).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(padded, step, axis=0)[active]
        earlier = windows.transpose(0, 2, 1).reshape(len(active), 1, step * width)
        run = np.repeat(np.arange(step, 0, -1, dtype=np.float32), width)  # query seconds
        rise = columns[active].astype(np.float32)[:, :, None] - earlier  # reference seconds
        cost = np.abs(rise - run)
        cost *= self.shift_cost
        cost += self.skip_cost * (run - 1)
        cost[(rise < run / self.max_speed - 1) | (rise > run * self.max_speed + 1)] = -NEVER
        cost[rise < 0] = -NEVER
        return cost


def unravel_paths(columns: Indices, totals: Map, previous: Indices) -> list[Path]:
    """Paths that share no node: from the best end back to its start or to a stronger path."""
    width = columns.shape[1]
    flat_columns, flat_totals = columns.ravel(), totals.ravel()
    back = previous.ravel().tolist()
    ends = np.flatnonzero(flat_totals > 0)
    used = set()
    paths = []
    for end in ends[np.argsort(-flat_totals[ends], kind="stable")].tolist():
        nodes = []
        node = end
        while node >= 0 and node not in used:
            nodes.append(node)
            node = back[node]
        if nodes:
            used.update(nodes)
            chain = np.array(nodes[::-1])
            paths.append(Path(chain // width, flat_columns[chain]))
    return paths
