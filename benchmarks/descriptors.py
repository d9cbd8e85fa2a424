"""How well descriptors find edited pictures: ours against PDQ, a thumbnail and the raw network.

Run: python benchmarks/descriptors.py --images FOLDER --videos FOLDER [--every 6] [--beside FILE]
(`pip install .[bench]` brings PDQ.) Edits of somebody else: `--maker FILE.py`; pictures that were
edited beforehand: `--prepared FOLDER`. What either looks like stands in `edited_pictures`.

Originals are photographs and seconds of film of the split `test`, which no weights were fitted or
chosen on (`--split all` for folders that nothing was ever fitted on). `--distractors` adds
photographs of the split `test` that nothing is a copy of. Edits that the fit knows are of strengths
that it never saw (`edits.HELD_OUT`); five edits it never saw at all. R@1: the share of edited
pictures whose nearest original is the right one; for film that means the right second, unless
another second shows the same picture. Micro-AP: all matches of all edited pictures in one ranking;
other seconds of the same film are left out, because which second it is, is the localizer's
question. Where an edit mixes in another picture, finding that one is no mistake either: it is
there. Unrelated: the cosine that one in a thousand wrong pairs exceeds. Order: whether the seconds
of moving shots are told apart (`shot_order`). `--beside` takes older weights of lite0, described at
`--beside-side` pixels, and says by how much what ships is better, with the interval of a paired
bootstrap (`judging`). `--keep` keeps descriptors, so that a run that was stopped goes on where it
was.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edited_pictures import NOBODY, Edited, Editor, MakersEdits, OurEdits, PreparedFolder
from judging import Judged, compare
from numpy.typing import NDArray
from PIL import Image
from shot_order import report_order

from retrieval.describe.descriptors import Descriptor, load_descriptor
from retrieval.describe.fitting.edits import EDITS, NEVER_FITTED
from retrieval.describe.fitting.material import Source, find_no_contest, gather_sources, same_film
from retrieval.describe.lite0 import build_graph, find_backbone, read_backbone
from retrieval.describe.parts import embed_parts
from retrieval.describe.pictures import squash

Array = NDArray[np.float32]
SIDE = 224
AT_ONCE = 8  # originals whose edited pictures are in memory together
TOLERANCE = 0.01  # an edit may be found less often by this much


@dataclass(frozen=True)
class Describer:
    """Pictures of one size to unit rows; `key` names all that they depend on."""

    key: str
    size: tuple[int, int]
    embed: Callable[[NDArray[np.uint8]], Array]


def main() -> None:
    options = read_options()
    editor: Editor
    everything: list[Source] = []
    if options.prepared:
        editor = PreparedFolder(options.prepared)
        sources = editor.read_sources()
    else:
        is_ours = options.maker is None
        editor = OurEdits(options.seed) if is_ours else MakersEdits(options.maker, options.seed)
        everything = gather_sources(options.images, options.videos, options.split)
        sources = everything[:: options.every]
    distractors = []
    if options.distractors:
        distractors = gather_sources(options.distractors, [], "test")[: options.most]
    lite0 = load_descriptor("lite0", weights=options.weights, threads=1)
    descriptors = {"lite0": lite0}
    if options.beside:
        older = load_descriptor(
            "lite0", weights=options.beside, side=options.beside_side, threads=1
        )
        descriptors = {"before": older, **descriptors}
    describers = {"pdq": PDQ, "thumbnail": THUMBNAIL, "raw lite0": load_raw()} | {
        name: Describer(each.fingerprint.key, each.frame_size, each.embed)
        for name, each in descriptors.items()
    }
    # In an order of its own, so that the first so many are of all kinds.
    asked = np.random.default_rng(options.seed).permutation(len(sources))[: options.asked]
    chunks = describe_edited(sources, asked, editor, describers, lite0, options.keep)
    similarity, edited = match([*sources, *distractors], chunks, describers)
    print(
        f"{len(sources)} originals and {len(distractors)} distractors, {len(asked)} edited: "
        f"{len(edited)} pictures, {len(editor.kinds)} edits"
    )
    report(sources, similarity, edited, editor.kinds)
    report_order(everything, descriptors, options.seed)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="photographs")
    parser.add_argument("--videos", type=Path, action="append", default=[])
    parser.add_argument("--maker", type=Path, help="a Python file that edits pictures")
    parser.add_argument("--prepared", type=Path, help="a folder of originals and edited pictures")
    parser.add_argument("--distractors", type=Path, help="photographs that nothing is a copy of")
    parser.add_argument("--most", type=int, default=1000, help="distractors")
    parser.add_argument("--every", type=int, default=1, help="take every n-th original only")
    parser.add_argument("--asked", type=int, help="edit so many originals; others only compete")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--split", choices=("val", "test", "all"), default="test")
    parser.add_argument("--weights", type=Path, help="of lite0; the shipped ones if not given")
    parser.add_argument("--beside", type=Path, help="older weights of lite0, to compare with")
    parser.add_argument("--beside-side", type=int, default=SIDE, help="pixels they look at")
    parser.add_argument("--keep", type=Path, help="folder in which descriptors are kept")
    options = parser.parse_args()
    if options.prepared is None and options.images is None and not options.videos:
        parser.error("give --images, --videos or --prepared")
    return options


def load_raw() -> Describer:
    """The network's last layer, GeM-pooled, without a head."""
    import onnxruntime

    backbone, options = find_backbone(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = build_graph(read_backbone(backbone), None)
    session = onnxruntime.InferenceSession(graph, options)
    return Describer(
        hashlib.sha256(backbone.read_bytes()).hexdigest()[:16],
        (SIDE, SIDE),
        lambda pictures: np.concatenate(
            [
                session.run(None, {"pictures": pictures[at : at + 16]})[0][:, :1280]
                for at in range(0, len(pictures), 16)
            ]
        ),
    )


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


PDQ = Describer("pdq", (SIDE, SIDE), describe_pdq)
THUMBNAIL = Describer("thumbnail", (SIDE, SIDE), describe_thumbnails)


@dataclass(frozen=True)
class Asked:
    """What was asked: whose each edited picture is, with whom, under which edit."""

    owners: NDArray[np.int64]
    others: NDArray[np.int64]
    kinds: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.owners)


