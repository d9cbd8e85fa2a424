"""Similarity maps with known copies: the generator behind the golden results, and our own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

GOLDEN = Path(__file__).parents[2] / "golden"
Map = NDArray[np.float32]


def golden_map(number: int) -> tuple[Map, list[tuple[float, ...]]]:
    """Map `number` of the golden results, drawn anew, and the boxes planted in it."""
    draw = np.random.RandomState(1000 + number)
    height, width = int(draw.randint(12, 181)), int(draw.randint(12, 181))
    cells = 0.10 + 0.08 * draw.standard_normal((height, width))
    truth = []
    for _ in range(number % 4):
        slope = [1.0, 1.0, 0.5, 2.0, -1.0][int(draw.randint(0, 5))]
        length = int(draw.randint(6, max(7, min(height, width) // 2 + 1)))
        q_start = int(draw.randint(0, max(1, height - length)))
        r_start = int(draw.randint(0, width))
        level = float(draw.uniform(0.5, 0.9))
        planted = []
        for step in range(length):
            column = int(np.floor(r_start + slope * step + 0.5))
            if 0 <= column < width and q_start + step < height:
                cells[q_start + step, column] = level + 0.05 * draw.standard_normal()
                planted.append((q_start + step, column))
        if planted:
            rows, columns = zip(*planted, strict=True)
            truth.append((min(rows), min(columns), max(rows) + 1, max(columns) + 1))
    return np.clip(cells, -1, 1).astype(np.float32), truth


def golden_results() -> dict[str, dict[str, dict[str, list[list[float]]]]]:
    results = json.loads((GOLDEN / "vcsl.json").read_text())["out"]
    return {name: results[name] for name in results}


def sample_map() -> Map:
    """A map of two real videos, from VCSL (MIT licence)."""
    return np.load(GOLDEN / "vcsl_sample_map.npz")["sim"]


def noise_map(height: int, width: int, seed: int = 0) -> Map:
    draw = np.random.default_rng(seed)
    return (0.10 + 0.08 * draw.standard_normal((height, width))).astype(np.float32)


def plant(
    cells: Map, q_start: int, r_start: int, seconds: int, speed: float = 1.0, level: float = 0.7
) -> tuple[float, ...]:
    """Write a copy of `seconds` query seconds into the map; a negative speed runs backwards from
    `r_start`. Returns its box."""
    rows = q_start + np.arange(seconds)
    columns = np.floor(r_start + speed * np.arange(seconds) + 0.5).astype(int)
    assert rows.max() < cells.shape[0]
    assert columns.min() >= 0
    assert columns.max() < cells.shape[1]
    cells[rows, columns] = level
    return (q_start, columns.min(), q_start + seconds, columns.max() + 1)


def plant_descriptors(
    query_frames: int,
    reference_frames: int,
    copies: list[tuple[int, int, int]],
    noise: float = 0.5,
    seed: int = 0,
) -> tuple[Map, Map]:
    """Random unit descriptors in which `(q_start, r_start, seconds)` of the reference recur."""
    draw = np.random.default_rng(seed)
    query = draw.standard_normal((query_frames, 256))
    reference = draw.standard_normal((reference_frames, 256))
    for q_start, r_start, seconds in copies:
        query[q_start : q_start + seconds] = reference[r_start : r_start + seconds]
    query += noise * draw.standard_normal(query.shape)
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (query, reference)]
    return units[0].astype(np.float32), units[1].astype(np.float32)
