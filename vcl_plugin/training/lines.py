"""Teaches a line reader: footage and real geometry in, a weights file out.

In: a folder of footage, label files, a number of steps. Out: weights.
Pairs are cut in other processes while the network learns. A run that was stopped goes on from its
state file. Run by `vcl lines train`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vcl_plugin.localize.streams import STREAMS, PairStreams
from vcl_plugin.model.reader import LineReader
from vcl_plugin.model.reader_file import open_reader
from vcl_plugin.training.cuts import Copy, CutPair, Cutter, read_layouts
from vcl_plugin.training.footage import read_footage

SIDE = 144  # seconds of a window that is learnt from
PAIRS, WINDOWS = 4, 2  # pairs of a step, windows of a pair
RATE, LAST_SHARE, DECAY, WARM_UP = 1.5e-3, 0.02, 1e-3, 50
AVERAGING = 0.998
FOCUS = 1.5  # how much less cells count that are right already
NEAR = 3  # cells beside a line that are neither copied nor not
SAME = 0.97  # reference seconds this much alike show the same: no cell of theirs is wrong
SHORT, MOST = 12, 3.0  # seconds from which on copies count alike; the most that a short one counts
SAVE_EVERY = 250

Window = tuple[NDArray[np.float16], NDArray[np.float16], NDArray[np.float16]]
OnStep = Callable[[int, int, dict[str, float]], None]


@dataclass(frozen=True)
class Course:
    """What is learnt from, and for how long."""

    footage: Path
    geometry: tuple[Path, ...]
    steps: int = 3600
    seed: int = 1
    processes: int = 1
    start: Path | None = None  # weights to go on from
    state: Path | None = None


def mark_cells(
    shape: tuple[int, int], copies: Sequence[Copy], known: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Which cells of a map are copied, and how much each counts.

    A line is three cells wide, along its rows and along its columns, so that a steep one has no
    holes. Cells beside it count nothing: it is no mistake to take them for copied. Nor is it where
    the reference (`known`) shows the same for a while. Beyond the ends of a copy in the query cells
    do count, or segments would be too long.
    """
    is_copied, weights = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    for copy in copies:
        q_start, r_start, q_end, r_end = copy.box
        weights[_widen(copy, NEAR)] = 0.0
        shown = known[np.clip(copy.shown.astype(int), r_start, r_end - 1)]
        weights[q_start:q_end][shown @ known.T > SAME] = 0.0
    for copy in copies:
        q_start, r_start, q_end, r_end = copy.box
        line = _widen(copy, 1)
        is_copied[line] = 1.0
        weights[line] = min(MOST, max(1.0, SHORT / min(q_end - q_start, r_end - r_start)))
    return is_copied, weights


def _widen(copy: Copy, reach: int) -> tuple[Any, Any]:
    """Cells of the box at most `reach` beside the line, in its rows and in its columns."""
    q_start, r_start, q_end, r_end = copy.box
    rows = np.arange(q_start, q_end)
    columns = np.clip(copy.shown.astype(int), r_start, r_end - 1)
    order = np.argsort(copy.shown, kind="stable")
    across = np.arange(r_start, r_end)
    down = np.rint(np.interp(across + 0.5, copy.shown[order], rows[order])).astype(int)
    beside = np.arange(-reach, reach + 1)
    found_rows = np.concatenate([np.repeat(rows, len(beside)), (down[:, None] + beside).ravel()])
    found_columns = np.concatenate(
        [(columns[:, None] + beside).ravel(), np.repeat(across, len(beside))]
    )
    inside = (found_rows >= q_start) & (found_rows < q_end)
    inside &= (found_columns >= r_start) & (found_columns < r_end)
    return found_rows[inside], found_columns[inside]


def cut_window(pair: CutPair, maps: NDArray[np.float32], rng: np.random.Generator) -> Window:
    """A part of a pair's maps, mostly one with a copy in it, at times turned round."""
    is_copied, weights = mark_cells(maps.shape[1:], pair.copies, pair.known)
    height, width = is_copied.shape
    row, column = int(rng.integers(height)), int(rng.integers(width))
    if pair.copies and rng.random() < 0.8:
        copy = pair.copies[int(rng.integers(len(pair.copies)))]
        row = int(rng.integers(copy.box[0], copy.box[2]))
        column = int(copy.shown[row - copy.box[0]])
    top, left = (
        int(np.clip(place - rng.integers(SIDE), 0, max(0, side - SIDE)))
        for place, side in ((row, height), (column, width))
    )
    part = slice(top, top + SIDE), slice(left, left + SIDE)
    layers = np.zeros((len(STREAMS) + 2, SIDE, SIDE), np.float16)
    cut = np.concatenate([maps[:, *part], is_copied[None, *part], weights[None, *part]])
    layers[:, : cut.shape[1], : cut.shape[2]] = cut
    if rng.random() < 0.5:  # query and reference change places
        layers[[1, 2, 5, 6, 7, 8]] = layers[[2, 1, 6, 5, 8, 7]]
        layers = layers.transpose(0, 2, 1)
    if rng.random() < 0.3:  # the reference runs backwards
        layers = layers[:, :, ::-1]
    return layers[:-2].copy(), layers[-2].copy(), layers[-1].copy()


