"""Footage to learn lines from: films and photographs, described clean and really edited.

In: folders of photographs and of films. Out: a folder with one file a source, and `Footage`.
An edit draws its parameters once a version and keeps them for all frames, and films go through an
encoder after it: what is left differs from the original in the same way from frame to frame.
A filling that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.fitting.edits import EDITS
from retrieval.describe.fitting.material import Split, split_of
from retrieval.errors import NotFound
from retrieval.media.video import read_frames
from retrieval.plugins import Array
from vcl_plugin.demo.footage import render_reference, write_video
from vcl_plugin.evaluation.sources import find_videos

Picture = Image.Image
Rng = np.random.Generator

FPS = 4  # frames a second of film: a copy may begin anywhere between two seconds
LONGEST = 90  # seconds of one film
PHOTO_SECONDS, PHOTO_FRAMES = 10.0, 6  # a camera that glides over a photograph
SHORT_SIDE = 240
DRAWN_SECONDS = 40.0
CHAIN = (1, 1, 2, 2, 3)  # how many edits a version gets, each as likely as the next
PLAIN = 0.7  # share of first versions that only the encoder changes
STRENGTH = (0.05, 0.95)
QUALITY = (23, 37)  # crf of the encoder
# "combine" draws other edits by itself; a chain does that here.
FAMILIES = tuple(name for name in EDITS if name != "combine")


@dataclass(frozen=True, eq=False)
class Footage:
    """One source: row 0 is the original, the others are its edited versions."""

    group: str  # sources of one group show the same
    is_film: bool
    rows: Array  # (versions, frames, d)
    means: Array  # (versions, 1, d)

    @classmethod
    def read(cls, path: Path) -> Footage:
        with np.load(path, allow_pickle=False) as content:
            rows = content["rows"].astype(np.float32)
            means = rows.mean(axis=1, keepdims=True)
            return cls(str(content["group"]), bool(content["is_film"]), rows, means)

    @property
    def versions(self) -> int:
        return len(self.rows)

    @property
    def seconds(self) -> float:
        return self.rows.shape[1] / FPS if self.is_film else PHOTO_SECONDS

    def show(self, version: int, seconds: NDArray[np.floating[Any]]) -> Array:
        """Descriptors of a version at these seconds. The camera over a photograph turns back when
        it has arrived."""
        rows = self.rows[version]
        if self.is_film:
            return rows[np.clip((seconds * FPS).astype(int), 0, len(rows) - 1)]
        last = PHOTO_FRAMES - 1
        place = np.abs(seconds * last / PHOTO_SECONDS) % (2 * last)
        place = np.where(place > last, 2 * last - place, place)
        low = np.minimum(place.astype(int), last - 1)
        share = (place - low).astype(np.float32)[:, None]
        shown: Array = (1 - share) * rows[low] + share * rows[low + 1]
        return shown


def read_footage(folder: Path) -> list[Footage]:
    found = [Footage.read(path) for path in sorted(folder.glob("*.npz"))]
    if not any(each.is_film for each in found) or all(each.is_film for each in found):
        raise NotFound(f"{folder} needs films and photographs; fill it by `vcl lines footage`")
    return found


@dataclass(frozen=True)
class Job:
    """One source to describe."""

    path: Path
    group: str
    is_film: bool
    target: Path


def plan_jobs(
    images: Path, videos: Path, out: Path, split: Split, photographs: int, drawn: int = 0
) -> list[Job]:
    """The films of a split and some of its photographs, always the same ones, and drawn films."""
    films = [each for each in find_videos(videos) if each.split == split]
    photos = [path for path in sorted(images.rglob("*.jpg")) if split_of(path.stem) == split]
    np.random.default_rng(3).shuffle(photos)
    jobs = [Job(Path(str(each.path)), each.group, True, out / _name(each.name)) for each in films]
    jobs += [Job(path, path.stem, False, out / _name(path.name)) for path in photos[:photographs]]
    return jobs + [_draw_film(out, split, number) for number in range(drawn)]


def _draw_film(out: Path, split: Split, number: int) -> Job:
    """A rendered film: to a descriptor all of them look much alike."""
    path = out / "drawn" / f"drawn-{split}-{number}.mp4"
    if not path.exists():
        new = path.with_suffix(".part.mp4")
        render_reference(new, 90_000 + zlib.crc32(path.name.encode()) % 10_000, DRAWN_SECONDS)
        new.replace(path)
    return Job(path, path.stem, True, out / _name(path.name))


def fill_footage(
    jobs: Sequence[Job],
    versions: int,
    seed: int,
    descriptor: str | None = None,
    processes: int = 1,
    on_source: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Describes every source whose file is not there yet."""
    jobs[0].target.parent.mkdir(parents=True, exist_ok=True)
    backdrops = [each.path for each in jobs if not each.is_film][-300:]
    waiting = [each for each in jobs if not each.target.exists()]
    done = len(jobs) - len(waiting)
    on_source(done, len(jobs))
    with ProcessPoolExecutor(
        processes, get_context("spawn"), _prepare, (descriptor, backdrops, versions, seed)
    ) as pool:
        for number, _ in enumerate(pool.map(_describe, waiting), start=1):
            on_source(done + number, len(jobs))


