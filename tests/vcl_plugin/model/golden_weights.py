"""The weights and inputs behind `tests/golden/transvcl_outputs.npz`, made again from their names.

In: names and shapes of the released network's entries. Out: a state dict and padded pairs.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).parents[2] / "golden"
MAX_FRAMES = 1200


def seeded(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFFFFFF)


@cache
def golden_shapes() -> dict[str, tuple[int, ...]]:
    shapes = json.loads((GOLDEN / "transvcl_shapes.json").read_text())
    return {name: tuple(shape) for name, shape in shapes.items()}


def golden_state_dict(is_low: bool = False) -> dict[str, torch.Tensor]:
    """All 489 entries; `is_low` is the variant with quarter norm2, where padding weighs most."""
    with np.load(GOLDEN / "transvcl_bn_stats.npz") as file:
        statistics = {name: file[name] for name in file.files}
    entries = {}
    for name, shape in golden_shapes().items():
        if name.endswith("num_batches_tracked"):
            entries[name] = torch.zeros((), dtype=torch.int64)
            continue
        value = statistics[name] if name in statistics else _fill(name, shape)
        if is_low and name.startswith("feat_encoding.layers.") and ".norm2." in name:
            value = value.astype(np.float32) * np.float32(0.25)
        entries[name] = torch.from_numpy(np.ascontiguousarray(value, np.float32))
    return entries


def _fill(name: str, shape: tuple[int, ...]) -> np.ndarray:
    random = seeded(name)
    is_norm = any(part in name for part in (".bn.", ".norm1.", ".norm2."))
    is_norm = is_norm or name.startswith("mlp_head.2.")
    if is_norm:
        if name.endswith("weight"):
            return random.uniform(0.8, 1.2, shape)
        return 0.2 * random.standard_normal(shape)
    normal = random.standard_normal(shape)
    if name == "feat_encoding.cls_token":
        return 0.5 * normal
    is_score = "obj_preds" in name or "cls_preds" in name
    if name.endswith("bias"):
        bias = (-0.85 if is_score else 0.0) + 0.1 * normal
        if "reg_preds" in name:
            bias[2:4] += 1.0
        return bias
    gain = 0.2 if "reg_preds" in name else 0.6 if is_score else 1.0
    weight = gain * normal / np.sqrt(np.prod(shape[1:]))
    if name.endswith(".mlp.0.weight"):
        weight[:, :256] *= 12 if "layers.0" in name else 2
        weight[:, 256:] *= 0.5
    return weight


def golden_pair(tag: str, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """A query and a reference that holds half the shorter video, with noise; unit rows."""
    q = _unit(seeded(f"{tag}/q").standard_normal((n, 256)))
    r = _unit(seeded(f"{tag}/r").standard_normal((m, 256)))
    noise = _unit(seeded(f"{tag}/e").standard_normal((m, 256)))
    copied = min(n, m) // 2
    r[m // 3 : m // 3 + copied] = q[n // 4 : n // 4 + copied]
    r = _unit(r + 0.25 * noise)
    return q.astype(np.float32), r.astype(np.float32)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def padded(rows: np.ndarray, frames: int = MAX_FRAMES) -> tuple[torch.Tensor, torch.Tensor]:
    """(1, frames, 256) and its mask."""
    features = torch.zeros(1, frames, rows.shape[1])
    features[0, : len(rows)] = torch.from_numpy(rows)
    mask = torch.zeros(1, frames, dtype=torch.bool)
    mask[0, : len(rows)] = True
    return features, mask
