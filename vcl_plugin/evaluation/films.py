"""Uploads cut from somebody's films: really edited, really encoded, their truth known to the frame.

In: video files, a seed, families of edits. Out: reference and upload files, and what is copied.
An edit draws its parameters once a clip and keeps them for all its frames, as an editing program
does, and the encoder adds its own loss: what is left differs from the original in the same way
from frame to frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from retrieval.describe.fitting.edits import EDITS, NEVER_FITTED
from retrieval.errors import BadSetting, NotFound
from retrieval.records import Segment
from vcl_plugin.demo.footage import Clip, Frame, Size, cut_frames, planted_segments, write_video
from vcl_plugin.evaluation.sources import Source

JUDGED = {**EDITS, **NEVER_FITTED}
# "combine" draws other families by itself; a chain does that here, and says which.
FAMILIES = tuple(name for name in JUDGED if name != "combine")
FPS = 10
SHORT_SIDE = 240
COPY_SECONDS = (3.0, 40.0)
FILLER_SECONDS = (4.0, 25.0)
PLAIN_SPEED, SPEEDS = 0.6, (0.6, 1.8)  # share of copies at their own speed; range of the others
REVERSED = 0.08
CHAIN = (0, 1, 1, 2, 2, 3)  # how many edits a copy gets, each as likely as the next
QUALITY = (23, 36)  # of the encoder (crf): from good to poor

Rng = np.random.Generator
Kind = Literal["copy", "neighbour", "innocent"]


@dataclass(frozen=True, slots=True)
class Step:
    """One edit of a chain; the seed fixes its parameters for every frame of a clip."""

    family: str
    strength: float
    seed: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A clip as an upload shows it: its chain of edits, and the footage that they mix in."""

    clip: Clip
    steps: tuple[Step, ...] = ()
    other: Clip | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to be made. `kind` says what it tests: a copy, another moment of a reference's camera
    (`neighbour`), or footage that no reference shows."""

    name: str
    kind: Kind
    cuts: tuple[Cut, ...]
    place: int  # of the cut that the upload is about, among `cuts`
    size: Size
    crf: int

    @property
    def shown(self) -> Cut:
        """The cut that the upload is about; the others are filler."""
        return self.cuts[self.place]

    @property
    def truth(self) -> list[tuple[Path, Segment]]:
        """References and the segments that a perfect localizer finds."""
        return planted_segments([cut.clip for cut in self.cuts])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is registered, and what is then uploaded."""

    references: tuple[Clip, ...]  # a whole film, or the part of it that is registered
    uploads: tuple[Upload, ...]


def choose_families(without: Sequence[str] = ()) -> tuple[str, ...]:
    """All families but some, so that a method is judged on edits that it never learnt from."""
    unknown = sorted(set(without) - set(FAMILIES))
    if unknown:
        raise BadSetting(f"no edit is named {unknown[0]!r}; there are {', '.join(FAMILIES)}")
    return tuple(name for name in FAMILIES if name not in without)


def plan_uploads(
    films: Sequence[Source], count: int, seed: int, families: Sequence[str] = FAMILIES
) -> Plan:
    """`count` uploads; the same arguments give the same plan.

    Every second group of films is registered, the others are filler. Of every fifth registered
    film the first half is kept back: uploads show it as another moment of the same camera.
    """
    rng = np.random.default_rng(seed)
    groups = sorted({film.group for film in films})
    rng.shuffle(groups)
    known = {group: number for number, group in enumerate(groups[::2])}
    mine = [film for film in films if film.group in known and film.seconds >= COPY_SECONDS[0]]
    fillers = [film for film in films if film.group not in known]
    if not mine or not fillers:
        raise NotFound(f"{len(groups)} different films are too few; uploads need at least two")
    split = {film.name for film in mine if known[film.group] % 5 == 4 and film.seconds >= 12}
    references = tuple(
        Clip(_path(film), film.seconds / 2 if film.name in split else 0.0, film.seconds)
        for film in mine
    )
    whole = [film for film in mine if film.name not in split] or mine
    halved = [film for film in mine if film.name in split]
    studio = _Studio(rng, fillers, families)
    uploads = []
    for number in range(count):
        kind: Kind = "copy" if number % 5 < 3 else "neighbour" if number % 5 == 3 else "innocent"
        if kind == "neighbour" and not halved:
            kind = "innocent"
        film = {"copy": whole, "neighbour": halved, "innocent": fillers}[kind]
        shown = film[int(rng.integers(len(film)))]
        end = shown.seconds / 2 if kind == "neighbour" else float(shown.seconds)
        uploads.append(studio.compose(f"{number:04d}-{kind}", kind, shown, end))
    return Plan(references, tuple(uploads))


