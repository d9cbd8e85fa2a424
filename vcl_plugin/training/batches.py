"""Pairs in batches: in which order, of which lengths, padded to one array.

In: a `PairSet` and the number of a step. Out: a `Batch` of tensors.
The batch of a step is a function of seed and step alone, so a run that was killed goes on with the
pairs it would have met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vcl_plugin.training.augment import TrainingPair, vary_pair
from vcl_plugin.training.pairs import Alternating, PairSet
from vcl_plugin.training.recipe import Augment

POOL = 8  # batches whose pairs are sorted by length together: less padding, still mixed


@dataclass(frozen=True)
class Batch:
    pairs: list[TrainingPair]
    query: Tensor  # (B, n, 256), zero-padded
    reference: Tensor  # (B, m, 256)
    query_mask: Tensor  # (B, n)
    reference_mask: Tensor  # (B, m)

    def to(self, device: torch.device) -> Batch:
        arrays = (self.query, self.reference, self.query_mask, self.reference_mask)
        return Batch(self.pairs, *(each.to(device, non_blocking=True) for each in arrays))


def collate(pairs: Sequence[TrainingPair]) -> Batch:
    """One padded batch.

    >>> frames = np.ones((3, 256), np.float32)
    >>> collate([TrainingPair(frames, frames[:2], None, None)]).reference_mask.shape
    torch.Size([1, 2])
    """
    query, query_mask = _pad([pair.query for pair in pairs])
    reference, reference_mask = _pad([pair.reference for pair in pairs])
    return Batch(list(pairs), query, reference, query_mask, reference_mask)


def _pad(arrays: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    longest = max(len(each) for each in arrays)
    padded = torch.zeros(len(arrays), longest, arrays[0].shape[1])
    mask = torch.zeros(len(arrays), longest, dtype=torch.bool)
    for i, each in enumerate(arrays):
        padded[i, : len(each)] = torch.from_numpy(np.ascontiguousarray(each))
        mask[i, : len(each)] = True
    return padded, mask


class Batches:
    """The batches of a run, by step. `rank` of `world` processes takes every world-th pair."""

    def __init__(
        self,
        pairs: PairSet,
        augment: Augment,
        batch: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        # Alternating between one set is going through it again and again.
        self.pairs = Alternating([pairs], seed)
        self.augment, self.batch, self.seed = augment, batch, seed
        self.rank, self.world = rank, world
        self._pool: tuple[int, list[list[TrainingPair]]] | None = None

    def at(self, step: int) -> Batch:
        number, place = divmod(step, POOL)
        if self._pool is None or self._pool[0] != number:
            self._pool = (number, self._make_pool(number))
        return collate(self._pool[1][place])

    def _make_pool(self, number: int) -> list[list[TrainingPair]]:
        size = self.batch * POOL
        turns = range(number * size * self.world + self.rank, (number + 1) * size * self.world)
        pairs = [self._pair(turn) for turn in turns[:: self.world]]
        pairs.sort(key=lambda each: len(each.query) + len(each.reference))
        order = np.random.default_rng([self.seed, number, 7]).permutation(POOL)
        return [pairs[k * self.batch : (k + 1) * self.batch] for k in order]

    def _pair(self, turn: int) -> TrainingPair:
        draw = np.random.default_rng([self.seed, turn, 1])
        return vary_pair(self.pairs.pair(turn), self.augment, draw)
