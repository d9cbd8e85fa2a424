"""How well descriptors find edited pictures: ours against PDQ, a thumbnail and the raw network.

Run: python benchmarks/descriptors.py --images FOLDER --videos FOLDER [--every 12] [--beside FILE]
(`pip install .[bench]` brings PDQ.)

Originals are photographs and seconds of film of the split `test`, which no weights were fitted or
chosen on (`--split all` for folders that nothing was ever fitted on). Edits that the fit knows are
of strengths that it never saw (`edits.HELD_OUT`); five edits it never saw at all. R@1: the share of
edited pictures whose nearest original is the right one; for film that means the right second,
unless another second shows the same picture. Micro-AP: all matches of all edited pictures in one
ranking; other seconds of the same film are left out, because which second it is, is the
localizer's question. Where an edit mixes in another picture, finding that one is no mistake
either: it is there. Unrelated: the cosine that one in a thousand wrong pairs exceeds. Order: shots
of eight seconds that move, edited alike; the share of seconds found exactly, and of shots whose
seconds come out in order. `--beside` takes older weights of lite0, described at 224 pixels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.describe.descriptors import Descriptor, load_descriptor
from retrieval.describe.fitting.edits import EDITS, MIXING, NEVER_FITTED, draw_strength
from retrieval.describe.fitting.material import Source, find_no_contest, gather_sources, same_film
from retrieval.describe.lite0 import build_graph, find_backbone, read_backbone
from retrieval.describe.parts import best_over_views, embed_parts
from retrieval.describe.pictures import squash

Array = NDArray[np.float32]
SIDE = 224
JUDGED = {**EDITS, **NEVER_FITTED}
SHOT_SECONDS, SHOTS = 8, 90
SHOT_EDITS = ("crop", "recolour", "compress", "letterbox", "caption", "mirror", "rotate", "combine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--videos", type=Path, action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="take every n-th original only")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--split", choices=("val", "test", "all"), default="test")
    parser.add_argument("--weights", type=Path, help="of lite0; the shipped ones if not given")
    parser.add_argument("--beside", type=Path, help="older weights of lite0, to compare with")
    options = parser.parse_args()
    everything = gather_sources(options.images, options.videos, options.split)
    sources = everything[:: options.every]
    originals = np.stack([squash(np.asarray(each.picture), (SIDE, SIDE)) for each in sources])
    edited, owners, others, kinds = edit_all(sources, options.seed)
    print(f"{len(sources)} originals, {len(edited)} edited pictures, {len(JUDGED)} edits")
    similarity = {
        "pdq": describe_pdq(edited) @ describe_pdq(originals).T,
        "thumbnail": describe_thumbnails(edited) @ describe_thumbnails(originals).T,
        "raw lite0": describe_raw(edited) @ describe_raw(originals).T,
    }
    descriptors = {"lite0": load_descriptor("lite0", weights=options.weights)}
    if options.beside:
        older = load_descriptor("lite0", weights=options.beside, side=224)
        descriptors = {"before": older, **descriptors}
    for name, descriptor in descriptors.items():
        whole, reference = descriptor.embed(edited), descriptor.embed(originals)
        similarity[name] = whole @ reference.T
    parts = embed_parts(descriptor, edited)
    similarity["lite0 + parts"] = best_over_views(whole, parts, reference)
    print(f"parts looked at for each edited picture: {len(parts) / len(edited):.2f}")
    report(sources, similarity, owners, others, kinds)
    report_order(everything, descriptors, options.seed)


def edit_all(
    sources: list[Source], seed: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.str_]]:
    """Every original under every edit, once, at a held-out strength: whose, with whom, how."""
    rng = np.random.default_rng(seed)
    edited, owners, others, kinds = [], [], [], []
    for number, source in enumerate(sources):
        original = source.picture
        for kind, edit in JUDGED.items():
            other = (number + 1 + int(rng.integers(len(sources) - 1))) % len(sources)
            strength = draw_strength(rng, held_out=True)
            picture = edit(original, strength, rng, sources[other].picture)
            edited.append(squash(np.asarray(picture), (SIDE, SIDE)))
            owners.append(number)
            others.append(other)
            kinds.append(kind)
    return np.stack(edited), np.array(owners), np.array(others), np.array(kinds)


def describe_pdq(pictures: NDArray[np.uint8]) -> Array:
    """256 bits as ±1/16, so that the inner product falls linearly with the Hamming distance."""
    import pdqhash

    bits = np.stack([pdqhash.compute(picture)[0] for picture in pictures])
    return ((2.0 * bits - 1.0) / 16).astype(np.float32)


def describe_thumbnails(pictures: NDArray[np.uint8]) -> Array:
    small = np.stack([squash(picture, (16, 16)).ravel() for picture in pictures]).astype(np.float32)
    small -= small.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(small, axis=1, keepdims=True)
    return small / np.maximum(lengths, 1e-6)


def describe_raw(pictures: NDArray[np.uint8]) -> Array:
    """The network's last layer, GeM-pooled, without a head."""
    import onnxruntime

    session = onnxruntime.InferenceSession(build_graph(read_backbone(find_backbone()), None))
    parts = [
        session.run(None, {"pictures": pictures[at : at + 16]})[0][:, :1280]
        for at in range(0, len(pictures), 16)
    ]
    return np.concatenate(parts)


