"""Vectors by position: searched exactly while they are few, by codes and re-ranking when many.

In: rows of unit length. Out: the nearest living positions of each query, always exactly scored.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Array

log = logging.getLogger(__name__)

Found = tuple[NDArray[np.float32], NDArray[np.int64]]  # scores and positions (q, k), best first
Dead = NDArray[np.bool_]
Codes = faiss.IndexIVFPQFastScan

CHUNK = 1 << 16
# Candidates by code, re-ranked exactly, for each neighbour asked for; and at least so many.
RERANKED = 2
FEWEST_RERANKED = 100
TRAINING_ROUNDS = 8
ROWS_A_LIST = 40  # to train on; FAISS warns below 39
# A GPU finds at most this many neighbours of a query.
GPU_NEIGHBOURS = 2048

# FAISS takes BLAS from 20 queries on; up to hundreds its own loop is faster (1.4x for 60 here).
faiss.cvar.distance_compute_blas_threshold = 800 * faiss.omp_get_max_threads()


class Vectors(Protocol):
    """Rows by position. A place that nothing filled has position -1 and score -inf."""

    kind: str

    @property
    def count(self) -> int: ...

    def search(self, queries: Array, k: int, dead: Dead) -> Found: ...

    def read(self, positions: NDArray[np.int64]) -> Array: ...


class ExactVectors:
    """Every row compared with every query."""

    kind = "flat"

    def __init__(self, dimension: int, flat: faiss.Index | None = None) -> None:
        self._flat = faiss.IndexFlatIP(dimension) if flat is None else flat

    @classmethod
    def open(cls, path: Path, dimension: int) -> ExactVectors:
        # Without IFC, FAISS would copy a flat file into each process's memory.
        flags = faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY
        flat = faiss.read_index(str(path), flags)
        if flat.d != dimension:
            raise ValueError(f"{path} has {flat.d} dimensions, not {dimension}")
        return cls(dimension, flat)

    @property
    def count(self) -> int:
        return int(self._flat.ntotal)

    def add(self, rows: Array) -> None:
        self._flat.add(np.ascontiguousarray(rows, dtype=np.float32))

    def write(self, path: Path) -> None:
        faiss.write_index(self._flat, str(path))

    def read(self, positions: NDArray[np.int64]) -> Array:
        rows: Array = self._flat.reconstruct_batch(positions)
        return rows

    def search(self, queries: Array, k: int, dead: Dead) -> Found:
        def find(depth: int, selector: faiss.IDSelector | None, everywhere: bool) -> Found:
            parameters = None
            if selector is not None:
                parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
            scores, positions = self._flat.search(queries, depth, params=parameters)
            scores[positions < 0] = -np.inf
            return scores, positions

        return _find_living(find, self.count, k, dead)


class CodedVectors:
    """An inverted file of four-bit product codes in memory, and the rows themselves in a file.

    The codes name candidates; their rows, memory-mapped in half precision as the store has them,
    give the exact scores. FAISS reads fast-scan codes into each process (a fifteenth of the file);
    the rows are shared by all.
    """

    kind = "ivf-pq"

    def __init__(self, codes: Codes, rows: NDArray[np.float16], probes: int) -> None:
        if codes.ntotal != len(rows) or codes.d != rows.shape[1]:
            raise ValueError(f"{codes.ntotal} codes of {codes.d}, but rows of shape {rows.shape}")
        self.codes = codes
        self.probes = probes  # lists visited for a query
        self._rows = rows

    @classmethod
    def open(cls, codes: Path, rows: Path, probes: int) -> CodedVectors:
        return cls(_as_codes(faiss.read_index(str(codes))), np.load(rows, mmap_mode="r"), probes)

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def lists(self) -> int:
        return int(self.codes.nlist)

    def read(self, positions: NDArray[np.int64]) -> Array:
        return self._rows[positions].astype(np.float32)

    def search(self, queries: Array, k: int, dead: Dead) -> Found:
        def find(depth: int, selector: faiss.IDSelector | None, everywhere: bool) -> Found:
            candidates = min(self.count, max(FEWEST_RERANKED, RERANKED * depth))
            # Enough lists to hold twice what is asked for; all of them for one who asks for all.
            wanted = math.ceil(2 * candidates * self.lists / self.count)
            probes = self.lists if everywhere else min(self.lists, max(self.probes, wanted))
            parameters = faiss.SearchParametersIVF(  # type: ignore[call-arg]
                nprobe=probes, sel=selector
            )
            _, positions = self.codes.search(queries, candidates, params=parameters)
            return best_of(_score(self, queries, positions), positions, depth)

        return _find_living(find, self.count, k, dead)


class GpuVectors:
    """A copy of the rows on a GPU finds, the rows themselves score.

    A GPU index takes no selector: where the dead leave too few, the original searches instead.
    """

    def __init__(self, original: Vectors, copy: faiss.Index) -> None:
        self.kind = f"{original.kind} on a GPU"
        self._original = original
        self._copy = copy

    @property
    def count(self) -> int:
        return self._original.count

    def read(self, positions: NDArray[np.int64]) -> Array:
        return self._original.read(positions)

    def search(self, queries: Array, k: int, dead: Dead) -> Found:
        depth = min(self.count, k + int(np.count_nonzero(dead)))
        if depth > GPU_NEIGHBOURS:
            return self._original.search(queries, k, dead)
        _, positions = self._copy.search(queries, depth)
        scores = _score(self, queries, positions)
        is_hit = (positions >= 0) & ~dead[positions]
        return best_of(np.where(is_hit, scores, -np.inf), np.where(is_hit, positions, -1), k)


def copy_to_gpu(vectors: Vectors, device: str) -> Vectors:
    """Those vectors with a copy on a GPU, if FAISS has one and `device` (VCL_DEVICE) allows it."""
    gpus = faiss.get_num_gpus() if hasattr(faiss, "get_num_gpus") else 0
    if not gpus or device == "cpu" or not vectors.count:
        return vectors
    config = faiss.GpuIndexFlatConfig()
    config.device = int(device.partition(":")[2] or 0)
    config.useFloat16 = True
    try:
        resources = faiss.StandardGpuResources()
        dimension = vectors.read(np.zeros(1, dtype=np.int64)).shape[1]
        copy = faiss.GpuIndexFlatIP(resources, dimension, config)
        for positions in chunks(vectors.count):
            copy.add(vectors.read(positions))
    except RuntimeError as error:  # most likely its memory
        log.warning("the index stays off GPU %d: %s", config.device, error)
        return vectors
    return GpuVectors(vectors, copy)


def train_codes(sample: Array, count: int) -> Codes:
    """An empty inverted file for `count` rows like those of the sample."""
    dimension = sample.shape[1]
    recipe = f"IVF{count_lists(count)},PQ{dimension // 2}x4fs"
    codes = _as_codes(faiss.index_factory(dimension, recipe, faiss.METRIC_INNER_PRODUCT))
    for clustering in (codes.cp, codes.pq.cp):
        clustering.niter = TRAINING_ROUNDS
        clustering.min_points_per_centroid = 1  # our sample is what there is
    codes.train(np.ascontiguousarray(sample, dtype=np.float32))
    return codes


def empty_codes(trained: Codes) -> Codes:
    """The same quantizers, without rows."""
    codes = _as_codes(faiss.clone_index(trained))
    codes.reset()
    return codes


def count_lists(count: int) -> int:
    """A power of two near twice the root of the rows: a million are in 2048 lists.

    >>> [count_lists(count) for count in (100, 100_000, 1_000_000)]
    [16, 512, 2048]
    """
    return 1 << max(0, round(math.log2(2 * math.sqrt(max(1, count))) - 0.01))


def chunks(count: int) -> Iterator[NDArray[np.int64]]:
    """The positions 0 to `count`, a memory's worth at a time."""
    for first in range(0, count, CHUNK):
        yield np.arange(first, min(count, first + CHUNK))


