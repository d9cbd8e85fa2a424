"""How often the right reference is among the first k candidates, by the length of the copy.

Run: python benchmarks/recall.py --images FOLDER --videos FOLDER --bank FOLDER [--half report]

A thousand references are cut together from photographs under a moving camera and from footage, one
frame a second; many carry a title card or black. Uploads of about a minute show 3 to 60 seconds of
one of them, under an edit, at another speed now and then, between footage that no reference has.
What is copied comes from sources that no other reference shows, so there is one right answer. Each
way of making candidates sees the same uploads; `frames` compares every second with every second and
is the ceiling.

Photographs that the network was trained on only fill; those it never saw are copied. Half of them
are there to tune on (`--half tune`), the other to report. The bank keeps descriptors for next time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe import pictures, tracker
from retrieval.describe.descriptors import Descriptor, load_descriptor
from retrieval.describe.pictures import flag_low_information
from retrieval.describe.views import NO_VIEWS
from retrieval.index.candidates import propose_pairs
from retrieval.index.local import VideoIndex
from retrieval.index.pooling import pool_query, weigh_frames
from retrieval.plugins import Array, Pooled, Pooler, load_pooler
from retrieval.store import Store, StoredDescriptors
from vcl_plugin.evaluation.bank import Bank, fill_bank
from vcl_plugin.evaluation.composition import View
from vcl_plugin.evaluation.edits import EDITS, edit_frame
from vcl_plugin.evaluation.sources import (
    VIEWS_PER_SECOND,
    Source,
    find_photos,
    find_videos,
    make_cards,
    read_views,
)

LENGTHS = (3, 5, 10, 20, 60)
# Uploads of each copied reference; few are enough to tune on.
COPIES = {
    "tune": {3: 1, 5: 1, 10: 1, 20: 1, 60: 1},
    "report": {3: 2, 5: 2, 10: 2, 20: 2, 60: 1},
}
RANKS = (1, 5, 10, 20, 50)
STRETCH = 60  # seconds of a copied reference that no other one shows
UPLOAD = 60  # seconds of an upload, and of the longest one 30 more
Timeline = list[View]
Frame = np.ndarray
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Copy:
    """An upload: what it shows second by second, and whose footage that is."""

    name: str
    timeline: Timeline
    target: int
    seconds: int
    edit: str
    half: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, help="Folder of photographs.")
    parser.add_argument("--videos", type=Path, required=True, help="Folder of footage.")
    parser.add_argument("--bank", type=Path, required=True, help="Where descriptors are kept.")
    parser.add_argument("--references", type=int, default=1000)
    parser.add_argument("--half", choices=("tune", "report"), default="report")
    parser.add_argument("--poolers", nargs="+", default=["mean", "class_token"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="Write every upload's ranks there.")
    arguments = parser.parse_args()

    sources = [*find_photos(arguments.images), *find_videos(arguments.videos), *make_cards()]
    world = World(sources, arguments.references, np.random.default_rng(arguments.seed))
    descriptor = load_descriptor(threads=1)
    key = descriptor.fingerprint.key
    bank = Bank(arguments.bank, key, sources)
    clean = {view for timeline in world.references for view in timeline}
    clean |= {view for copy in world.copies for view in copy.timeline if view.edit == "none"}
    fill_bank(bank, sorted(clean), processes=arguments.processes, on_views=say("references"))
    references = [describe_reference(bank, timeline) for timeline in world.references]
    store = Store(arguments.bank / "uploads")
    copies = [copy for copy in world.copies if copy.half == arguments.half]
    advance = say("uploads")
    uploads = [describe_upload(copy, bank, store, descriptor, advance) for copy in copies]

    print(
        f"{len(references)} references, {sum(each.frames for each in references)} seconds; "
        f"{len(copies)} uploads ({arguments.half} half), descriptor {key}"
    )
    ranks = {}
    for name in [*arguments.poolers, "frames"]:
        pooler = FramePooler() if name == "frames" else load_pooler(name)
        index = fill_index(pooler, references)
        for has_views in (False, True):
            label = f"{name} + views" if has_views else name
            asked = uploads if has_views else [replace(each, views=NO_VIEWS) for each in uploads]
            ranks[label] = rank_targets(index, pooler, asked, copies)
        seconds = sum(each.frames for each in references)
        print(f"{name}: {8 * index.vectors / seconds:.2f} vectors for 8 seconds of video")
    print_table(ranks, copies)
    if arguments.json:
        rows = [
            {"upload": copy.name, "seconds": copy.seconds, "edit": copy.edit}
            | {label: found[number] for label, found in ranks.items()}
            for number, copy in enumerate(copies)
        ]
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


class FramePooler:
    """Every second by itself: the exact search that all others are measured against."""

    name = fingerprint = "frames"

    def pool(self, descriptors: Array, low_information: Flags | None = None) -> Pooled:
        seconds = np.arange(len(descriptors), dtype=np.float32)
        spans = np.stack([seconds, seconds + 1], axis=1)
        weights = weigh_frames(len(descriptors), low_information).astype(np.float32)
        return Pooled(unit(descriptors), spans, weights)


def fill_index(pooler: Pooler, references: Sequence[StoredDescriptors]) -> VideoIndex:
    index = VideoIndex(pooler.fingerprint)
    for number, each in enumerate(references):
        index.add(str(number), pooler.pool(each.descriptors, each.low_information))
    return index


def rank_targets(
    index: VideoIndex, pooler: Pooler, uploads: Sequence[StoredDescriptors], copies: Sequence[Copy]
) -> list[int]:
    """The rank of the copied reference for each upload; one more than the last where it is none."""
    found = []
    for upload, copy in zip(uploads, copies, strict=True):
        pairs = propose_pairs(index, "upload", pool_query(pooler, upload), RANKS[-1])
        places = [pair.rank for pair in pairs if pair.reference_id == str(copy.target)]
        found.append(places[0] if places else RANKS[-1] + 1)
    return found


def print_table(ranks: Mapping[str, Sequence[int]], copies: Sequence[Copy]) -> None:
    """Recall at each rank, a line a way and length; and where the first 20 miss, by edit."""
    lengths = np.array([copy.seconds for copy in copies])
    print(f"\n{'':20}{'copied':>8}{'uploads':>9}" + "".join(f"{f'R@{k}':>8}" for k in RANKS))
    for label, found in ranks.items():
        for seconds in LENGTHS:
            rows = np.asarray(found)[lengths == seconds]
            shares = "".join(f"{(rows <= k).mean():8.3f}" for k in RANKS)
            print(f"{label:20}{f'{seconds} s':>8}{len(rows):9}{shares}")
    for label, found in ranks.items():
        missed = Counter(c.edit for rank, c in zip(found, copies, strict=True) if rank > 20)
        names = ", ".join(f"{edit} {count}" for edit, count in missed.most_common())
        print(f"{label}: not among 20: {names or 'none'}")


class World:
    """References and uploads, as timelines of views; the same seed gives the same world."""

    def __init__(self, sources: Sequence[Source], count: int, draw: np.random.Generator) -> None:
        self.draw = draw
        real = [each for each in sources if each.kind in ("photo", "video")]
        self.cards = [each for each in sources if each.kind in ("card", "black")]
        self.pool = scenes(each for each in real if each.split == "train" and not is_filler(each))
        self.filler = scenes(each for each in real if each.split == "train" and is_filler(each))
        self.references: list[Timeline] = []
        self.copies: list[Copy] = []
        for half in ("tune", "report"):
            # Whole photographs overlap their own halves, so only the halves are scenes here.
            own = scenes(each for each in real if each.split != "train" and half_of(each) == half)
            own = [scene for scene in own if scene[0].kind == "video" or scene[1] > 0]
            self.draw.shuffle(own)
            while (stretch := self._cut(own)) is not None:
                self._add_target(stretch, half)
        if count < len(self.references):
            sys.exit(f"{len(self.references)} references are copied; ask for more than that")
        while len(self.references) < count:
            self.references.append(self._fill(int(draw.integers(40, 121))))

    def _add_target(self, stretch: Timeline, half: str) -> None:
        before, after = (self._fill(int(self.draw.integers(0, 41))) for _ in range(2))
        number = len(self.references)
        self.references.append([*before, *stretch, *after])
        for seconds in LENGTHS:
            for again in range(COPIES[half][seconds]):
                edit = str(self.draw.choice([name for name in EDITS if name != "none"]))
                name = f"{half}-{number}-{seconds}-{again}"
                timeline = self._upload(stretch, seconds, edit)
                self.copies.append(Copy(name, timeline, number, seconds, edit, half))

    def _upload(self, stretch: Timeline, seconds: int, edit: str) -> Timeline:
        """`seconds` of the upload show the stretch, one in three faster or slower."""
        speed = float(self.draw.uniform(0.75, 1.33)) if self.draw.random() < 0.33 else 1.0
        speed = min(speed, STRETCH / seconds)
        needed = min(round(seconds * speed), STRETCH)
        first = int(self.draw.integers(0, STRETCH - needed + 1))
        phase = int(self.draw.integers(0, VIEWS_PER_SECOND))
        shown = []
        for second in range(seconds):
            place = first + int(second * speed * VIEWS_PER_SECOND + phase) / VIEWS_PER_SECOND
            view = stretch[min(int(place), first + needed - 1)]
            shown.append(view._replace(half=view.half + int(place * 2) % 2, edit=edit))
        around = self._fill(max(UPLOAD, seconds + 30) - seconds, filler=True)
        place = int(self.draw.integers(0, len(around) + 1))
        return [*around[:place], *shown, *around[place:]]

    def _fill(self, seconds: int, filler: bool = False) -> Timeline:
        """Shots of scenes that may come back elsewhere; one video in three has a card or black."""
        pool = self.filler if filler else self.pool
        timeline: Timeline = []
        while len(timeline) < seconds:
            scene = pool[int(self.draw.integers(len(pool)))]
            timeline += self._shot(scene)
        timeline = timeline[:seconds]
        if seconds >= 20 and self.draw.random() < 0.33:
            card = self.cards[int(self.draw.integers(len(self.cards)))]
            length = int(self.draw.integers(2, 6))
            place = int(self.draw.integers(0, seconds - length))
            timeline[place : place + length] = [View(card.name, 0, 0)] * length
        return timeline

    def _cut(self, own: list[tuple[Source, int]]) -> Timeline | None:
        """A stretch of scenes that are used up by it; None when they are."""
        timeline: Timeline = []
        while len(timeline) < STRETCH:
            if not own:
                return None
            timeline += self._shot(own.pop())
        return timeline[:STRETCH]

    def _shot(self, scene: tuple[Source, int]) -> Timeline:
        source, take = scene
        longest = 9 if source.kind == "photo" else 20
        seconds = min(int(self.draw.integers(3, longest + 1)), source.seconds)
        start = int(self.draw.integers(0, source.seconds - seconds + 1))
        first = start * VIEWS_PER_SECOND
        return [View(source.name, take, first + i * VIEWS_PER_SECOND) for i in range(seconds)]


def scenes(sources: Iterator[Source]) -> list[tuple[Source, int]]:
    """Of a photograph the whole and its two halves; of footage what there is, each group once."""
    found: list[tuple[Source, int]] = []
    groups: set[str] = set()
    for source in sources:
        if source.kind == "photo":
            found += [(source, take) for take in (0, 1, 2)]
        elif source.group not in groups:
            groups.add(source.group)
            found.append((source, 0))
    return found


def half_of(source: Source) -> str:
    return "tune" if place_of("half", source) < 0.5 else "report"


def is_filler(source: Source) -> bool:
    return place_of("filler", source) < 0.2


def place_of(what: str, source: Source) -> float:
    return int(hashlib.sha256(f"{what}:{source.group}".encode()).hexdigest()[:8], 16) / 2**32


def say(what: str) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        print(f"\r{what}: {done} frames described", end="", file=sys.stderr, flush=True)

    return advance


def describe_reference(bank: Bank, timeline: Timeline) -> StoredDescriptors:
    flags = np.array([bank.sources[view.source].kind in ("card", "black") for view in timeline])
    return StoredDescriptors(bank.lookup(timeline), flags, None)


def describe_upload(
    copy: Copy, bank: Bank, store: Store, descriptor: Descriptor, advance: Callable[[int], None]
) -> StoredDescriptors:
    """The upload as the engine would describe it, parts of its pictures included."""
    rules = (tracker.INSPECT_EVERY, tracker.MIN_FINDS, tracker.MAX_PARTS)
    digest = hashlib.sha256(repr((copy, rules)).encode()).hexdigest()[:16]
    key = f"{descriptor.fingerprint.key}-{digest}"
    path = store.path_of(copy.name, key)
    if not path.exists():
        frames = render(copy.timeline, bank, descriptor.frame_size)
        edited = [number for number, view in enumerate(copy.timeline) if view.edit != "none"]
        whole = [view._replace(edit="none") for view in copy.timeline]
        whole = [view._replace(half=view.half - view.half % 2) for view in whole]
        vectors = np.zeros((len(frames), 256), np.float32)
        plain = [number for number in range(len(frames)) if number not in set(edited)]
        vectors[plain] = bank.lookup([whole[number] for number in plain])
        vectors[edited] = descriptor.embed(np.stack([frames[number] for number in edited]))
        watcher = tracker.PartTracker(descriptor)
        watcher.watch(np.stack(frames))
        flags = flag_low_information(np.stack(frames))
        store.write(copy.name, key, vectors, flags, watcher.finish())
        advance(len(frames))
    return store.read(path)


def render(timeline: Timeline, bank: Bank, size: tuple[int, int]) -> list[Frame]:
    """The frames at the size at which the engine's decoder would give them."""
    return [
        pictures.squash(
            edit_frame(read_scene(bank.sources[view.source], view.take)[view.half], view.edit), size
        )
        if view.edit != "none"
        else plain_frames(bank.sources[view.source], view.take, size)[view.half // VIEWS_PER_SECOND]
        for view in timeline
    ]


@lru_cache(maxsize=16)  # of one copy; its scenes are no other's
def read_scene(source: Source, take: int) -> list[Frame]:
    return read_views(source, [take])[take]


@lru_cache(maxsize=512)  # footage between copies comes again and again
def plain_frames(source: Source, take: int, size: tuple[int, int]) -> list[Frame]:
    views = read_views(source, [take])[take][::VIEWS_PER_SECOND]
    return [pictures.squash(each, size) for each in views]


if __name__ == "__main__":
    main()