def describe_edited(
    sources: Sequence[Source],
    asked: NDArray[np.int64],
    editor: Editor,
    describers: dict[str, Describer],
    looker: Descriptor,
    keep: Path | None,
) -> list[dict[str, NDArray[np.generic]]]:
    """The edited pictures of `asked` originals described; `looker` describes their parts too."""
    facts = (editor.key, [(name, each.key) for name, each in describers.items()])
    key = hashlib.sha256(repr((facts, [(s.name, s.second) for s in sources])).encode()).hexdigest()
    chunks = []
    for at in range(0, len(asked), AT_ONCE):
        owners = asked[at : at + AT_ONCE].tolist()
        path = keep / f"{key[:16]}-{at:06d}-{len(owners)}.npz" if keep else None
        chunks.append(describe_chunk(sources, owners, editor, describers, looker, path))
        print(f"\r{at + len(owners)} of {len(asked)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return chunks


def match(
    candidates: Sequence[Source],
    chunks: Sequence[dict[str, NDArray[np.generic]]],
    describers: dict[str, Describer],
) -> tuple[dict[str, Array], Asked]:
    """Similarity (edited, candidates) by descriptor, of the last one also by its parts."""
    asked = Asked(*(np.concatenate([c[n] for c in chunks]) for n in ("owners", "others", "kinds")))
    pictures = [each.picture for each in candidates]
    similarity = {}
    for name, describer in describers.items():
        reference = describe(describer, pictures)
        similarity[name] = np.concatenate([each[name] for each in chunks]) @ reference.T
    best, start, looked = similarity[name].copy(), 0, 0
    for chunk in chunks:
        np.maximum.at(best, chunk["part_frames"] + start, chunk["parts"] @ reference.T)
        start, looked = start + len(chunk["owners"]), looked + len(chunk["parts"])
    print(f"parts looked at for each edited picture: {looked / len(asked):.2f}")
    return {**similarity, f"{name} + parts": best}, asked


def describe_chunk(
    sources: Sequence[Source],
    owners: Sequence[int],
    editor: Editor,
    describers: dict[str, Describer],
    looker: Descriptor,
    path: Path | None,
) -> dict[str, NDArray[np.generic]]:
    """Some originals' edited pictures described, or read where they are kept."""
    if path is not None and path.is_file():
        with np.load(path) as kept:
            return dict(kept)
    edited: list[Edited] = []
    for owner in owners:
        edited += editor.edit(sources, owner)
    pictures = [each.picture for each in edited]
    parts = embed_parts(looker, squash_all(pictures, looker.frame_size))
    chunk = {name: describe(each, pictures) for name, each in describers.items()} | {
        "owners": np.array([each.owner for each in edited], np.int64),
        "others": np.array([each.other for each in edited], np.int64),
        "kinds": np.array([each.kind for each in edited], str),
        "parts": parts.vectors,
        "part_frames": parts.frames,
    }
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **chunk)
        partial.replace(path)
    return chunk


