"""Whether a descriptor tells the seconds of a moving shot apart, and brings them in their order.

In: originals, of which seconds of film count, and descriptors. Out: for each the share of seconds
of an edited shot whose nearest second is the right one, and of shots whose seconds come in order.
A shot is eight seconds that move, edited alike throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.describe.descriptors import Descriptor
from retrieval.describe.fitting.edits import EDITS
from retrieval.describe.fitting.material import Source
from retrieval.describe.pictures import squash

SHOT_SECONDS, SHOTS = 8, 90
SHOT_EDITS = ("crop", "recolour", "compress", "letterbox", "caption", "mirror", "rotate", "combine")
Shots = list[list[Image.Image]]


def report_order(
    sources: Sequence[Source], descriptors: Mapping[str, Descriptor], seed: int
) -> None:
    shots, copies = make_shots(sources, seed)
    if not shots:
        return
    print(f"\n{len(shots)} shots of {SHOT_SECONDS} s, edited")
    for name, descriptor in descriptors.items():
        rows = [
            descriptor.embed(squash_all(each, descriptor.frame_size)).reshape(len(shots), 8, -1)
            for each in (copies, shots)
        ]
        best = np.einsum("nid,njd->nij", *rows).argmax(axis=2)
        exact = (best == np.arange(SHOT_SECONDS)).mean()
        ordered = (np.diff(best, axis=1) >= 0).all(axis=1).mean()
        print(f"{name:18s} seconds exact {exact:.3f}, shots in order {ordered:.3f}")


def squash_all(shots: Shots, size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.stack([squash(np.asarray(picture), size) for shot in shots for picture in shot])


def make_shots(sources: Sequence[Source], seed: int) -> tuple[Shots, Shots]:
    """Shots in which every second differs from the next, and the same shots edited."""
    rng = np.random.default_rng(seed)
    films: dict[str, list[Image.Image]] = {}
    for each in sources:
        if each.is_film:
            films.setdefault(each.name, []).append(each.picture)
    windows = [
        pictures[at : at + SHOT_SECONDS]
        for pictures in films.values()
        for at in range(0, len(pictures) - SHOT_SECONDS + 1, SHOT_SECONDS // 2)
        if moves(pictures[at : at + SHOT_SECONDS])
    ]
    rng.shuffle(windows)
    copies = []
    for number, window in enumerate(windows[:SHOTS]):
        kind, own = SHOT_EDITS[number % len(SHOT_EDITS)], int(rng.integers(2**31))
        other = windows[(number + 1) % len(windows)][0]
        copies.append(
            [EDITS[kind](each, 0.45, np.random.default_rng(own), other) for each in window]
        )
    return windows[:SHOTS], copies


def moves(pictures: Sequence[Image.Image]) -> bool:
    small = [squash(squash(np.asarray(p), (64, 64)), (16, 16)).ravel() for p in pictures]
    rows = np.stack(small).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    near = (rows[1:] * rows[:-1]).sum(axis=1)
    return bool(near.max() < 0.99 and 0.1 < near.mean() < 0.97)
