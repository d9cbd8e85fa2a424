"""Descriptors of views, computed once and kept for every later benchmark and training.

In: `View`s and their sources. Out: an array (views, 256).
A bank belongs to one descriptor: its folder is named by the descriptor's fingerprint, so that a
better descriptor starts a bank of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from retrieval.describe.descriptors import load_descriptor
from retrieval.plugins import Array
from vcl_plugin.evaluation.composition import View
from vcl_plugin.evaluation.edits import edit_frame
from vcl_plugin.evaluation.sources import Source, read_views

RENDERING = 1  # raised when sources or edits begin to give other pixels under the same name
SHARD_VECTORS = 4_000
JOB_VIEWS = 256


class Bank:
    """Vectors by view. Shards are only ever added, each complete or absent."""

    def __init__(self, root: Path, fingerprint: str, sources: Iterable[Source]) -> None:
        self.folder = root / fingerprint
        self.sources = {source.name: source for source in sources}
        self._digests: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._vectors = np.zeros((0, 256), np.float32)
        for shard in sorted(self.folder.glob("*.npz")):
            with np.load(shard, allow_pickle=False) as content:
                self._hold(content["keys"].tolist(), content["vectors"])

    def __len__(self) -> int:
        return len(self._places)

    def missing(self, views: Iterable[View]) -> list[View]:
        return [view for view in dict.fromkeys(views) if self.key(view) not in self._places]

    def lookup(self, views: Sequence[View]) -> Array:
        """(views, 256); a view that is not in the bank is a KeyError."""
        return self._vectors[[self._places[self.key(view)] for view in views]]

    def add(self, views: Sequence[View], vectors: Array) -> None:
        """Keep vectors, in memory and in a new shard."""
        keys = [self.key(view) for view in views]
        self._hold(keys, vectors)
        self.folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]
        partial = self.folder / f"{name}.{os.getpid()}.partial"
        with partial.open("wb") as file:
            np.savez(file, keys=np.array(keys), vectors=vectors)
        partial.replace(self.folder / f"{name}.npz")

    def key(self, view: View) -> str:
        """Names the pixels: what is in the source's file, which part of it, under which edit."""
        return f"{RENDERING}/{self._digest(view.source)}/{view.take}/{view.half}/{view.edit}"

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            path = self.sources[name].path
            content = name.encode() if path is None else path.read_bytes()
            self._digests[name] = hashlib.sha256(content).hexdigest()[:16]
        return self._digests[name]

    def _hold(self, keys: Sequence[str], vectors: Array) -> None:
        first = len(self._vectors)
        self._places.update({key: first + number for number, key in enumerate(keys)})
        self._vectors = np.concatenate([self._vectors, vectors.astype(np.float32)])


def fill_bank(
    bank: Bank,
    views: Iterable[View],
    descriptor: str | None = None,
    processes: int = 1,
    on_views: Callable[[int], None] = lambda count: None,
) -> int:
    """Compute what the bank lacks; returns how many views that were. Interrupted, it loses at most
    one shard."""
    jobs = list(_plan(bank.missing(views)))
    done_views: list[View] = []
    done_vectors: list[Array] = []
    total = 0

    def keep() -> None:
        if done_views:
            bank.add(done_views, np.concatenate(done_vectors))
            done_views.clear()
            done_vectors.clear()

    for job, vectors in _work(jobs, bank.sources, descriptor, processes):
        done_views.extend(job)
        done_vectors.append(vectors)
        total += len(job)
        on_views(len(job))
        if len(done_views) >= SHARD_VECTORS:
            keep()
    keep()
    return total


def _plan(views: Sequence[View]) -> Iterator[list[View]]:
    """Jobs of whole sources where possible, because a source is decoded once a job."""
    by_source: dict[str, list[View]] = {}
    for view in views:
        by_source.setdefault(view.source, []).append(view)
    job: list[View] = []
    for group in by_source.values():
        job += group
        if len(job) >= JOB_VIEWS:
            yield job
            job = []
    if job:
        yield job


def _work(
    jobs: list[list[View]], sources: Mapping[str, Source], descriptor: str | None, processes: int
) -> Iterator[tuple[list[View], Array]]:
    if processes <= 1 or len(jobs) < 2:
        embed = load_descriptor(descriptor, threads=1).embed
        for job in jobs:
            yield job, embed_views(job, sources, embed)
        return
    with ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        initializer=_prepare_process,
        initargs=(dict(sources), descriptor),
    ) as pool:
        waiting = {pool.submit(_embed_in_process, job): job for job in jobs}
        for each in as_completed(waiting):
            yield waiting[each], each.result()


_process: dict[str, object] = {}


def _prepare_process(sources: dict[str, Source], descriptor: str | None) -> None:
    _process["sources"] = sources
    _process["embed"] = load_descriptor(descriptor, threads=1).embed


def _embed_in_process(job: list[View]) -> Array:
    return embed_views(job, _process["sources"], _process["embed"])  # type: ignore[arg-type]


def embed_views(
    views: Sequence[View],
    sources: Mapping[str, Source],
    embed: Callable[[np.ndarray], Array],
) -> Array:
    """(views, 256): each source is read once, its frames edited and embedded a batch at a time."""
    vectors = np.zeros((len(views), 256), np.float32)
    by_source: dict[str, list[int]] = {}
    for number, view in enumerate(views):
        by_source.setdefault(view.source, []).append(number)
    for name, numbers in by_source.items():
        takes = sorted({views[number].take for number in numbers})
        frames = read_views(sources[name], takes)
        by_shape: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
        for number in numbers:
            view = views[number]
            edited = edit_frame(frames[view.take][view.half], view.edit)
            by_shape.setdefault(edited.shape, []).append((number, edited))
        for group in by_shape.values():
            vectors[[number for number, _ in group]] = embed(np.stack([each for _, each in group]))
    return vectors