class _Studio:
    """Draws the parts of an upload."""

    def __init__(self, rng: Rng, fillers: Sequence[Source], families: Sequence[str]) -> None:
        self.rng, self.fillers, self.families = rng, fillers, families

    def compose(self, name: str, kind: Kind, film: Source, end: float) -> Upload:
        """Filler, a stretch of the film within `[0, end)`, filler; either filler may be missing."""
        rng = self.rng
        speed = 1.0
        if rng.random() >= PLAIN_SPEED:
            speed = math.exp(rng.uniform(math.log(SPEEDS[0]), math.log(SPEEDS[1])))
        longest = min(COPY_SECONDS[1], end)
        seconds = math.exp(rng.uniform(math.log(min(COPY_SECONDS[0], longest)), math.log(longest)))
        start = float(rng.uniform(0, end - seconds))
        shown = Clip(
            _path(film),
            start,
            start + seconds,
            speed=speed,
            is_reversed=bool(rng.random() < REVERSED),
            is_copy=kind == "copy",
        )
        cut = Cut(shown, self._chain(), self._filler())
        around = [Cut(self._filler()) for _ in range(2)]
        wanted = [rng.random() < 0.85 for _ in around]
        cuts = (*around[:1][: wanted[0]], cut, *around[1:][: wanted[1]])
        size, crf = frame_size(_path(film)), int(rng.integers(*QUALITY))
        return Upload(name, kind, cuts, cuts.index(cut), size, crf)

    def _chain(self) -> tuple[Step, ...]:
        rng = self.rng
        length = min(CHAIN[int(rng.integers(len(CHAIN)))], len(self.families))
        names = rng.choice(list(self.families), length, replace=False)
        return tuple(
            Step(str(name), float(rng.uniform(0.1, 1.0)), int(rng.integers(2**31)))
            for name in names
        )

    def _filler(self) -> Clip:
        film = self.fillers[int(self.rng.integers(len(self.fillers)))]
        seconds = min(float(self.rng.uniform(*FILLER_SECONDS)), float(film.seconds))
        start = float(self.rng.uniform(0, film.seconds - seconds))
        return Clip(_path(film), start, start + seconds, is_copy=False)


def render_upload(upload: Upload, path: Path) -> Path:
    """The upload as an H.264 file."""
    frames = (frame for cut in upload.cuts for frame in edit_frames(cut, upload.size))
    write_video(path, frames, FPS, upload.size, crf=upload.crf)
    return path


def render_reference(clip: Clip, path: Path) -> Path:
    """The registered part of a film as a file of its own, encoded well."""
    size = frame_size(clip.source)
    write_video(path, cut_frames(replace(clip, is_copy=True), FPS, size), FPS, size)
    return path


def edit_frames(cut: Cut, size: Size) -> Iterator[Frame]:
    """The clip's frames after its chain of edits, at the upload's size."""
    others: Iterator[Frame | None] = iter(cycle([None]))
    if cut.other is not None and cut.steps:
        others = cycle(cut_frames(cut.other, FPS, size))
    for frame in cut_frames(cut.clip, FPS, size):
        if not cut.steps:
            yield frame
            continue
        other = next(others)
        picture = Image.fromarray(frame)
        behind = Image.fromarray(frame if other is None else other)
        for step in cut.steps:
            rng = np.random.default_rng(step.seed)
            picture = JUDGED[step.family](picture, step.strength, rng, behind)
        yield np.asarray(picture.convert("RGB").resize(size, Image.Resampling.BILINEAR))


@cache
def frame_size(path: Path) -> Size:
    """A film's own shape with a short side of 240 pixels, both sides even as encoders want them."""
    from retrieval.media.video import probe_video

    info = probe_video(path)
    scale = SHORT_SIDE / min(info.width, info.height)
    return 2 * round(info.width * scale / 2), 2 * round(info.height * scale / 2)


def _path(film: Source) -> Path:
    assert film.path is not None
    return film.path
