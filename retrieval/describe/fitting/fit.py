"""Fits the default descriptor: photographs and videos in, `lite0.safetensors` out.

In: folders of pictures (`python -m retrieval.describe.fitting.fit --help`). Out: weights of the
fitted blocks and the head. Run by hand when they are to be renewed; the fingerprint changes with
them. A fit that was stopped goes on from its state file.

The first blocks of the network stay as they came, and what they say of a picture is computed in
other processes (`batches`); all later blocks and the head learn (`losses`). At the end the head is
whitened: directions in which all pictures differ much count less.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from retrieval.describe.fitting.batches import Batch, stream_batches
from retrieval.describe.fitting.losses import Contest, compare
from retrieval.describe.fitting.material import Source, find_no_contest, gather_sources
from retrieval.describe.fitting.network import Network
from retrieval.describe.lite0 import find_backbone, read_backbone

Array = NDArray[np.float32]

DIMENSION = 256
RATE, HEAD_RATE, DECAY = 4e-4, 1e-3, 1e-2
WARM_UP = 30  # steps
LAST_SHARE = 0.03  # of the rate, at the end
AVERAGING = 0.99  # of the weights that are kept, a step
RECENT = 80  # batches whose originals a copy is held against
AT_ONCE = 32  # pictures that the network learns from at once; more need memory, not less time
WHITENING = 0.25
BACKGROUND_BATCHES = 40
SAVE_EVERY = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="folder of photographs (jpg)")
    parser.add_argument("--videos", type=Path, action="append", default=[], help="folder of films")
    parser.add_argument("--steps", type=int, default=1500, help="batches of 64 originals")
    parser.add_argument("--start", type=Path, help="weights to go on from; none: the package's")
    parser.add_argument("--state", type=Path, help="file that lets a stopped fit go on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", "--processes", type=int, default=1, help="that draw batches")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    sources = gather_sources(options.images, options.videos, "train")
    print(f"{len(sources)} pictures", file=sys.stderr)
    network = make_network(options.start)
    fit(network, sources, options.steps, options.seed, options.processes, options.state)
    background = describe_background(network, sources, options.seed)
    network.set_head(*whiten(network.weight, network.bias, background))
    save_weights(network, options.output)


def make_network(start: Path | None) -> Network:
    backbone: dict[str, Array] = read_backbone(find_backbone())
    if start is not None:
        backbone |= {name: each.astype(np.float32) for name, each in load_file(start).items()}
    network = Network(backbone, DIMENSION)
    if start is not None:
        network.set_head(backbone["weight"], backbone["bias"])
    return network


class Fit:
    """A network, its optimizer, the average of its weights, and the originals of late."""

    def __init__(self, network: Network, contest: Contest, steps: int) -> None:
        self.network, self.contest, self.steps = network, contest, steps
        head = [network.weight, network.bias]
        blocks = [each for each in network.parameters() if all(each is not own for own in head)]
        self.optimizer = torch.optim.AdamW(
            [{"params": blocks, "lr": RATE}, {"params": head, "lr": HEAD_RATE}],
            weight_decay=DECAY,
            betas=(0.9, 0.98),
        )
        self.average = {name: each.detach().clone() for name, each in network.named_parameters()}
        self.recent: deque[tuple[Tensor, Tensor]] = deque(maxlen=RECENT)
        self.step = 0

    def learn(self, batch: Batch) -> tuple[float, float, float]:
        """One step: loss, share of copies found, 99.9 % quantile of unrelated pairs."""
        self._set_rates()
        maps = torch.from_numpy(batch.maps).float().contiguous(memory_format=torch.channels_last)
        shown = torch.from_numpy(batch.shown.astype(np.int64))
        found = torch.cat([self.network(part) for part in maps.split(AT_ONCE)])
        found = found.view(*shown.shape[:2], -1)
        keys = torch.cat([*(key for key, _ in self.recent), torch.zeros(0, found.shape[2])])
        keys_shown = torch.cat(
            [*(which for _, which in self.recent), torch.zeros(0, 1, dtype=torch.int64)]
        )
        loss = compare(found, shown, keys, keys_shown, self.contest)
        self.optimizer.zero_grad()
        loss.total.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
        self.optimizer.step()
        self.recent.append((found[:, 0].detach().clone(), shown[:, 0, :1]))
        share = 1 - min(AVERAGING, self.step / (self.step + 10))
        with torch.no_grad():
            for name, each in self.network.named_parameters():
                self.average[name].lerp_(each, share)
        self.step += 1
        return loss.total.item(), loss.found, loss.quantile

    def _set_rates(self) -> None:
        """Up from nothing, then down along a cosine."""
        done = self.step / self.steps
        share = LAST_SHARE + (1 - LAST_SHARE) * 0.5 * (1 + math.cos(math.pi * done))
        share *= min(1.0, (self.step + 1) / WARM_UP)
        for group, rate in zip(self.optimizer.param_groups, (RATE, HEAD_RATE), strict=True):
            group["lr"] = rate * share

    def save(self, path: Path) -> None:
        state: dict[str, Any] = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "recent": list(self.recent),
            "step": self.step,
        }
        beside = path.with_name(path.name + ".new")
        torch.save(state, beside)
        beside.replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average, self.step = state["average"], state["step"]
        self.recent.extend(state["recent"])


def fit(
    network: Network,
    sources: list[Source],
    steps: int,
    seed: int,
    processes: int = 1,
    state: Path | None = None,
) -> None:
    """Fits `network` in place and leaves the average of its last weights in it."""
    alike = find_no_contest(sources)
    np.fill_diagonal(alike, True)
    work = Fit(network, Contest(alike), steps)
    if state is not None and state.exists():
        work.load(state)
    started, first = time.monotonic(), work.step
    batches = stream_batches(sources, seed, first, processes)
    while work.step < steps:
        loss, found, quantile = work.learn(next(batches))
        if work.step % 10 == 0:
            pace = (time.monotonic() - started) / (work.step - first)
            print(
                f"step {work.step} of {steps}: loss {loss:.3f}, found {found:.3f}, unrelated "
                f"{quantile:.3f}, {pace * (steps - work.step) / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
        if state is not None and (work.step % SAVE_EVERY == 0 or work.step == steps):
            work.save(state)
    batches.close()
    with torch.no_grad():
        for name, each in network.named_parameters():
            each.copy_(work.average[name])


@torch.no_grad()
def describe_background(network: Network, sources: list[Source], seed: int) -> Array:
    """Descriptors of originals that stand for all pictures. (n, 256)"""
    batches = stream_batches(sources, seed + 1)
    rows = []
    for _ in range(BACKGROUND_BATCHES):
        batch = next(batches)
        each = batch.maps.reshape(*batch.shown.shape[:2], *batch.maps.shape[1:])[:, 0]
        rows.append(network(torch.from_numpy(each).float()))
    batches.close()
    return torch.cat(rows).numpy()


def whiten(
    weight: Tensor, bias: Tensor, background: Array, power: float = WHITENING
) -> tuple[Array, Array]:
    """The head followed by a partial whitening of `background`: a linear map again, for free.

    Divides each principal direction (of the second moment: unit vectors have no centre to take
    off) by a power of its strength. Lengths are made one afterwards, so scale does not matter.
    """
    strength, directions = np.linalg.eigh(background.T @ background / len(background))
    scale = np.maximum(strength, 1e-6) ** -power
    turn = (directions * scale).T.astype(np.float32)
    whole = turn @ weight.detach().numpy(), turn @ bias.detach().numpy()
    return np.ascontiguousarray(whole[0]), np.ascontiguousarray(whole[1])


def save_weights(network: Network, path: Path) -> None:
    """Half precision: the last bits change no ranking, and the file halves."""
    weights = {
        name: np.ascontiguousarray(each.astype(np.float16 if each.ndim > 1 else np.float32))
        for name, each in network.weights().items()
    }
    save_file(weights, path)
    path.chmod(0o644)


if __name__ == "__main__":
    main()
