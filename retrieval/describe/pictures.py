"""Pictures before any network sees them: checked, scaled to its size, and judged empty or not.

In: uint8 RGB frames (n, height, width, 3). Out: batches of one size; a flag for each frame.
Every descriptor uses it; the flags are for the engine, which stores them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.errors import BadDescriptors

Frames = NDArray[np.uint8]

BATCH_FRAMES = 16
FLAT_TILE = 3.0  # deviation of grey levels below which six by six pixels say nothing
FLAT_SHARE = 0.84  # of all tiles; set on title cards and real footage side by side
EDGE = 6.0


def check_frames(frames: Frames) -> Frames:
    frames = np.asarray(frames)
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3:
        raise BadDescriptors(
            f"frames are {frames.dtype} of shape {frames.shape}; "
            "give uint8 of shape (n, height, width, 3)",
            code="not_an_array",
        )
    if 0 in frames.shape[1:3]:
        raise BadDescriptors(f"frames of shape {frames.shape} hold no pixel", code="no_frames")
    return frames


def number_pictures(frames: Frames) -> NDArray[np.intp]:
    """Which picture each frame shows, counted from 0: a still is one picture, however long. (n,)"""
    is_new = np.ones(len(frames), dtype=bool)
    for place in range(1, len(frames)):
        is_new[place] = not np.array_equal(frames[place], frames[place - 1])
    return np.cumsum(is_new) - 1


def squash_frames(
    frames: Frames, size: tuple[int, int], at_most: int = BATCH_FRAMES
) -> Iterator[Frames]:
    """Batches of `at_most` frames, each frame made `size` (width, height).

    Aspect ratios are not kept: a copy often has another one, and nothing of the picture is lost.
    """
    for start in range(0, len(frames), at_most):
        batch = frames[start : start + at_most]
        if batch.shape[2:0:-1] != size:
            batch = np.stack([squash(frame, size) for frame in batch])
        yield np.ascontiguousarray(batch)


def squash(frame: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    picture = Image.fromarray(np.ascontiguousarray(frame))
    # Pillow's bilinear filter widens when it shrinks, so nothing aliases.
    return np.asarray(picture.resize(size, Image.Resampling.BILINEAR, reducing_gap=3.0))


def flag_low_information(frames: Frames) -> NDArray[np.bool_]:
    """Frames that match anything and prove nothing: black, flat, title cards, colour bars. (n,)"""
    return np.array([is_low_information(frame) for frame in check_frames(frames)], dtype=bool)


def is_low_information(frame: NDArray[np.uint8]) -> bool:
    small = Image.fromarray(np.ascontiguousarray(frame)).convert("L")
    grey = np.asarray(small.resize((96, 96), Image.Resampling.BOX), dtype=np.float32)
    tiles = grey.reshape(16, 6, 16, 6).swapaxes(1, 2).reshape(256, 36)
    # Black, one colour, or a few words on one colour: nearly every tile is flat.
    if (tiles.std(axis=1) < FLAT_TILE).mean() > FLAT_SHARE:
        return True
    # Colour bars: plain from top to bottom, with several edges that cross much of the picture.
    down, along = np.abs(np.diff(grey, axis=0)), np.abs(np.diff(grey, axis=1))
    long_edges = ((along > EDGE).mean(axis=0) > 0.4).sum()
    is_plain = (down < EDGE).mean() > 0.94 and (along < EDGE).mean() > 0.8
    return bool(is_plain and long_edges >= 5)
