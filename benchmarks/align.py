"""Milliseconds per pair of every classic method, beside what VCSL's own implementations need.

In: nothing. Out: a table on stdout; one thread, best of several runs, in milliseconds of CPU time
(on a busy machine the clock on the wall says more about the others).
Run as `python benchmarks/align.py`. Both start from the similarity map, which holds one copy of
half its length in noise, as the golden pairs do; ours looks for reversed copies too.
"""

from __future__ import annotations

import argparse
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported, or it is too late

import time  # noqa: E402

import numpy as np  # noqa: E402

from retrieval.arrays import cosine_map  # noqa: E402
from retrieval.plugins import load_localizer  # noqa: E402
from vcl_plugin.align.aligner import Aligner  # noqa: E402

SIZES = (300, 1200)
# VCSL's implementations with their command-line defaults, one CPU core, milliseconds per pair.
VCSL = {"hv": (12.0, 691.0), "tn": (149.0, 576.0), "dp": (10.5, 140.0), "dtw": (1.7, 14.0)}


def make_pair(frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit descriptors of which half recur, a quarter noise on top."""
    draw = np.random.default_rng(seed)
    query, reference = draw.standard_normal((2, frames, 256))
    half = frames // 2
    reference[frames // 3 : frames // 3 + half] = query[frames // 4 : frames // 4 + half]
    reference += 0.25 * draw.standard_normal(reference.shape)
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (query, reference)]
    return units[0].astype(np.float32), units[1].astype(np.float32)


def time_method(name: str, frames: int, seconds: float) -> tuple[float, int]:
    """`(milliseconds, segments)`: the best run of those that fit into the given time."""
    localizer = load_localizer(name)
    assert isinstance(localizer, Aligner)
    similarity = cosine_map(*make_pair(frames))
    found = localizer.localize_map(similarity)
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.process_time()
        localizer.localize_map(similarity)
        best = min(best, time.process_time() - started)
    return 1000 * best, len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="time spent on each cell")
    seconds = parser.parse_args().seconds
    print(f"{'method':8}{'frames':>12}{'ours, ms':>12}{'VCSL, ms':>12}{'faster':>10}{'found':>8}")
    for name, theirs in VCSL.items():
        for frames, published in zip(SIZES, theirs, strict=True):
            ours, found = time_method(name, frames, seconds)
            size = f"{frames}x{frames}"
            ratio = f"{published / ours:.1f}x"
            print(f"{name:8}{size:>12}{ours:>12.2f}{published:>12.1f}{ratio:>10}{found:>8}")


if __name__ == "__main__":
    main()
