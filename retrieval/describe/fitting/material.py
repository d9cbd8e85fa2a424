"""Pictures to fit and to judge a descriptor with, kept apart: what judges is never fitted on.

In: folders of photographs and of videos. Out: `Source` pictures, and which pairs are no contest.
Its split is that of every benchmark here, so what judges a localizer has taught the descriptor
under it nothing either.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.errors import NotFound
from retrieval.media.video import read_frames

Split = Literal["train", "val", "test"]

LONGEST_SHORT_SIDE = 320
# Seconds of one film this near, or this alike as thumbnails, are the same picture to any judge.
NEAR_SECONDS = 1.6
ALIKE = 0.85


@dataclass(frozen=True, slots=True)
class Source:
    """One original: a photograph (`second` 0) or a second of a film, named by its footage."""

    name: str
    second: float
    jpeg: bytes  # thousands of pictures fit into memory, and into that of other processes
    is_film: bool

    @classmethod
    def from_picture(cls, name: str, second: float, picture: Image.Image, is_film: bool) -> Source:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=95)
        return cls(name, second, buffer.getvalue(), is_film)

    @property
    def picture(self) -> Image.Image:
        return Image.open(io.BytesIO(self.jpeg)).convert("RGB")


def split_of(key: str) -> Split:
    """train, val or test for a source or an event: fixed by its name alone, so that a source
    never changes sides when others are added. 55 %, 15 % and 30 % of all names."""
    place = int(hashlib.sha256(f"split:{key}".encode()).hexdigest()[:8], 16) / 2**32
    if place < 0.55:
        return "train"
    return "val" if place < 0.70 else "test"


def read_groups(folder: Path) -> dict[str, str]:
    """What footage each video of a folder shows, by file name: the last column of a MANIFEST.tsv
    there, if any. Videos of one group are on one side of the split."""
    manifest = folder / "MANIFEST.tsv"
    if not manifest.exists():
        return {}
    with manifest.open(encoding="utf-8", newline="") as file:
        return {row[0]: row[-1] for row in csv.reader(file, delimiter="\t") if row}


def gather_sources(
    images: Path | None, videos: Sequence[Path], split: Split | Literal["all"]
) -> list[Source]:
    """Photographs and seconds of film of one side of the split, or of all sides."""
    sources = [*_read_photographs(images, split)] if images is not None else []
    for folder in videos:
        sources += _read_films(folder, split)
    if not sources:
        where = [str(each) for each in [*([images] if images else []), *videos]]
        raise NotFound(f"no picture of the split {split} found in {where}")
    return sources


def _is_on(side: Split | Literal["all"], name: str) -> bool:
    return side in ("all", split_of(name))


def _read_photographs(folder: Path, split: Split | Literal["all"]) -> Iterator[Source]:
    for path in sorted(folder.rglob("*.jpg")):
        if _is_on(split, path.stem):
            picture = _shrink(Image.open(path).convert("RGB"))
            yield Source.from_picture(path.name, 0.0, picture, is_film=False)


def _read_films(folder: Path, split: Split | Literal["all"]) -> Iterator[Source]:
    groups = read_groups(folder)
    for path in sorted(folder.iterdir()):
        group = groups.get(path.name, path.stem)
        if path.suffix in (".md", ".tsv") or not _is_on(split, group):
            continue
        for seconds, frames in read_frames(path):
            for second, frame in zip(seconds, frames, strict=True):
                picture = Image.fromarray(np.ascontiguousarray(frame))
                yield Source.from_picture(group, float(second), _shrink(picture), is_film=True)


def _shrink(picture: Image.Image) -> Image.Image:
    scale = LONGEST_SHORT_SIDE / min(picture.size)
    if scale >= 1:
        return picture
    return picture.resize((round(picture.width * scale), round(picture.height * scale)))


def find_no_contest(sources: Sequence[Source]) -> NDArray[np.bool_]:
    """(n, n): pairs of one film that show the same picture; confusing them is no mistake."""
    thumbs = np.stack(
        [
            np.asarray(each.picture.convert("L").resize((16, 16), Image.Resampling.BOX), np.float32)
            for each in sources
        ]
    ).reshape(len(sources), -1)
    thumbs -= thumbs.mean(axis=1, keepdims=True)
    thumbs /= np.linalg.norm(thumbs, axis=1, keepdims=True) + 1e-6
    seconds = np.array([each.second for each in sources])
    near = np.abs(seconds[:, None] - seconds[None]) < NEAR_SECONDS
    found = same_film(sources) & (near | (thumbs @ thumbs.T > ALIKE))
    np.fill_diagonal(found, False)
    return found


def same_film(sources: Sequence[Source]) -> NDArray[np.bool_]:
    names = np.array([each.name for each in sources])
    same: NDArray[np.bool_] = names[:, None] == names[None]
    return same
