"""How long a search takes: one 60-second upload against 200 references, through a real worker.

Run: python benchmarks/search.py [--references 200]

Everything is real but the references' footage: a few rendered films are described, and the 200
references are made of shuffled stretches of their descriptors, because rendering 200 films would
measure the renderer. The clock runs from `enqueue_search` to the finished row: hashing, decoding,
describing, the index, localizing and writing are in it, the worker's start is not. The search is
compared with the bare cost of decoding and describing the same file in the same run.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from retrieval.database import connect, migrate, transaction
from retrieval.description import describe_video
from retrieval.engine import RetrievalEngine
from retrieval.records import SearchStatus
from retrieval.services import ensure_services, stop_services
from retrieval.settings import load_settings
from retrieval.tasks import enqueue_search
from retrieval.work import catalogue
from retrieval.work.searches import wait_for_search
from vcl_plugin.demo.footage import Clip, render_edit, render_reference

FILMS = 4
SECONDS = 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--references", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        os.environ["VCL_HOME"] = f"{folder}/home"
        settings = load_settings()
        endpoints = ensure_services(settings)
        migrate(endpoints.database_url)
        engine = RetrievalEngine(settings, connect(endpoints.database_url))
        worker = subprocess.Popen(
            [sys.executable, "-m", "vcl_plugin.cli", "worker"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            films = [
                render_reference(f"{folder}/film_{seed}.mp4", seed=seed, seconds=SECONDS)
                for seed in range(1, FILMS + 1)
            ]
            fill_catalogue(engine, films, arguments.references)
            searches = [
                time_search(engine, films, Path(folder) / f"upload_{number}.mp4", number)
                for number in range(arguments.repeat + 1)
            ][1:]  # the first one warms the worker up
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait()
            stop_services(settings)
    total = statistics.median(each[0] for each in searches)
    bare = statistics.median(each[1] for each in searches)
    print(f"references {arguments.references}, upload {SECONDS} s, median of {len(searches)} runs")
    print(f"search, from enqueueing to the finished row   {total:.2f} s")
    print(f"bare decoding and describing of the upload    {bare:.2f} s")
    print(f"ratio                                         {total / bare:.2f}")


def fill_catalogue(engine: RetrievalEngine, films: list[Path], count: int) -> None:
    """References with real descriptors in new orders; the films themselves are among them."""
    described = [
        describe_video(film, engine.descriptor, engine.settings)[0].descriptors for film in films
    ]
    rows = np.concatenate(described)
    rng = np.random.default_rng(5)
    key = engine.descriptor.fingerprint.key
    for number in range(count):
        if number < len(films):
            vectors = described[number]
        else:
            starts = rng.integers(0, len(rows) - 5, SECONDS // 5)
            vectors = np.concatenate([rows[start : start + 5] for start in starts])
            vectors = vectors + rng.normal(0, 0.03, vectors.shape)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        video_id = f"reference-{number}"
        path = engine.store.write(video_id, key, vectors)
        with transaction(engine.database) as connection:
            catalogue.register_foreign(connection, video_id, None, float(len(vectors)))
            catalogue.record_descriptors(
                connection, video_id, key, str(path), len(vectors), vectors.shape[1]
            )
            catalogue.make_reference(connection, video_id)


def time_search(
    engine: RetrievalEngine, films: list[Path], path: Path, number: int
) -> tuple[float, float]:
    """Seconds of a whole search of a new upload, and of describing it alone."""
    shift = 3.0 * number
    clips = [Clip(films[0], shift, shift + 20), Clip(films[1], 10 + shift, 50 + shift)]
    render_edit(path, clips)
    started = time.perf_counter()
    search_id = enqueue_search(path)
    state = wait_for_search(engine.database, search_id, timeout=120)
    total = time.perf_counter() - started
    if state.status != SearchStatus.DONE or state.pairs_total != engine.settings.top_k:
        sys.exit(f"the search ended as {state}")
    started = time.perf_counter()
    describe_video(path, engine.descriptor, engine.settings)
    return total, time.perf_counter() - started


if __name__ == "__main__":
    main()
