"""Samples to fit a descriptor on: originals without end and edited copies of them.

In: folders of photographs and videos. Out: `Samples`, what the network's trunk says of each.
Called by `fitting`. No picture is an original as it came: each original is a window of one, or of
two mixed, so that none can be learnt by heart.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from retrieval.describe.fitting.edits import EDITS, Picture, Rng, draw_strength
from retrieval.describe.fitting.material import Source
from retrieval.describe.lite0 import build_trunk, find_backbone, read_backbone
from retrieval.describe.pictures import squash

SIDE = 224
JOB = 40  # originals that a process draws at once
BATCH = 16  # pictures that the trunk sees at once
MIX_SHARE = 0.25  # of all originals show two pictures
# Edits drawn twice as often as the others: those that the network knows least of by itself.
HARD = ("crop", "rotate", "blend", "combine", "split_screen")


@dataclass(frozen=True)
class Samples:
    """Originals, each followed by its copies. `shown` are the sources in a picture, -1 for none."""

    maps: NDArray[np.float16]  # (originals, 1 + copies, 192, 7, 7)
    middle: NDArray[np.float16]  # (originals, 1 + copies, 672)
    shown: NDArray[np.int32]  # (originals, 1 + copies, 3)

    def __len__(self) -> int:
        return len(self.shown)

    def first(self, count: int) -> Samples:
        return Samples(self.maps[:count], self.middle[:count], self.shown[:count])

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, maps=self.maps, middle=self.middle, shown=self.shown)

    @classmethod
    def load(cls, path: Path) -> Samples:
        with np.load(path, allow_pickle=False) as content:
            return cls(content["maps"], content["middle"], content["shown"])


def draw_samples(
    sources: list[Source], originals: int, copies: int, seed: int, processes: int = 1
) -> Samples:
    jobs = range(-(-originals // JOB))
    work = partial(_describe_job, copies=copies, seed=seed)
    started, parts = time.monotonic(), []
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_prepare, initargs=(sources,)
    ) as pool:
        for part in pool.map(work, jobs):
            parts.append(part)
            if len(parts) % 10 == 0:
                pace = (time.monotonic() - started) / len(parts)
                left = pace * (len(jobs) - len(parts)) / 60
                print(
                    f"described {len(parts) * JOB} originals, {left:.0f} min left", file=sys.stderr
                )
    return Samples(*(np.concatenate(column)[:originals] for column in zip(*parts, strict=True)))


def draw_original(sources: list[Source], rng: Rng) -> tuple[Picture, list[int]]:
    """A window of a picture, mirrored or recoloured at times, at times with another one in it;
    and the numbers of those it shows."""
    number = int(rng.integers(len(sources)))
    picture, shown = draw_window(sources[number].picture, rng), [number]
    if rng.random() < MIX_SHARE:
        number = int(rng.integers(len(sources)))
        other = draw_window(sources[number].picture, rng).resize(picture.size)
        shown.append(number)
        if rng.random() < 0.5:
            picture = Image.blend(picture, other, rng.uniform(0.3, 0.5))
        else:
            width, height = picture.size
            across = rng.random() < 0.5
            share = rng.uniform(0.35, 0.65)
            box = (
                (0, 0, int(width * share), height) if across else (0, 0, width, int(height * share))
            )
            picture.paste(other.crop(box), box)
    if rng.random() < 0.3:
        picture = ImageEnhance.Color(picture).enhance(rng.uniform(0.4, 1.6))
        picture = ImageEnhance.Contrast(picture).enhance(rng.uniform(0.7, 1.4))
    return picture, shown


def draw_window(picture: Picture, rng: Rng) -> Picture:
    width, height = picture.size
    wide = int(width * rng.uniform(0.55, 1.0))
    high = int(height * np.clip(wide / width * rng.uniform(0.85, 1.18), 0.5, 1.0))
    left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
    window = picture.crop((left, top, left + wide, top + high))
    return ImageOps.mirror(window) if rng.random() < 0.5 else window


_process: dict[str, Any] = {}


def _prepare(sources: list[Source]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    trunk = build_trunk(read_backbone(find_backbone()))
    _process.update(sources=sources, trunk=onnxruntime.InferenceSession(trunk, options))


def _describe_job(
    job: int, copies: int, seed: int
) -> tuple[NDArray[np.float16], NDArray[np.float16], NDArray[np.int32]]:
    rng = np.random.default_rng([seed, job])
    sources: list[Source] = _process["sources"]
    names = [*EDITS, *HARD]
    pictures = np.empty((JOB, 1 + copies, SIDE, SIDE, 3), np.uint8)
    shown = np.full((JOB, 1 + copies, 3), -1, np.int32)
    for row in range(JOB):
        original, members = draw_original(sources, rng)
        pictures[row, 0] = squash(np.asarray(original), (SIDE, SIDE))
        shown[row, :, : len(members)] = members
        for column, name in enumerate(rng.choice(names, copies, replace=False), start=1):
            other = int(rng.integers(len(sources)))
            strength = draw_strength(rng, held_out=False)
            edited = EDITS[str(name)](original, strength, rng, sources[other].picture)
            pictures[row, column] = squash(np.asarray(edited), (SIDE, SIDE))
            shown[row, column, 2] = other
    maps, middle = [], []
    rows = pictures.reshape(-1, SIDE, SIDE, 3)
    for at in range(0, len(rows), BATCH):
        each_map, each_middle = _process["trunk"].run(None, {"pictures": rows[at : at + BATCH]})
        maps.append(each_map.astype(np.float16))
        middle.append(each_middle.astype(np.float16))
    whole = np.concatenate(maps)
    return (
        whole.reshape(JOB, 1 + copies, *whole.shape[1:]),
        np.concatenate(middle).reshape(JOB, 1 + copies, -1),
        shown,
    )