_process: dict[str, Any] = {}


def _prepare(descriptor: str | None, backdrops: list[Path], versions: int, seed: int) -> None:
    _process.update(
        embed=load_descriptor(descriptor, threads=1).embed,
        backdrops=backdrops,
        versions=versions,
        seed=seed,
    )


def _describe(job: Job) -> None:
    rng = np.random.default_rng([_process["seed"], zlib.crc32(job.group.encode())])
    pictures = list(_read_film(job.path)) if job.is_film else _glide(job.path, rng)
    rows = [_embed(pictures)]
    notes: list[list[list[object]]] = [[]]
    for version in range(_process["versions"]):
        steps = draw_chain(rng, is_first=version == 0)
        shown = edit_all(pictures, steps, rng)
        rows.append(_embed(encode(shown, rng) if job.is_film else shown))
        notes.append([[name, strength] for name, strength, _ in steps])
    new = job.target.with_suffix(".part")
    with new.open("wb") as file:
        np.savez(
            file,
            rows=np.stack(rows).astype(np.float16),
            group=job.group,
            is_film=job.is_film,
            edits=json.dumps(notes),
        )
    os.replace(new, job.target)


def _embed(pictures: Sequence[Picture]) -> Array:
    rows: Array = _process["embed"](np.stack([np.asarray(each) for each in pictures]))
    return rows


def draw_chain(rng: Rng, is_first: bool) -> list[tuple[str, float, int]]:
    """Edits one after the other: name, strength, and the seed that fixes their parameters."""
    names = rng.choice(FAMILIES, int(rng.choice(CHAIN)), replace=False)
    if is_first and rng.random() < PLAIN:
        return []
    return [(str(name), float(rng.uniform(*STRENGTH)), int(rng.integers(2**31))) for name in names]


def edit_all(
    pictures: Sequence[Picture], steps: Sequence[tuple[str, float, int]], rng: Rng
) -> list[Picture]:
    if not steps:
        return list(pictures)
    size = pictures[0].size
    backdrops = _process["backdrops"]
    other = Image.open(backdrops[int(rng.integers(len(backdrops)))]).convert("RGB").resize(size)
    edited = []
    for picture in pictures:
        for name, strength, seed in steps:
            picture = EDITS[name](picture, strength, np.random.default_rng(seed), other)
        edited.append(picture.convert("RGB").resize(size, Image.Resampling.BILINEAR))
    return edited


def encode(pictures: Sequence[Picture], rng: Rng) -> list[Picture]:
    """The same pictures after a video encoder of some quality."""
    crf, fps = int(rng.integers(*QUALITY)), 2 * FPS
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        frames = (np.asarray(each) for each in pictures)
        write_video(file.name, frames, fps, pictures[0].size, crf=crf)
        decoded = [
            Image.fromarray(np.ascontiguousarray(frame))
            for _, batch in read_frames(file.name, fps=float(fps))
            for frame in batch
        ]
    return (decoded + [decoded[-1]] * len(pictures))[: len(pictures)]


def _read_film(path: Path) -> Iterator[Picture]:
    for _, frames in read_frames(path, fps=float(FPS), max_frames=FPS * LONGEST):
        for frame in frames:
            picture = Image.fromarray(np.ascontiguousarray(frame))
            yield picture.resize(_even_size(picture.size), Image.Resampling.BILINEAR)


def _glide(path: Path, rng: Rng) -> list[Picture]:
    """A camera that moves over a photograph from one window to another."""
    photo = Image.open(path).convert("RGB")
    if photo.width == photo.height:  # most square ones were squashed by who made them
        factor = float(np.exp(rng.uniform(-0.3, 0.3)))
        photo = photo.resize((int(256 * factor), int(256 / factor)))
    ends = []
    for zoom in rng.permutation([rng.uniform(0.45, 0.8), rng.uniform(0.75, 1.0)]):
        left, top = rng.uniform(0, 1 - zoom, 2)
        ends.append(np.array([left, top, left + zoom, top + zoom]))
    size, scale = _even_size(photo.size), np.array([*photo.size, *photo.size])
    return [
        photo.resize(
            size,
            Image.Resampling.BILINEAR,
            box=tuple(((1 - step) * ends[0] + step * ends[1]) * scale),
        )
        for step in np.linspace(0, 1, PHOTO_FRAMES)
    ]


def _even_size(size: tuple[int, int]) -> tuple[int, int]:
    scale = SHORT_SIDE / min(size)
    return 2 * round(size[0] * scale / 2), 2 * round(size[1] * scale / 2)


def _name(source: str) -> str:
    return f"{zlib.crc32(source.encode()):08x}-{Path(source).stem[:60]}.npz"
