"""Fits the default descriptor: photographs and videos in, `lite0.safetensors` out.

In: folders of pictures (`python -m retrieval.describe.fitting.fit --help`).
Out: weights of tail and head.
Run by hand when they are to be renewed; the fingerprint changes with them.

The trunk of the network stays as it is, so every picture is described once (`samples`) and the fit
works on that. First a head alone, a linear map that starts from partly whitened principal
components; then head and tail together learn to put an edited picture next to its original among
all others, while originals stay near to where the first head put them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from retrieval.describe.fitting.material import find_no_contest, gather_sources
from retrieval.describe.fitting.samples import Samples, draw_samples
from retrieval.describe.fitting.tail import Tail
from retrieval.describe.lite0 import FEATURES, Weights, find_backbone, read_backbone

Array = NDArray[np.float32]

DIMENSION = 256
TEMPERATURE = 0.07
DECAY = 1e-2
# The head alone goes half of the way: there, what few pictures taught does not yet spoil what
# held for all.
COMPONENTS = 512
WHITENING = 0.75  # power of the deviations that is divided away
HEAD_ORIGINALS = 4000
HEAD_STEPS = 500
HEAD_BATCH = 512
HEAD_RATE = 2e-3
LEARNT_SHARE = 0.5
# Head and tail.
BATCH = 32  # originals, each with all its copies
RATE = 3e-4
KEEPING = 2.0  # weight of staying where the first head put an original
AVERAGING = 0.99
RECENT = 60  # steps whose originals a copy is held against


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="folder of photographs (jpg)")
    parser.add_argument("--videos", type=Path, action="append", default=[], help="folder of films")
    parser.add_argument("--originals", type=int, default=12_000)
    parser.add_argument("--copies", type=int, default=3, help="edited copies of each original")
    parser.add_argument("--passes", type=float, default=1.5, help="over all originals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", "--processes", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="file that keeps the described samples")
    parser.add_argument("--like", type=Path, help="weights whose space the new one is turned to")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    sources = gather_sources(options.images, options.videos, "train")
    if options.samples is not None and options.samples.exists():
        samples = Samples.load(options.samples)
    else:
        samples = draw_samples(
            sources, options.originals, options.copies, options.seed, options.processes
        )
        if options.samples is not None:
            samples.save(options.samples)
    alike = find_no_contest(sources)
    np.fill_diagonal(alike, True)
    backbone = read_backbone(find_backbone())
    contest = Contest(samples.shown, alike)
    tail = Tail(backbone, DIMENSION)
    some = samples.first(HEAD_ORIGINALS)
    features = pool_features(tail, some)
    head = fit_head(features, Contest(some.shown, alike), options.seed)
    if options.like is not None:
        like = {name: each.astype(np.float32) for name, each in load_file(options.like).items()}
        other = Tail({**backbone, **like}, DIMENSION)
        other.set_head(like)
        head = turn_head(head, features[:, 0], describe_originals(other, some).numpy())
    tail.set_head(head)
    fit_tail(tail, samples, contest, options.passes, options.seed)
    # Half precision: the last bits change no ranking, and the file halves.
    weights = {
        name: each.astype(np.float16 if each.ndim > 1 else np.float32)
        for name, each in tail.weights().items()
    }
    save_file(weights, options.output)
    options.output.chmod(0o644)


class Contest:
    """Which originals a copy may not be blamed for being near: those that show a source that it
    shows too, or another second of one that looks the same."""

    def __init__(self, shown: NDArray[np.int32], alike: NDArray[np.bool_]) -> None:
        self.shown = torch.from_numpy(shown.astype(np.int64))
        # The last row and column stand for "shows nothing more" (-1).
        self.alike = torch.from_numpy(np.pad(alike, ((0, 1), (0, 1))))

    def excuse(self, rows: Tensor) -> Tensor:
        """(copies of the rows, originals): True where the two are no contest."""
        mine = self.shown[rows, 1:].flatten(0, 1)  # (b·copies, 3)
        theirs = self.shown[:, 0, :2]  # (originals, 2)
        excused = torch.zeros(len(mine), len(theirs), dtype=torch.bool)
        for i in range(mine.shape[1]):
            for j in range(theirs.shape[1]):
                excused |= self.alike[mine[:, i]][:, theirs[:, j]]
        return excused


@torch.no_grad()
def pool_features(tail: Tail, samples: Samples) -> Array:
    """(originals, 1 + copies, 1952): what the head is given while the tail is as it came."""
    rows = [
        tail.pool(*_take(samples, np.arange(at, min(at + BATCH, len(samples)))))
        for at in range(0, len(samples), BATCH)
    ]
    return torch.cat(rows).numpy().reshape(*samples.shown.shape[:2], FEATURES)


def fit_head(features: Array, contest: Contest, seed: int, steps: int = HEAD_STEPS) -> Weights:
    """`weight` (256, features) and `bias` (256,) of the head."""
    mean, components = project_components(features.reshape(-1, features.shape[-1])[::3])
    projected = torch.from_numpy((features - mean) @ components)
    start = torch.eye(DIMENSION, projected.shape[-1])
    layer = torch.nn.Linear(projected.shape[-1], DIMENSION)
    with torch.no_grad():
        layer.weight.copy_(start)
        layer.bias.zero_()
    optimizer = torch.optim.AdamW(layer.parameters(), HEAD_RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, HEAD_RATE, steps, pct_start=0.1)
    rng = np.random.default_rng(seed)
    count = min(HEAD_BATCH // (features.shape[1] - 1), len(features))
    for step in range(steps):
        rows = torch.from_numpy(rng.choice(len(features), count, replace=False))
        keys = F.normalize(layer(projected[:, 0]))
        copies = F.normalize(layer(projected[rows, 1:]))
        loss, _ = compare(keys[rows], copies, keys, contest.excuse(rows))
        _descend(optimizer, schedule, loss)
        if step % 50 == 0:
            print(f"head, step {step}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
    weight = ((1 - LEARNT_SHARE) * start + LEARNT_SHARE * layer.weight).detach().numpy()
    whole = np.ascontiguousarray(weight @ components.T).astype(np.float32)
    bias = LEARNT_SHARE * layer.bias.detach().numpy() - whole @ mean
    return {"weight": whole, "bias": bias.astype(np.float32)}


def project_components(features: Array) -> tuple[Array, Array]:
    """Mean, and principal directions scaled so that strong ones no longer drown the others."""
    mean = features.mean(axis=0)
    centred = features - mean
    variance, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    best = np.argsort(-variance)[:COMPONENTS]
    variance = np.maximum(variance[best], 1e-6)
    scaled = directions[:, best] * (variance[0] / variance) ** (WHITENING / 2)
    length = np.linalg.norm(centred[:2000] @ scaled, axis=1).mean()
    return mean.astype(np.float32), (scaled / length).astype(np.float32)


def turn_head(head: Weights, features: Array, theirs: Array) -> Weights:
    """The same head in other axes: those in which its descriptors are nearest to `theirs`, so that
    a network trained on the other ones goes on from there. No distance changes."""
    ours = features @ head["weight"].T + head["bias"]
    ours /= np.linalg.norm(ours, axis=1, keepdims=True)
    left, _, right = np.linalg.svd(theirs.T @ ours)
    turn = left @ right
    cosine = ((ours @ turn.T) * theirs).sum(axis=1).mean()
    print(f"turned to within a mean cosine of {cosine:.3f}", file=sys.stderr)
    return {"weight": turn @ head["weight"], "bias": turn @ head["bias"]}


def fit_tail(tail: Tail, samples: Samples, contest: Contest, passes: float, seed: int) -> None:
    """Trains `tail` in place and leaves the average of its last weights in it."""
    first = describe_originals(tail, samples)
    keys = first.clone()  # of every original as it was last seen
    optimizer = torch.optim.AdamW(tail.parameters(), RATE, weight_decay=DECAY)
    steps = round(passes * len(samples) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    average = {name: each.detach().clone() for name, each in tail.named_parameters()}
    started = time.monotonic()
    seen: deque[Tensor] = deque(maxlen=RECENT)
    for step, numbers in enumerate(_draw_rows(len(samples), steps, seed)):
        rows = torch.from_numpy(numbers)
        found = tail(*_take(samples, numbers)).view(len(rows), -1, DIMENSION)
        originals, copies = found[:, 0], found[:, 1:]
        # Keys of long ago would pull: to move away from where all once were is no merit.
        recent = torch.cat([*seen, rows])
        others = torch.cat([keys[recent[: -len(rows)]], originals])
        loss, hits = compare(originals, copies, others, contest.excuse(rows)[:, recent])
        strayed = 1 - (originals * first[rows]).sum(dim=1).mean()
        _descend(optimizer, schedule, loss + KEEPING * strayed)
        keys[rows] = originals.detach()
        seen.append(rows)
        for name, each in tail.named_parameters():
            average[name].lerp_(each.detach(), 1 - min(AVERAGING, step / (step + 10)))
        if step % 25 == 0:
            left = (time.monotonic() - started) / (step + 1) * (steps - step) / 60
            print(
                f"tail, step {step} of {steps}: loss {loss.item():.3f}, found {hits:.3f}, "
                f"strayed {strayed.item():.3f}, {left:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
    with torch.no_grad():
        for name, each in tail.named_parameters():
            each.copy_(average[name])


@torch.no_grad()
def describe_originals(tail: Tail, samples: Samples) -> Tensor:
    """(originals, 256)"""
    parts = []
    for at in range(0, len(samples), 4 * BATCH):
        chosen = slice(at, at + 4 * BATCH)
        maps = torch.from_numpy(samples.maps[chosen, 0]).float()
        middle = torch.from_numpy(samples.middle[chosen, 0]).float()
        parts.append(tail(maps.contiguous(memory_format=torch.channels_last), middle))
    return torch.cat(parts)


def compare(
    originals: Tensor, copies: Tensor, others: Tensor, excused: Tensor
) -> tuple[Tensor, float]:
    """Every copy must pick its original among others: loss, and the share that does.

    `originals` (b, 256), `copies` (b, copies, 256), `others` (k, 256), `excused` (b·copies, k).
    """
    right = (copies * originals[:, None]).sum(dim=2).flatten()[:, None]
    wrong = (copies.flatten(0, 1) @ others.T).masked_fill(excused, -10.0)
    logits = torch.cat([right, wrong], dim=1) / TEMPERATURE
    loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))
    return loss, float((logits.argmax(dim=1) == 0).float().mean())


def _draw_rows(count: int, steps: int, seed: int) -> Iterator[NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(count) for _ in range(steps * BATCH // count + 1)])
    for step in range(steps):
        yield order[step * BATCH : (step + 1) * BATCH]


def _take(samples: Samples, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    maps = torch.from_numpy(samples.maps[rows]).float().flatten(0, 1)
    middle = torch.from_numpy(samples.middle[rows]).float().flatten(0, 1)
    return maps.contiguous(memory_format=torch.channels_last), middle


def _descend(
    optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler, loss: Tensor
) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()


if __name__ == "__main__":
    main()
