"""How well descriptors find edited pictures: ours against PDQ, a thumbnail and the raw network.

Run: python benchmarks/descriptors.py --images FOLDER --videos FOLDER [--every 2]
(`pip install .[bench]` brings PDQ.)

Originals are photographs and seconds of film of the split `test`, which no weights were fitted or
chosen on, edited at strengths that the fit never saw (`edits.HELD_OUT`). R@1: the share
of edited pictures whose nearest original is the right one; for film that means the right second,
unless another second shows the same picture. Micro-AP: all matches of all edited pictures in one
ranking; other seconds of the same film are left out, because which second it is, is the
localizer's question. Where an edit mixes in another picture, finding that one is no mistake
either: it is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.fitting.edits import EDITS, draw_strength
from retrieval.describe.fitting.material import Source, find_no_contest, gather_sources, same_film
from retrieval.describe.lite0 import build_graph, find_backbone, read_backbone
from retrieval.describe.parts import best_over_views, embed_parts
from retrieval.describe.pictures import squash

Array = NDArray[np.float32]
SIDE = 224
WELL_KEPT = ("mirror", "letterbox", "crop", "grey")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--videos", type=Path, action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="take every n-th original only")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--weights", type=Path, help="of lite0; the shipped ones if not given")
    options = parser.parse_args()
    sources = gather_sources(options.images, options.videos, options.split, options.every)
    originals = np.stack([squash(np.asarray(each.picture), (SIDE, SIDE)) for each in sources])
    edited, owners, others, kinds = edit_all(sources, options.seed)
    print(f"{len(sources)} originals, {len(edited)} edited pictures, {len(EDITS)} edits")
    similarity = {
        "pdq": describe_pdq(edited) @ describe_pdq(originals).T,
        "thumbnail": describe_thumbnails(edited) @ describe_thumbnails(originals).T,
        "raw lite0": describe_raw(edited) @ describe_raw(originals).T,
    }
    descriptor = load_descriptor("lite0", weights=options.weights)
    reference = descriptor.embed(originals)
    whole, parts = descriptor.embed(edited), embed_parts(descriptor, edited)
    similarity["lite0"] = whole @ reference.T
    similarity["lite0 + views"] = best_over_views(whole, parts, reference)
    print(f"parts described of each edited picture: {len(parts) / len(owners):.2f}")
    report(sources, similarity, owners, others, kinds)


def edit_all(
    sources: list[Source], seed: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.str_]]:
    """Every original under every edit, once, at a held-out strength: whose, with whom, how."""
    rng = np.random.default_rng(seed)
    edited, owners, others, kinds = [], [], [], []
    for number, source in enumerate(sources):
        for kind, edit in EDITS.items():
            other = (number + 1 + int(rng.integers(len(sources) - 1))) % len(sources)
            strength = draw_strength(rng, held_out=True)
            picture = edit(source.picture, strength, rng, sources[other].picture)
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
    is_mixed = np.isin(kinds, ("sticker", "blend", "split_screen", "inset", "combine"))[:, None]
    mixed_in = is_mixed & same_film(sources)[others]
    no_contest = find_no_contest(sources)[owners] | mixed_in
    film = same_film(sources)[owners] | mixed_in
    is_film = np.array([each.is_film for each in sources])[owners]
    truth = owners[:, None] == np.arange(len(sources))[None]
    hits = {
        name: np.where(no_contest & ~truth, -2.0, each).argmax(axis=1) == owners
        for name, each in similarity.items()
    }
    scores = {name: np.where(film & ~truth, -2.0, each) for name, each in similarity.items()}
    print(f"\n{'R@1':16s}" + "".join(f"{name:>15s}" for name in similarity))
    for kind in EDITS:
        chosen = kinds == kind
        print(f"{kind:16s}" + "".join(f"{hits[name][chosen].mean():15.3f}" for name in similarity))
    everything = np.ones(len(owners), bool)
    for title, chosen in (("photographs", ~is_film), ("film", is_film), ("all", everything)):
        if chosen.any():
            print(f"{title:16s}" + "".join(f"{hits[n][chosen].mean():15.3f}" for n in similarity))
    print(f"\n{'micro-AP':16s}" + "".join(f"{name:>15s}" for name in similarity))
    precision = {name: micro_average_precision(scores[name], truth) for name in similarity}
    for title, chosen in (("photographs", ~is_film), ("film", is_film)):
        if chosen.any():
            row = [micro_average_precision(scores[n][chosen], truth[chosen]) for n in similarity]
            print(f"{title:16s}" + "".join(f"{each:15.3f}" for each in row))
    print(f"{'all':16s}" + "".join(f"{precision[name]:15.3f}" for name in similarity))
    print()
    recall = {name: hit.mean() for name, hit in hits.items()}
    for ours in ("lite0", "lite0 + views"):
        for rival, goal in (("raw lite0", 0.03), ("pdq", 0.35)):
            gain = (recall[ours] - recall[rival], precision[ours] - precision[rival])
            print(f"{ours} over {rival}: R@1 {gain[0]:+.3f}, micro-AP {gain[1]:+.3f} (goal {goal})")
    for kind in WELL_KEPT:
        print(f"lite0, {kind}: R@1 {hits['lite0'][kinds == kind].mean():.3f} (goal 0.95)")
    inset = hits["lite0 + views"][kinds == "inset"].mean()
    print(f"lite0 + views, inset: R@1 {inset:.3f} (goal 0.5)")


def micro_average_precision(scores: Array, truth: NDArray[np.bool_], keep: int = 20) -> float:
    """Over the `keep` best candidates of every query, ranked together."""
    best = np.argpartition(-scores, min(keep, scores.shape[1]) - 1, axis=1)[:, :keep]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1).ravel(), kind="stable")
    right = np.take_along_axis(truth, best, axis=1).ravel()[order]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    return float((precision * right).sum() / len(scores))


if __name__ == "__main__":
    main()
