"""Pictures to fit and to judge a descriptor with, kept apart: what judges is never fitted on.

In: folders of photographs and of videos. Out: `Source` pictures, and which pairs are no contest.
Called by `fitting` and by the descriptor benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.errors import NotFound
from retrieval.video import read_frames

# The share of photographs, and the files of our own collection of footage, that only judge.
HELD_OUT_SHARE = 0.25
HELD_OUT_VIDEOS = frozenset(
    {
        "big_buck_bunny.webm",
        "cityCC0.mpg",
        "crystal.mp4",
        "cup.mp4",
        "french_gp_1906.ogv",
        "nasa_13013.mp4",
        "tokyo.mp4",
        "underwater_intro.mpg",
    }
)
LONGEST_SHORT_SIDE = 320
# Seconds of one film this near, or this alike as thumbnails, are the same picture to any judge.
NEAR_SECONDS = 1.6
ALIKE = 0.85


@dataclass(frozen=True, slots=True)
class Source:
    """One original: a photograph (`second` 0) or a second of a film."""

    name: str
    second: float
    picture: Image.Image
    is_film: bool


def gather_sources(
    images: Path | None, videos: Sequence[Path], held_out: bool, every: int = 1
) -> list[Source]:
    """Photographs and seconds of film of one side of the split; of each, every `every`-th."""
    sources = [*_read_photographs(images, held_out)] if images is not None else []
    for folder in videos:
        sources += _read_films(folder, held_out)
    if not sources:
        raise NotFound(f"no picture found in {images} or {[str(each) for each in videos]}")
    return sources[::every]


def _read_photographs(folder: Path, held_out: bool) -> Iterator[Source]:
    files = sorted(folder.glob("*.jpg"))
    order = np.random.default_rng(0).permutation(len(files))
    cut = round(len(files) * (1 - HELD_OUT_SHARE))
    for number in sorted(order[cut:] if held_out else order[:cut]):
        picture = Image.open(files[number]).convert("RGB")
        yield Source(files[number].name, 0.0, _shrink(picture), is_film=False)


def _read_films(folder: Path, held_out: bool) -> Iterator[Source]:
    for path in sorted(folder.iterdir()):
        if path.suffix in (".md", ".tsv") or (path.name in HELD_OUT_VIDEOS) != held_out:
            continue
        for seconds, frames in read_frames(path):
            for second, frame in zip(seconds, frames, strict=True):
                picture = Image.fromarray(np.ascontiguousarray(frame))
                yield Source(path.name, float(second), _shrink(picture), is_film=True)


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
