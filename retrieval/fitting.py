"""Fits the head of the default descriptor: edited pictures in, `lite0-head.safetensors` out.

In: folders of photographs and videos (`python -m retrieval.fitting --help`). Out: a linear map.
Run by hand when the head is to be renewed; the fingerprint changes with it.

The network stays as it is, so every edited picture is described once and the fit works on stored
features. It starts from a partly whitened principal-component projection, learns to put an edited
picture next to its original among all originals, and goes half of the way there: halfway, what was
learnt on few pictures does not yet spoil what held for all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.numpy import save_file

from retrieval.edits import EDITS, draw_strength
from retrieval.lite0 import build_graph, find_backbone, read_backbone
from retrieval.material import Source, find_no_contest, gather_sources
from retrieval.pictures import squash

Array = NDArray[np.float32]

SIDE = 224
DIMENSION = 256
COMPONENTS = 512
WHITENING = 0.75  # power of the deviations that is divided away
TEMPERATURE = 0.07
BATCH = 512
RATE = 2e-3
DECAY = 1e-2
LEARNT_SHARE = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="folder of photographs (jpg)")
    parser.add_argument("--videos", type=Path, action="append", default=[], help="folder of films")
    parser.add_argument("--edits", type=int, default=16, help="edited copies of each picture")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="take every n-th picture only")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    sources = gather_sources(options.images, options.videos, held_out=False, every=options.every)
    print(f"{len(sources)} pictures, {options.edits} edits of each", file=sys.stderr)
    originals, copies, owners = describe_edits(sources, options.edits, options.seed)
    weight, bias = fit_head(
        originals, copies, owners, find_no_contest(sources), options.steps, options.seed
    )
    # Half precision: the map's last bits change no ranking, and the file halves.
    save_file({"weight": weight.astype(np.float16), "bias": bias}, options.output)
    options.output.chmod(0o644)


def describe_edits(
    sources: Sequence[Source], edits: int, seed: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Features of the originals, of their edited copies, and whose copy each is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(
        build_graph(read_backbone(find_backbone()), None), options
    )
    rng = np.random.default_rng(seed)
    names = list(EDITS)

    def describe(pictures: list[NDArray[np.uint8]]) -> Array:
        features: Array = session.run(None, {"pictures": np.stack(pictures)})[0]
        return features

    originals: list[Array] = []
    copies: list[Array] = []
    for number, source in enumerate(sources):
        pictures = [squash(np.asarray(source.picture), (SIDE, SIDE))]
        for name in rng.choice(names, edits, replace=edits > len(names)):
            other = sources[int(rng.integers(len(sources)))]
            edited = EDITS[str(name)](
                source.picture, draw_strength(rng, held_out=False), rng, other.picture
            )
            pictures.append(squash(np.asarray(edited), (SIDE, SIDE)))
        features = describe(pictures)
        originals.append(features[:1])
        copies.append(features[1:])
        if number % 50 == 0:
            print(f"described {number} of {len(sources)}", file=sys.stderr)
    return np.concatenate(originals), np.concatenate(copies), np.arange(len(sources)).repeat(edits)


def fit_head(
    originals: Array,
    copies: Array,
    owners: NDArray[np.int64],
    no_contest: NDArray[np.bool_],
    steps: int,
    seed: int,
) -> tuple[Array, Array]:
    """Weight (256, features) and bias (256,) of the head."""
    mean, components = project_components(np.concatenate([originals, copies]))
    keys = torch.from_numpy((originals - mean) @ components)
    queries = torch.from_numpy((copies - mean) @ components)
    start = torch.eye(DIMENSION, keys.shape[1])
    layer = torch.nn.Linear(keys.shape[1], DIMENSION)
    with torch.no_grad():
        layer.weight.copy_(start)
        layer.bias.zero_()
    _learn(layer, keys, queries, owners, torch.from_numpy(no_contest), steps, seed)
    weight = ((1 - LEARNT_SHARE) * start + LEARNT_SHARE * layer.weight).detach().numpy()
    whole = (weight @ components.T).astype(np.float32)
    bias = LEARNT_SHARE * layer.bias.detach().numpy() - whole @ mean
    return np.ascontiguousarray(whole), bias.astype(np.float32)


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


def _learn(
    layer: torch.nn.Linear,
    keys: torch.Tensor,
    queries: torch.Tensor,
    owners: NDArray[np.int64],
    no_contest: torch.Tensor,
    steps: int,
    seed: int,
) -> None:
    """A copy must pick its original among all originals and the other copies of the batch."""
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(layer.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    batch = min(BATCH, len(queries))
    for step in range(steps):
        chosen = rng.choice(len(queries), batch, replace=False)
        truth = torch.from_numpy(owners[chosen])
        copies = F.normalize(layer(queries[torch.from_numpy(chosen)]))
        originals = F.normalize(layer(keys))
        against_originals = copies @ originals.T / TEMPERATURE
        against_copies = copies @ copies.T / TEMPERATURE
        alike = no_contest[truth]
        same = (truth[:, None] == truth[None]) | alike[:, truth]
        logits = torch.cat(
            [against_originals.masked_fill(alike, -1e4), against_copies.masked_fill(same, -1e4)], 1
        )
        loss = F.cross_entropy(logits, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", file=sys.stderr)


if __name__ == "__main__":
    main()