def measure_loss(logits: Tensor, is_copied: Tensor, weights: Tensor) -> Tensor:
    """Cross entropy of the cells, those counting less that are right already, a copied cell."""
    chances = torch.sigmoid(logits)
    right = torch.where(is_copied > 0.5, chances, 1 - chances)
    cells = F.binary_cross_entropy_with_logits(logits, is_copied, reduction="none")
    return (cells * (1 - right) ** FOCUS * weights).sum() / (is_copied.sum() + 60.0 * len(logits))


class Lesson:
    """A reader, its optimizer and the average of its weights."""

    def __init__(self, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.steps, self.step = steps, 0
        self.reader = LineReader().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.AdamW(self.reader.parameters(), RATE, weight_decay=DECAY)
        self.average = {name: each.clone() for name, each in self.reader.state_dict().items()}

    def begin_with(self, reader: LineReader) -> None:
        self.reader.load_state_dict(reader.state_dict())
        self.average = {name: each.clone() for name, each in reader.state_dict().items()}

    def learn(self, batch: Sequence[Tensor]) -> dict[str, float]:
        """One step: its loss, the share of copied cells found, and false cells a copied one."""
        streams, is_copied, weights = batch
        done = self.step / self.steps
        share = LAST_SHARE + (1 - LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * share * min(1.0, (self.step + 1) / WARM_UP)
        logits = self.reader(streams.contiguous(memory_format=torch.channels_last))
        loss = measure_loss(logits, is_copied, weights)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.reader.parameters(), 2.0)
        self.optimizer.step()
        self._average()
        self.step += 1
        with torch.no_grad():
            copied, likely = is_copied > 0.5, logits > 0
            count = max(1, int(copied.sum()))
            found, false = (likely & copied).sum(), (likely & ~copied & (weights > 0)).sum()
        return {"loss": loss.item(), "found": found.item() / count, "false": false.item() / count}

    @torch.no_grad()
    def _average(self) -> None:
        share = 1 - min(AVERAGING, self.step / (self.step + 10))
        for name, each in self.reader.state_dict().items():
            if each.dtype.is_floating_point:
                self.average[name].lerp_(each, share)
            else:
                self.average[name].copy_(each)

    def save(self, path: Path) -> None:
        state = {
            "reader": self.reader.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "step": self.step,
        }
        beside = path.with_name(path.name + ".new")
        torch.save(state, beside)
        beside.replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.reader.load_state_dict(state["reader"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average, self.step = state["average"], state["step"]


def teach_reader(course: Course, on_step: OnStep = lambda done, total, facts: None) -> LineReader:
    """The average of the weights at the end of the course."""
    torch.set_num_threads(1)  # the other cores cut pairs
    lesson = Lesson(course.steps, course.seed)
    if course.start is not None:
        lesson.begin_with(open_reader(course.start)[0])
    if course.state is not None and course.state.exists():
        lesson.load(course.state)
    batches = stream_batches(course, lesson.step)
    while lesson.step < course.steps:
        facts = lesson.learn(next(batches))
        on_step(lesson.step, course.steps, facts)
        if course.state is not None and lesson.step % SAVE_EVERY == 0:
            lesson.save(course.state)
    batches.close()
    lesson.reader.load_state_dict(lesson.average)
    return lesson.reader.eval()


def stream_batches(course: Course, first: int) -> Generator[list[Tensor]]:
    """Batches `first`, `first + 1`, … of a seed: a run that goes on gets what it would have got."""
    with ProcessPoolExecutor(course.processes, get_context("spawn"), _prepare, (course,)) as pool:
        waiting: deque[Future[list[NDArray[np.float16]]]] = deque()
        try:
            while True:
                while len(waiting) < 4 * course.processes:
                    waiting.append(pool.submit(_cut_batch, first))
                    first += 1
                yield [torch.from_numpy(each).float() for each in waiting.popleft().result()]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_process: dict[str, Any] = {}


def _prepare(course: Course) -> None:
    layouts = read_layouts(course.geometry, "train")
    _process["cutter"] = Cutter(read_footage(course.footage), layouts, course.seed)


def _cut_batch(number: int) -> list[NDArray[np.float16]]:
    cutter: Cutter = _process["cutter"]
    windows: list[Window] = []
    for place in range(number * PAIRS, (number + 1) * PAIRS):
        pair, rng = cutter.cut(place), np.random.default_rng([cutter.seed, 1, place])
        streams = PairStreams(pair.query, pair.reference)
        whole = slice(0, streams.shape[0]), slice(0, streams.shape[1])
        maps = streams.window(*whole)
        windows += [cut_window(pair, maps, rng) for _ in range(WINDOWS)]
    return [np.stack(each) for each in zip(*windows, strict=True)]
