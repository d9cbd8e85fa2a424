"""Rendered footage: moving, textured videos with shots, and edited copies whose truth is known.

In: a seed, or clips of other files with the edit each gets. Out: a video file, and its truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.records import Segment, Span
from vcl_plugin.demo.scenery import SCENES, paint_world
from vcl_plugin.demo.sprites import Sprite, paint_sprite

Frame = NDArray[np.uint8]
Size = tuple[int, int]

DEFAULT_FPS = 10
DEFAULT_SIZE = (320, 240)
# A world is this much larger than the picture, so that the camera has somewhere to go.
WORLD_SCALE = (3.6, 2.0)
SHOT_SECONDS = (3.5, 7.5)


@dataclass(frozen=True, slots=True)
class Clip:
    """Seconds `[start, end)` of a source file and how an edit shows them.

    `crop` is the share of width and height that the edit loses; `speed` 1.5 plays 1.5 source
    seconds in one. `is_copy` is False for filler: footage whose source is no reference.
    """

    source: Path
    start: float
    end: float
    speed: float = 1.0
    crop: float = 0.0
    is_mirrored: bool = False
    is_reversed: bool = False
    is_copy: bool = True

    def __post_init__(self) -> None:
        Span(self.start, self.end)
        if not self.speed > 0:
            raise ValueError(f"clip speed {self.speed} is not positive")
        if not 0 <= self.crop < 1:
            raise ValueError(f"clip crop {self.crop} is not a share below 1")

    @property
    def seconds(self) -> float:
        """How long the clip lasts in the edit."""
        return (self.end - self.start) / self.speed


def render_reference(
    path: str | Path,
    seed: int,
    seconds: float,
    fps: int = DEFAULT_FPS,
    size: Size = DEFAULT_SIZE,
) -> Path:
    """Several shots of painted scenes under a travelling camera; the same seed, the same film."""
    path = Path(path)
    frame_count = max(1, round(seconds * fps))
    write_video(path, _shoot(np.random.default_rng(seed), frame_count, fps, size), fps, size)
    return path


def render_edit(
    path: str | Path,
    clips: Sequence[Clip],
    fps: int = DEFAULT_FPS,
    size: Size = DEFAULT_SIZE,
    bitrate: int | None = None,
) -> Path:
    """One file that shows the clips one after the other; a low `bitrate` (bits a second) hurts."""
    path = Path(path)
    shown = (frame for clip in clips for frame in cut_frames(clip, fps, size))
    write_video(path, shown, fps, size, bitrate)
    return path


def planted_segments(clips: Sequence[Clip]) -> list[tuple[Path, Segment]]:
    """What a perfect localizer would report for `render_edit(path, clips)`: source and segment."""
    planted: list[tuple[Path, Segment]] = []
    clock = 0.0
    for clip in clips:
        query = Span(clock, clock + clip.seconds)
        clock = query.end
        if clip.is_copy:
            reference = Span(clip.start, clip.end)
            segment = Segment(query, reference, 1.0, clip.is_reversed, clip.speed)
            planted.append((clip.source, segment))
    return planted


def write_video(
    path: str | Path,
    frames: Iterator[Frame],
    fps: int = DEFAULT_FPS,
    size: Size = DEFAULT_SIZE,
    bitrate: int | None = None,
    crf: int = 24,
) -> None:
    """Encodes RGB frames as H.264, one keyframe every two seconds, playable in a browser."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    faststart = {"movflags": "faststart"} if path.suffix in (".mp4", ".mov") else {}
    with av.open(str(path), "w", options=faststart) as container:
        options = {"preset": "superfast", "threads": "1"}
        if bitrate is None:
            options["crf"] = str(crf)
        stream: Any = container.add_stream("libx264", rate=fps, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.gop_size = 2 * fps
        if bitrate is not None:
            stream.bit_rate = bitrate
        for number, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts, picture.time_base = number, Fraction(1, fps)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def _shoot(rng: np.random.Generator, frame_count: int, fps: int, size: Size) -> Iterator[Frame]:
    """Shots until the film is full; no scene comes back before all others were shown."""
    order: list[int] = []
    shown = 0
    while shown < frame_count:
        if not order:
            order = list(rng.permutation(len(SCENES)))
        length = round(rng.uniform(*SHOT_SECONDS) * fps)
        if frame_count - shown - length < 2 * fps:
            length = frame_count - shown
        yield from _film_shot(rng, SCENES[order.pop()], length, fps, size)
        shown += length


def _film_shot(
    rng: np.random.Generator, scene: Any, length: int, fps: int, size: Size
) -> Iterator[Frame]:
    """One world, one camera path over it, and sprites that cross the picture on their own ways."""
    width, height = size
    world_size = (round(width * WORLD_SCALE[0]), round(height * WORLD_SCALE[1]))
    world = Image.fromarray(paint_world(rng, scene, world_size))
    camera = _plan_camera(rng, length / fps)
    sprites = [paint_sprite(rng, height) for _ in range(int(rng.integers(1, 4)))]
    for number in range(length):
        along = number / max(1, length - 1)
        x, y, zoom = camera(along)
        view = (width * zoom, height * zoom)
        left, top = x * (world_size[0] - view[0]), y * (world_size[1] - view[1])
        box = (left, top, left + view[0], top + view[1])
        picture = world.resize(size, Image.Resampling.BILINEAR, box=box)
        for sprite in sprites:
            _paste(picture, sprite, number / fps)
        yield np.asarray(picture)


def _plan_camera(rng: np.random.Generator, seconds: float) -> Any:
    """A travel across most of the world, left or right, with a gentle drift and zoom."""
    start, end = (0.0, 1.0) if rng.random() < 0.5 else (1.0, 0.0)
    # Short shots travel less, so that the pace stays near a quarter of a picture a second.
    reach = min(1.0, seconds / 7.0)
    slack = (1 - reach) * rng.random()
    start, end = slack + start * reach, slack + end * reach
    y0, y1 = rng.random(2)
    zoom0, zoom1 = rng.uniform(0.85, 1.45, 2)

    def camera(along: float) -> tuple[float, float, float]:
        eased = 0.85 * along + 0.15 * (0.5 - 0.5 * math.cos(math.pi * along))
        mix = (start + (end - start) * eased, y0 + (y1 - y0) * eased)
        return mix[0], mix[1], zoom0 + (zoom1 - zoom0) * eased

    return camera


def _paste(picture: Image.Image, sprite: Sprite, time: float) -> None:
    width, height = picture.size
    side = sprite.picture.size[0]
    span = width + 2 * side
    x = (sprite.x * span + sprite.pace * width * time) % span - side
    bob = 0.12 * math.sin(2 * math.pi * (time * sprite.beat + sprite.x))
    y = (sprite.y + bob) * height - side / 2
    picture.paste(sprite.picture, (round(x), round(y)), sprite.picture)


def cut_frames(clip: Clip, fps: int, size: Size) -> Iterator[Frame]:
    """The clip's frames as the edit shows them."""
    count = max(1, round(clip.seconds * fps))
    times = [clip.start + (number + 0.5) / fps * clip.speed for number in range(count)]
    chosen = _pick_frames(clip.source, times)
    if clip.is_reversed:
        chosen = reversed(list(chosen))
    for frame in chosen:
        picture: Any = Image.fromarray(frame)
        lost_x, lost_y = (side * clip.crop / 2 for side in picture.size)
        box = (lost_x, lost_y, picture.width - lost_x, picture.height - lost_y)
        picture = picture.resize(size, Image.Resampling.BILINEAR, box=box)
        if clip.is_mirrored:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        yield np.asarray(picture)


def _pick_frames(source: Path, times: Sequence[float]) -> Iterator[Frame]:
    """The frame on screen at each of the ascending times; the last stays on for later ones."""
    wanted = iter(times)
    due = next(wanted, None)
    last: Any = None
    with av.open(str(source)) as container:
        for frame in container.decode(video=0):
            while last is not None and due is not None and frame.time > due:
                yield last.to_ndarray(format="rgb24")
                due = next(wanted, None)
            if due is None:
                return
            last = frame
    while last is not None and due is not None:
        yield last.to_ndarray(format="rgb24")
        due = next(wanted, None)
