"""How fast and how large the index is at ten thousand to a million windows, against exact search.

Run: python benchmarks/index.py [--sizes 10000 100000 1000000] [--queries 25] [--folder DIR]

The vectors are made up: videos of 200 windows in shots of four, each shot near one of 5000 topics
that all videos share. A query is 15 windows in a row of one video (60 seconds at a stride of four),
each turned away from itself until its similarity is the one given. Both indexes hold the same
vectors, answer the same queries one after the other in the same process with one thread, and give
160 neighbours a window, as the engine asks for. Times are CPU seconds, because they do not depend
on what else the machine does; the exact search is the faster of FAISS's own loop and its BLAS.

recall     queries whose video is among the 20 best, as a share of those for which the exact search
           has it there
alone      the same for each window by itself, as if no more than that had been copied
nearest    windows whose exactly nearest row is found
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import faiss
import numpy as np

from retrieval.index import snapshots
from retrieval.index.index import Hits
from retrieval.index.local import VideoIndex
from retrieval.plugins import Pooled

DIMENSION = 256
WINDOWS = 200  # of a video
TOPICS = 5000
QUERY = 15
NEIGHBOURS = 160
BEST = 20
SIMILARITIES = (0.9, 0.7, 0.55)
KEY = "references.synthetic.windows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=25, help="of each similarity")
    parser.add_argument("--folder", type=Path, help="keep the indexes there and use them again")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    if arguments.measure:
        print(json.dumps(measure_memory(arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for size in arguments.sizes:
            folder = (arguments.folder or Path(temporary)) / str(size)
            if snapshots.current_facts(folder / "fast", KEY) is None:
                build(folder, size)
            compare(folder, size, arguments.queries)


def build(folder: Path, size: int) -> None:
    index = VideoIndex(KEY, DIMENSION)
    for number, rows in enumerate(make_videos(size)):
        starts = np.arange(len(rows), dtype=np.float32) * 4
        index.add(f"video-{number}", Pooled(rows, np.stack([starts, starts + 8], axis=1)))
    for kind, fast_from in (("flat", size + 1), ("fast", 1)):
        started = time.process_time()
        index.save(folder / kind, fast_from=fast_from)
        spent = time.process_time() - started
        print(f"{size:>9} windows: {kind} snapshot made in {spent:.1f} CPU s", flush=True)


def compare(folder: Path, size: int, queries: int) -> None:
    flat = VideoIndex.load(folder / "flat", KEY, DIMENSION)
    fast = VideoIndex.load(folder / "fast", KEY, DIMENSION)
    rng = np.random.default_rng(7)
    for similarity in SIMILARITIES:
        exact_times, fast_times, nearest = [], [], []
        counts = np.zeros((2, 2))  # whole queries and lone windows: found exactly, and by both
        for _ in range(queries + 1):  # the first one brings the files into memory
            video, vectors = make_query(flat, rng, similarity)
            spent, exact = fastest(
                partial(search_by, flat, vectors, 800), partial(search_by, flat, vectors, 1)
            )
            exact_times.append(spent)
            spent, found = fastest(partial(search_by, fast, vectors, 800))
            fast_times.append(spent)
            nearest.append(np.mean(found.scores[:, 0] >= exact.scores[:, 0] - 1e-3))
            for row, lines in enumerate(([slice(None)], [slice(i, i + 1) for i in range(QUERY)])):
                for line in lines:
                    by_exact = video in best_videos(exact, line)
                    counts[row] += by_exact, by_exact and video in best_videos(found, line)
        exact_time, fast_time = (statistics.median(each[1:]) for each in (exact_times, fast_times))
        recall, alone = counts[:, 1] / np.maximum(1, counts[:, 0])
        print(
            f"{size:>9} windows, similarity {similarity:.2f}: exact {exact_time * 1e3:6.1f} ms, "
            f"fast {fast_time * 1e3:5.1f} ms, ratio {exact_time / fast_time:5.1f}; "
            f"recall {recall:.3f} of {int(counts[0, 0])}/{queries + 1}, "
            f"alone {alone:.3f} of {int(counts[1, 0])}/{QUERY * (queries + 1)}, "
            f"nearest {np.mean(nearest):.3f}",
            flush=True,
        )
    describe(folder, size, fast)


def describe(folder: Path, size: int, fast: VideoIndex) -> None:
    facts = fast.facts()
    test = facts["self_test"]
    print(
        f"{size:>9} windows: {facts['kind']}, {facts['lists']} lists, {facts['probes']} visited; "
        f"self-test {test['recall_at_1']:.3f} at 1, {test['recall_at_10']:.3f} at 10; "
        f"{facts['bytes_per_window']} bytes a window, "
        f"{facts['reranking_bytes_per_window']} more in the re-ranking store"
    )
    for kind in ("flat", "fast"):
        command = [sys.executable, __file__, "--measure", str(folder / kind)]
        memory = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        print(
            f"{size:>9} windows, {kind}: loaded in {memory['seconds']:.2f} s; a process of its own "
            f"has {memory['own_mb']:.0f} MB, and {memory['shared_mb']:.0f} MB shared by all"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{size:>9} windows: at most {peak:.0f} MB in the process that built and compared")
    gc.collect()


def measure_memory(folder: Path) -> dict[str, float]:
    """Memory that loading and one search add to a process, its own and mapped from files."""
    before = read_memory()
    started = time.perf_counter()
    index = VideoIndex.load(folder, KEY, DIMENSION)
    seconds = time.perf_counter() - started
    rng = np.random.default_rng(1)
    index.search(make_query(index, rng, 0.7)[1], NEIGHBOURS)
    after = read_memory()
    own, shared = ((after[name] - before[name]) / 1e3 for name in ("RssAnon", "RssFile"))
    return {"seconds": seconds, "own_mb": own, "shared_mb": shared}


def read_memory() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}


def make_videos(size: int) -> Iterator[np.ndarray]:
    """Rows of one video after another, `size` in all."""
    rng = np.random.default_rng(0)
    topics = random_directions(rng, TOPICS)
    for first in range(0, size, WINDOWS):
        count = min(WINDOWS, size - first)
        shots = -(-count // 4)
        style = random_directions(rng, 1)
        looks = 0.6 * topics[rng.integers(TOPICS, size=shots)] + 0.4 * style
        looks = np.repeat(looks + 0.7 * random_directions(rng, shots), 4, axis=0)[:count]
        # Windows overlap by half, so each is like its neighbour, across a cut too.
        rows = looks + np.roll(looks, 1, axis=0) + 0.5 * random_directions(rng, count)
        yield rows / np.linalg.norm(rows, axis=1, keepdims=True)


def random_directions(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def make_query(
    index: VideoIndex, rng: np.random.Generator, similarity: float
) -> tuple[str, np.ndarray]:
    """Fifteen windows in a row of one video, disturbed; and which video that is."""
    first = int(rng.integers(index.vectors // WINDOWS)) * WINDOWS
    start = first + int(rng.integers(WINDOWS - QUERY))
    rows = index._base.read(np.arange(start, start + QUERY))
    noise = random_directions(rng, QUERY)
    noise -= (noise * rows).sum(axis=1, keepdims=True) * rows
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    mixed = similarity * rows + np.sqrt(1 - similarity**2) * noise
    return index.videos[first // WINDOWS], mixed.astype(np.float32)


def search_by(index: VideoIndex, vectors: np.ndarray, blas_from: int) -> Hits:
    faiss.cvar.distance_compute_blas_threshold = blas_from
    return index.search(vectors, NEIGHBOURS)


def fastest(*ways: Callable[[], Hits]) -> tuple[float, Hits]:
    """CPU seconds of the faster way, and its answer."""
    results = []
    for way in ways:
        started = time.process_time()
        hits = way()
        results.append((time.process_time() - started, hits))
    return min(results, key=lambda each: each[0])


def best_videos(hits: Hits, lines: slice) -> list[str]:
    best: dict[int, float] = {}
    numbers, scores = hits.numbers[lines].ravel(), hits.scores[lines].ravel()
    for number, score in zip(numbers, scores, strict=True):
        if number >= 0:
            best[int(number)] = max(best.get(int(number), -1.0), float(score))
    ranked = sorted(best, key=lambda number: -best[number])[:BEST]
    return [hits.videos[number] for number in ranked]


if __name__ == "__main__":
    main()