def best_of(scores: NDArray[np.float32], positions: NDArray[np.int64], k: int) -> Found:
    """The k best of each row, best first; of equals, the one that came first."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, axis=1).astype(np.float32)
    return best, np.take_along_axis(positions, order, axis=1)


def _as_codes(index: faiss.Index) -> Codes:
    if not isinstance(index, faiss.IndexIVFPQFastScan):
        raise ValueError(f"codes are expected, this is a {type(index).__name__}")
    return index


def _score(vectors: Vectors, queries: Array, positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Exact scores of candidates. The windows of a query share many, so each row is read once."""
    unique, places = np.unique(positions, return_inverse=True)
    exact = queries @ vectors.read(np.maximum(unique, 0)).T
    scores = np.take_along_axis(exact, places.reshape(positions.shape), axis=1)
    return np.where(positions >= 0, scores, np.float32(-np.inf))


def _find_living(
    find: Callable[[int, faiss.IDSelector | None, bool], Found], count: int, k: int, dead: Dead
) -> Found:
    """The k nearest living. A selector makes a flat search three times slower, so first we ask for
    more and drop the dead; only where they leave too few does FAISS have to pass over them, and
    only where the lists near a query hold nobody else, look into all."""
    k = min(k, count)
    died = int(np.count_nonzero(dead))
    if not died:
        return find(k, None, False)
    scores, positions = find(min(count, k + min(died, max(16, k // 8))), None, False)
    is_hit = (positions >= 0) & ~dead[positions]
    wanted = min(k, count - died)
    if (is_hit.sum(axis=1) >= wanted).all():
        return best_of(np.where(is_hit, scores, -np.inf), np.where(is_hit, positions, -1), k)
    bitmap = np.packbits(~dead, bitorder="little")
    selector = faiss.IDSelectorBitmap(count, faiss.swig_ptr(bitmap))
    found = find(k, selector, False)
    if ((found[1] >= 0).sum(axis=1) >= wanted).all():
        return found
    return find(k, selector, True)
