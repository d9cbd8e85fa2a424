"""Reading: a pair's streams through the line reader, window by window.

In: `PairStreams` and a `LineReader`. Out: `Cells` that may be copied.
A small pair is one window. Of a large one only the windows are read in which some cells stand out
of their row and of their column, for no copy can lie in the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from vcl_plugin.localize.lines import Cells
from vcl_plugin.localize.streams import PairStreams, blocks
from vcl_plugin.model.fast.device import HalvingBatch
from vcl_plugin.model.reader import LineReader

ONE_WINDOW = 320  # seconds; a pair up to this long on both sides is read at once
CORE, MARGIN = 96, 16  # of a window: what is kept of it, and what it sees around that
# A cell stands out if it is this much alike, and lies a deviation above the mean of its row and of
# its column. A window may hold a copy if so many of its cells stand out. On 161 copies that were
# found with every window read, none was lost; half of the windows without a copy are left out.
ALIKE, DEVIATIONS, MANY = 0.5, 1.0, 4
WINDOWS_AT_ONCE = 8


class Window(NamedTuple):
    """What is kept of a window, and what is shown of it to the reader."""

    rows: slice
    columns: slice
    seen_rows: slice
    seen_columns: slice


class Reading:
    """Reads pairs on one device."""

    def __init__(self, reader: LineReader, device: torch.device) -> None:
        self.device = device
        self.network = reader.fold_norms().to(device)
        # A CPU reads windows one by one fastest; a GPU wants them together.
        self._batch = HalvingBatch(self._read, 1 if device.type == "cpu" else WINDOWS_AT_ONCE)

    def read(self, streams: PairStreams) -> Cells:
        parts: list[tuple[int, int, NDArray[np.float32]]] = []
        waiting: list[tuple[Window, torch.Tensor]] = []
        for window in find_windows(streams):
            maps = streams.window(window.seen_rows, window.seen_columns)
            waiting.append((window, torch.from_numpy(maps)))
            if len(waiting) == WINDOWS_AT_ONCE:
                parts += self._finish(waiting)
                waiting = []
        parts += self._finish(waiting)
        return Cells.above(parts, streams.shape[1])

    def _finish(
        self, waiting: list[tuple[Window, torch.Tensor]]
    ) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
        """The chances of each window's core. Windows of one size are read together."""
        by_size: dict[torch.Size, list[tuple[Window, torch.Tensor]]] = {}
        for each in waiting:
            by_size.setdefault(each[1].shape, []).append(each)
        for group in by_size.values():
            chances = self._batch.run([maps for _, maps in group])
            for (window, _), seen in zip(group, chances, strict=True):
                top, left = window.seen_rows.start, window.seen_columns.start
                kept = seen[
                    window.rows.start - top : window.rows.stop - top,
                    window.columns.start - left : window.columns.stop - left,
                ]
                yield window.rows.start, window.columns.start, kept.numpy()

    @torch.inference_mode()
    def _read(self, maps: torch.Tensor) -> torch.Tensor:
        shown = maps.to(self.device).contiguous(memory_format=torch.channels_last)
        return torch.sigmoid(self.network(shown)).cpu()


def find_windows(streams: PairStreams) -> Iterator[Window]:
    """Windows that may hold a copy: the whole map if it is small and any part of it may."""
    height, width = streams.shape
    grid = find_outstanding(streams)
    if max(height, width) <= ONE_WINDOW:
        if grid.any():
            whole = slice(0, height), slice(0, width)
            yield Window(*whole, *whole)
        return
    for down, across in np.argwhere(grid).tolist():
        rows = slice(down * CORE, min((down + 1) * CORE, height))
        columns = slice(across * CORE, min((across + 1) * CORE, width))
        seen_rows = slice(max(0, rows.start - MARGIN), min(height, rows.stop + MARGIN))
        seen_columns = slice(max(0, columns.start - MARGIN), min(width, columns.stop + MARGIN))
        yield Window(rows, columns, seen_rows, seen_columns)


def find_outstanding(streams: PairStreams) -> NDArray[np.bool_]:
    """Which cores of the grid have enough cells that stand out. (rows / CORE, columns / CORE)"""
    height, width = streams.shape
    down, across = -(-height // CORE), -(-width // CORE)
    counts = np.zeros((down, across), np.int64)
    for rows in blocks(height, width):
        stands_out = streams.outstanding(rows, ALIKE, DEVIATIONS)
        by_column = np.add.reduceat(stands_out, np.arange(0, width, CORE), axis=1, dtype=np.int64)
        np.add.at(counts, np.arange(rows.start, rows.stop) // CORE, by_column)
    return counts >= MANY
