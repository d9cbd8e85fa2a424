"""The material of made-up videos: photographs set in motion, footage, cards, black.

In: folders of images and videos. Out: `Source`s, and frames of them at any half second.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from retrieval.describe.fitting.material import Split, read_groups, split_of
from retrieval.errors import NotFound
from retrieval.media.video import probe_video, read_frames

Frame = NDArray[np.uint8]
VIEWS_PER_SECOND = 2
FRAME_SIZE = (288, 216)
PHOTO_SECONDS = 10
CARD_SECONDS = 6
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
VIDEOS = (".mp4", ".webm", ".avi", ".mpg", ".mpeg", ".ogv", ".mkv", ".mov", ".flv", ".ts")


@dataclass(frozen=True)
class Source:
    """Something that gives frames. Sources of one `group` show the same footage."""

    name: str
    kind: Literal["photo", "video", "card", "black"]
    seconds: int
    group: str
    path: Path | None = None

    @property
    def split(self) -> Split:
        return split_of(self.group)


def find_photos(folder: Path) -> list[Source]:
    paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in IMAGES]
    if not paths:
        raise NotFound(f"{folder} holds no images ({', '.join(IMAGES)})")
    return [Source(path.name, "photo", PHOTO_SECONDS, path.stem, path) for path in paths]


def find_videos(folder: Path) -> list[Source]:
    """Videos of a folder. A MANIFEST.tsv there, if any, names the group in its last column; other
    videos are a group of their own."""
    groups = read_groups(folder)
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in VIDEOS:
            seconds = int(probe_video(path).duration or 0)
            if seconds >= 3:
                group = groups.get(path.name, path.stem)
                found.append(Source(path.name, "video", seconds, group, path))
    if not found:
        raise NotFound(f"{folder} holds no videos ({', '.join(VIDEOS)})")
    return found


def make_cards(count: int = 12) -> list[Source]:
    """Title cards and one black source; they belong to every split, for they prove nothing."""
    cards = [Source(f"card-{number}", "card", CARD_SECONDS, "card") for number in range(count)]
    return [*cards, Source("black", "black", CARD_SECONDS, "card")]


def read_views(source: Source, takes: Sequence[int]) -> dict[int, list[Frame]]:
    """All frames of a source, two a second, for every take asked for.

    A take is a way to film the same scene: 0 is the whole picture, 1 and 2 see disjoint halves of
    it. Footage has only take 0.
    """
    count = source.seconds * VIEWS_PER_SECOND
    if source.kind == "video":
        assert source.path is not None
        frames = _read_video(source.path, count)
        return dict.fromkeys(takes, frames)
    if source.kind == "photo":
        assert source.path is not None
        with Image.open(source.path) as image:
            photo = image.convert("RGB")
        return {take: _move_over(photo, source.name, take, count) for take in takes}
    still = _draw_card(source)
    return {take: [still] * count for take in takes}


def _read_video(path: Path, count: int) -> list[Frame]:
    frames: list[Frame] = []
    for batch in read_frames(path, fps=float(VIEWS_PER_SECOND), size=FRAME_SIZE, max_frames=count):
        frames.extend(batch.frames)
    # The container may promise more than it holds; the last frame stands in for the rest.
    return frames + [frames[-1]] * (count - len(frames))


def _move_over(photo: Image.Image, name: str, take: int, count: int) -> list[Frame]:
    """A camera gliding over a photograph: from one window to another, zooming on the way."""
    draw = np.random.default_rng(zlib.crc32(f"{name}/{take}".encode()))
    width, height = photo.size
    half = {0: (0.0, 1.0), 1: (0.0, 0.5), 2: (0.5, 1.0)}[take]
    frames = []
    ends = [_window(draw, half, zoom) for zoom in draw.permutation([0.55, 0.95])]
    for step in np.linspace(0, 1, count):
        left, top, right, bottom = (1 - step) * ends[0] + step * ends[1]
        box = (left * width, top * height, right * width, bottom * height)
        frames.append(np.asarray(photo.resize(FRAME_SIZE, Image.Resampling.BILINEAR, box=box)))
    return frames


def _window(
    draw: np.random.Generator, half: tuple[float, float], zoom: float
) -> NDArray[np.float64]:
    across = zoom * (half[1] - half[0])
    left = draw.uniform(half[0], half[1] - across)
    top = draw.uniform(0, 1 - zoom)
    return np.array([left, top, left + across, top + zoom])


def _draw_card(source: Source) -> Frame:
    if source.kind == "black":
        return np.zeros((FRAME_SIZE[1], FRAME_SIZE[0], 3), np.uint8)
    draw = np.random.default_rng(zlib.crc32(source.name.encode()))
    ground = tuple(int(each) for each in draw.integers(0, 90, 3))
    image = Image.new("RGB", FRAME_SIZE, ground)
    font = ImageFont.load_default(size=24)
    brush = ImageDraw.Draw(image)
    words = ["a film by", "in colour", "chapter", "presents", "previously", "studio", "the end"]
    for line in range(int(draw.integers(1, 4))):
        text = f"{words[int(draw.integers(len(words)))]} {int(draw.integers(1, 99))}"
        brush.text((144, 70 + 36 * line), text, fill=(230, 230, 220), font=font, anchor="mm")
    return np.asarray(image)
