"""Pairs of random frames with a planted copy: what training tests learn from in seconds."""

from __future__ import annotations

import numpy as np

from vcl_plugin.training.augment import TrainingPair


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def plant(number: int, is_copy: bool = True, n: int = 40, m: int = 50) -> TrainingPair:
    draw = np.random.default_rng([5, number])
    query, reference = (unit(draw.standard_normal((frames, 256))) for frames in (n, m))
    if not is_copy:
        return TrainingPair(query, reference, np.zeros((0, 4), np.float32), False)
    length = int(draw.integers(12, 25))
    q, r = int(draw.integers(0, n - length + 1)), int(draw.integers(0, m - length + 1))
    query[q : q + length] = reference[r : r + length]
    boxes = np.array([[q, r, q + length, r + length]], np.float32)
    return TrainingPair(query, reference, boxes, True)


class PlantedPairs:
    """A pair set; two of three pairs are copies."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def pair(self, number: int) -> TrainingPair:
        return plant(number, is_copy=number % 3 != 2)