def report(
    sources: list[Source],
    similarity: dict[str, Array],
    owners: NDArray[np.int64],
    others: NDArray[np.int64],
    kinds: NDArray[np.str_],
) -> None:
    mixed_in = np.isin(kinds, MIXING)[:, None] & same_film(sources)[others]
    no_contest = find_no_contest(sources)[owners] | mixed_in
    film = same_film(sources)[owners] | mixed_in
    is_film = np.array([each.is_film for each in sources])[owners]
    truth = owners[:, None] == np.arange(len(sources))[None]
    hits = {
        name: np.where(no_contest & ~truth, -2.0, each).argmax(axis=1) == owners
        for name, each in similarity.items()
    }
    scores = {name: np.where(film & ~truth, -2.0, each) for name, each in similarity.items()}
    groups = {
        "edits fitted on": np.isin(kinds, list(EDITS)),
        "edits never seen": np.isin(kinds, list(NEVER_FITTED)),
        "photographs": ~is_film,
        "film": is_film,
        "all": np.ones(len(owners), bool),
    }
    groups = {title: chosen for title, chosen in groups.items() if chosen.any()}
    print_row("R@1", list(similarity))
    for kind in JUDGED:
        print_row(kind, [hits[name][kinds == kind].mean() for name in similarity])
    for title, chosen in groups.items():
        print_row(title, [hits[name][chosen].mean() for name in similarity])
    print_row("\nmicro-AP", list(similarity))
    for title, chosen in groups.items():
        row = [micro_average_precision(scores[n][chosen], truth[chosen]) for n in similarity]
        print_row(title, row)
    print_row("\ncosine", list(similarity))
    wrong = ~film & ~truth
    limits = {name: float(np.quantile(each[wrong], 0.999)) for name, each in similarity.items()}
    print_row("unrelated, 99.9 %", list(limits.values()))
    print_row("matches, median", [float(np.median(each[truth])) for each in similarity.values()])
    above = [(each[truth] > limits[name]).mean() for name, each in similarity.items()]
    print_row("matches above", above)


def print_row(title: str, values: list[str] | list[float]) -> None:
    cells = (each if isinstance(each, str) else f"{each:.3f}" for each in values)
    print(f"{title:18s}" + "".join(f"{each:>15s}" for each in cells))


def report_order(sources: list[Source], descriptors: dict[str, Descriptor], seed: int) -> None:
    """Whether the seconds of a moving shot are told apart, and come out in their order."""
    shots, copies = make_shots(sources, seed)
    if not len(shots):
        return
    print(f"\n{len(shots)} shots of {SHOT_SECONDS} s, edited")
    for name, descriptor in descriptors.items():
        rows = [
            descriptor.embed(each.reshape(-1, SIDE, SIDE, 3)).reshape(*each.shape[:2], -1)
            for each in (copies, shots)
        ]
        best = np.einsum("nid,njd->nij", *rows).argmax(axis=2)
        exact = (best == np.arange(SHOT_SECONDS)).mean()
        ordered = (np.diff(best, axis=1) >= 0).all(axis=1).mean()
        print(f"{name:18s} seconds exact {exact:.3f}, shots in order {ordered:.3f}")


def make_shots(sources: list[Source], seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Shots in which every second differs from the next, and the same shots edited."""
    rng = np.random.default_rng(seed)
    films: dict[str, list[Image.Image]] = {}
    for each in sources:
        if each.is_film:
            films.setdefault(each.name, []).append(each.picture)
    windows = [
        pictures[at : at + SHOT_SECONDS]
        for pictures in films.values()
        for at in range(0, len(pictures) - SHOT_SECONDS + 1, SHOT_SECONDS // 2)
        if moves(pictures[at : at + SHOT_SECONDS])
    ]
    rng.shuffle(windows)
    shots: list[list[NDArray[np.uint8]]] = []
    copies: list[list[NDArray[np.uint8]]] = []
    for number, window in enumerate(windows[:SHOTS]):
        kind, own = SHOT_EDITS[number % len(SHOT_EDITS)], int(rng.integers(2**31))
        other = windows[(number + 1) % len(windows)][0]
        edited = [EDITS[kind](each, 0.45, np.random.default_rng(own), other) for each in window]
        for pictures, target in ((window, shots), (edited, copies)):
            target.append([squash(np.asarray(each), (SIDE, SIDE)) for each in pictures])
    return np.array(shots), np.array(copies)


def moves(pictures: list[Image.Image]) -> bool:
    thumbs = describe_thumbnails(np.stack([squash(np.asarray(p), (64, 64)) for p in pictures]))
    near = (thumbs[1:] * thumbs[:-1]).sum(axis=1)
    return bool(near.max() < 0.99 and 0.1 < near.mean() < 0.97)


def micro_average_precision(scores: Array, truth: NDArray[np.bool_], keep: int = 20) -> float:
    """Over the `keep` best candidates of every query, ranked together."""
    best = np.argpartition(-scores, min(keep, scores.shape[1]) - 1, axis=1)[:, :keep]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1).ravel(), kind="stable")
    right = np.take_along_axis(truth, best, axis=1).ravel()[order]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    return float((precision * right).sum() / len(scores))


if __name__ == "__main__":
    main()
