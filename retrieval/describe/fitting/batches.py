"""Batches to fit a descriptor on: originals, each with edited copies, as the first blocks see them.

In: pictures (`material`). Out: `Batch`es without end, drawn in other processes while the fit works.
A third of each batch is film: runs of neighbouring seconds, edited alike as in a copied film. They
teach what a localizer needs, that one second differs from the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ImageOps

from retrieval.describe.fitting.edits import EDITS, chain, draw_strength
from retrieval.describe.fitting.material import Source
from retrieval.describe.fitting.reshaping import Picture, Rng
from retrieval.describe.lite0 import build_first_blocks, find_backbone, read_backbone
from retrieval.describe.pictures import squash

ORIGINALS, COPIES = 64, 3
RUNS, RUN_SECONDS = 8, 3  # of film in a batch
SIDES, SIDE_SHARES = (224, 192, 160), (0.6, 0.2, 0.2)
PICTURES_AT_ONCE = 16
AHEAD = 4  # batches a process draws in advance
ALIKE_SHARE = 0.6  # of the runs whose seconds get the same edits
# Edits of the first copy, those twice that the network knows least of by itself.
SINGLE = [*(name for name in EDITS if name != "combine")]
SINGLE += ["inset", "split_screen", "blend", "rotate", "crop", "perspective", "blur", "compress"]
SINGLE += ["sticker", "sticker", "sticker", "slice_crop", "pad"]
CHAINED = [name for name in EDITS if name not in ("combine", "turn")]
MIXED = ["inset", "inset", "split_screen", "blend", "sticker"]


@dataclass(frozen=True)
class Batch:
    """What the first blocks say of originals and copies, and which sources each picture shows."""

    maps: NDArray[np.float16]  # (originals · (1 + copies), channels, high, wide)
    shown: NDArray[np.int32]  # (originals, 1 + copies, 2): its own source, one mixed in or -1


class Painter:
    """Draws pictures of a batch from sources."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self.photographs = [n for n, each in enumerate(sources) if not each.is_film]
        films: dict[str, list[int]] = {}
        for number, each in enumerate(sources):
            if each.is_film:
                films.setdefault(each.name, []).append(number)
        self.films = list(films.values())
        lengths = np.sqrt([len(each) for each in self.films])
        self.chances = lengths / max(1e-9, float(lengths.sum()))

    def draw(
        self, rng: Rng, originals: int = ORIGINALS, copies: int = COPIES
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Pictures (originals, 1 + copies, side, side, 3), and the sources they show."""
        side = int(rng.choice(SIDES, p=SIDE_SHARES))
        rows = self._draw_rows(rng, originals)
        opened = [self.sources[number].picture for number, _ in rows]
        pictures = np.empty((originals, 1 + copies, side, side, 3), np.uint8)
        shown = np.full((originals, 1 + copies, 2), -1, np.int32)
        for row, (number, run) in enumerate(rows):
            own = rng if run is None else np.random.default_rng(run)
            original = draw_window(opened[row], own)
            pictures[row, 0] = squash(np.asarray(original), (side, side))
            shown[row, :, 0] = number
            is_alike = run is not None and own.random() < ALIKE_SHARE
            for column in range(1, 1 + copies):
                dice = np.random.default_rng([run or 0, column]) if is_alike else rng
                other = int(dice.integers(originals))
                edited = draw_copy(original, column, dice, draw_window(opened[other], dice))
                pictures[row, column] = squash(np.asarray(edited.convert("RGB")), (side, side))
                shown[row, column, 1] = rows[other][0]
        return pictures, shown

    def _draw_rows(self, rng: Rng, originals: int) -> list[tuple[int, int | None]]:
        """Sources, and for seconds of film the seed that their run shares."""
        runs = min(RUNS, originals // RUN_SECONDS) if self.films else 0
        rows: list[tuple[int, int | None]] = []
        for _ in range(runs):
            film = self.films[int(rng.choice(len(self.films), p=self.chances))]
            first, seed = (
                int(rng.integers(max(1, len(film) - RUN_SECONDS + 1))),
                rng.integers(2**40),
            )
            step = 1 if rng.random() < 0.7 else 2
            for place in range(RUN_SECONDS):
                rows.append((film[min(first + place * step, len(film) - 1)], int(seed)))
        photographs = self.photographs or list(range(len(self.sources)))
        left = originals - len(rows)
        chosen = rng.choice(photographs, left, replace=len(photographs) < left)
        return [*((int(number), None) for number in chosen), *rows]


def draw_window(picture: Picture, rng: Rng) -> Picture:
    """Most of a picture, at times mirrored. Square ones were often squashed by who made them, so
    they get another aspect ratio."""
    if picture.width == picture.height:
        factor = np.exp(rng.uniform(-0.3, 0.3))
        size = (max(128, int(picture.width * factor)), max(128, int(picture.height / factor)))
        picture = picture.resize(size)
    if rng.random() < 0.6:
        width, height = picture.size
        wide = rng.uniform(0.6, 1.0)
        high = float(np.clip(wide * rng.uniform(0.8, 1.25), 0.5, 1.0))
        left, top = rng.uniform(0, 1 - wide) * width, rng.uniform(0, 1 - high) * height
        box = (int(left), int(top), int(left + wide * width), int(top + high * height))
        picture = picture.crop(box)
    return ImageOps.mirror(picture) if rng.random() < 0.5 else picture


def draw_copy(picture: Picture, column: int, rng: Rng, other: Picture) -> Picture:
    """The first copy gets one edit, the second two, the others three, or one and a mixture."""

    def draw() -> float:
        return draw_strength(rng, held_out=False)

    if column == 1:
        return EDITS[str(rng.choice(SINGLE))](picture, draw(), rng, other)
    if column == 2:
        return chain(picture, 2, lambda: 0.85 * draw(), rng, other, CHAINED)
    if rng.random() < 0.5:
        picture = chain(picture, 1, lambda: 0.7 * draw(), rng, other, CHAINED)
        return EDITS[str(rng.choice(MIXED))](picture, draw(), rng, other)
    return chain(picture, 3, lambda: 0.75 * draw(), rng, other, CHAINED)


def stream_batches(
    sources: Sequence[Source], seed: int, first: int = 0, processes: int = 1
) -> Generator[Batch]:
    """Batches `first`, `first + 1`, … of a seed: a fit that goes on gets what it would have got."""
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_prepare, initargs=(sources,)
    ) as pool:
        waiting: deque[Future[Batch]] = deque()
        number = first
        try:
            while True:
                while len(waiting) < AHEAD * processes:
                    waiting.append(pool.submit(draw_batch, seed, number))
                    number += 1
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_process: dict[str, Any] = {}


def _prepare(sources: Sequence[Source]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = build_first_blocks(read_backbone(find_backbone()))
    _process["painter"] = Painter(sources)
    _process["first blocks"] = onnxruntime.InferenceSession(graph, options)


def draw_batch(seed: int, number: int) -> Batch:
    pictures, shown = _process["painter"].draw(np.random.default_rng([seed, number]))
    rows = pictures.reshape(-1, *pictures.shape[2:])
    parts = [
        _process["first blocks"].run(None, {"pictures": rows[at : at + PICTURES_AT_ONCE]})[0]
        for at in range(0, len(rows), PICTURES_AT_ONCE)
    ]
    return Batch(np.concatenate(parts).astype(np.float16), shown)