def describe(describer: Describer, pictures: Sequence[Image.Image]) -> Array:
    """At the describer's own size, so that no picture is scaled twice."""
    return np.concatenate(
        [
            describer.embed(squash_all(pictures[at : at + 64], describer.size))
            for at in range(0, len(pictures), 64)
        ]
    )


def squash_all(pictures: Sequence[Image.Image], size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.stack([squash(np.asarray(each), size) for each in pictures])


def report(
    sources: Sequence[Source], similarity: dict[str, Array], asked: Asked, names: Sequence[str]
) -> None:
    count = next(iter(similarity.values())).shape[1]
    own, film, no_contest = exclude(sources, asked, count)
    is_film = np.array([each.is_film for each in sources])[asked.owners]
    rows = {kind: asked.kinds == kind for kind in names}
    rows |= {
        title: chosen
        for title, chosen in {
            "edits fitted on": np.isin(asked.kinds, list(EDITS)),
            "edits never seen": np.isin(asked.kinds, list(NEVER_FITTED)),
        }.items()
        if chosen.any() and set(names) == {*EDITS, *NEVER_FITTED}
    }
    if is_film.any() and not is_film.all():
        rows |= {"photographs": ~is_film, "film": is_film}
    rows["all"] = np.ones(len(asked), bool)
    judged: dict[str, dict[str, Judged]] = {}
    for name, found in similarity.items():
        hits = np.where(no_contest & ~own, -2.0, found).argmax(axis=1) == asked.owners
        scores = np.where(film & ~own, -2.0, found)
        judged[name] = {
            title: Judged.of(hits[chosen], scores[chosen], own[chosen])
            for title, chosen in rows.items()
        }
    print_row("R@1", list(similarity))
    for title in rows:
        print_row(title, [each[title].recall() for each in judged.values()])
    print_row("\nmicro-AP", list(similarity))
    for title in rows:
        print_row(title, [each[title].micro_average_precision() for each in judged.values()])
    print_row("\ncosine", list(similarity))
    wrong = ~film & ~own
    limits = {name: float(np.quantile(each[wrong], 0.999)) for name, each in similarity.items()}
    print_row("unrelated, 99.9 %", list(limits.values()))
    print_row("matches, median", [float(np.median(each[own])) for each in similarity.values()])
    above = [float((each[own] > limits[name]).mean()) for name, each in similarity.items()]
    print_row("matches above", above)
    if "before" in judged:
        owners = np.array([each.name for each in sources])[asked.owners]
        groups = {title: owners[chosen].tolist() for title, chosen in rows.items()}
        report_differences(judged["before"], judged["lite0"], groups, names)


def exclude(
    sources: Sequence[Source], asked: Asked, count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """(edited, count) each: the right one; what micro-AP leaves out; what R@1 leaves out."""
    same = same_film(sources)
    mixed_in = same[asked.others] & (asked.others != NOBODY)[:, None]
    found = []
    for among in (
        np.eye(len(sources), dtype=bool)[asked.owners],
        same[asked.owners] | mixed_in,
        find_no_contest(sources)[asked.owners] | mixed_in,
    ):
        found.append(np.pad(among, ((0, 0), (0, count - len(sources)))))
    return found[0], found[1], found[2]


def report_differences(
    old: dict[str, Judged],
    new: dict[str, Judged],
    groups: dict[str, list[str]],
    edits: Sequence[str],
) -> None:
    """By how much what ships is better, and how sure that is."""
    print(f"\n{'lite0 - before':18s}{'R@1 [95 %]':>28s}{'micro-AP [95 %]':>28s}")
    worse: dict[str, list[str]] = {"surely": [], "maybe": []}
    for title, names in groups.items():
        recall, precision = compare(old[title], new[title], names)
        print(f"{title:18s}{recall!s:>28s}{precision!s:>28s}")
        if title in edits and recall.low < -TOLERANCE:
            worse["surely" if recall.high < -TOLERANCE else "maybe"].append(title)
    for how, kinds in worse.items():
        print(f"edits worse by more than {TOLERANCE} in R@1, {how}: {', '.join(kinds) or 'none'}")


def print_row(title: str, values: Sequence[str] | Sequence[float]) -> None:
    cells = (each if isinstance(each, str) else f"{each:.3f}" for each in values)
    print(f"{title:18s}" + "".join(f"{each:>15s}" for each in cells))


if __name__ == "__main__":
    main()
