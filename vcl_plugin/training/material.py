"""The frames that made-up training pairs are cut from, as descriptors, ready to be looked up.

In: sources of one split and a descriptor bank. Out: `Material`, which turns views into arrays.
`fill_material` is what a new descriptor costs once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import unit
from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.fitting.material import Split
from retrieval.plugins import Array
from vcl_plugin.evaluation.bank import Bank, fill_bank
from vcl_plugin.evaluation.composition import View
from vcl_plugin.evaluation.edits import EDITS
from vcl_plugin.evaluation.sources import (
    VIEWS_PER_SECOND,
    Source,
    find_photos,
    find_videos,
    make_cards,
)

TAKES = 3  # see `sources.read_views`


def find_sources(images: Path, videos: Path, split: Split) -> list[Source]:
    """Photographs and footage of one split, and the cards that belong to all of them."""
    found = [each for each in [*find_photos(images), *find_videos(videos)] if each.split == split]
    return [*found, *make_cards()]


def choose_edits(source: str, count: int) -> list[str]:
    """The edits a source is embedded under: fixed by its name, and a larger count only adds.

    Every frame under every edit would take an hour to embed and each source is seen thousands of
    times anyway; what matters is that all edits occur and that no two sources have the same ones.
    """
    names = sorted(name for name in EDITS if name != "none")
    order = np.random.default_rng(zlib.crc32(source.encode())).permutation(len(names))
    return [names[place] for place in order[:count]]


def training_views(sources: Sequence[Source], edits_per_source: int) -> list[View]:
    """All views a made-up pair may show. Clean frames are shown at whole seconds only, the frames
    of a copy at half seconds too, for nobody starts a copy on a second of the original."""
    views: list[View] = []
    for source in sources:
        halves = source.seconds * VIEWS_PER_SECOND
        takes = TAKES if source.kind == "photo" else 1
        for take in range(takes):
            views += [View(source.name, take, half) for half in range(0, halves, VIEWS_PER_SECOND)]
        if source.kind in ("photo", "video"):
            for edit in choose_edits(source.name, edits_per_source):
                views += [View(source.name, 0, half, edit) for half in range(halves)]
    return views


class Material:
    """Descriptors of the views of `training_views`, by number."""

    def __init__(self, sources: Sequence[Source], edits_per_source: int, bank: Bank) -> None:
        self.sources = list(sources)
        self.edits_per_source = edits_per_source
        views = training_views(sources, edits_per_source)
        self.vectors: Array = bank.lookup(views)
        self._places = {view: number for number, view in enumerate(views)}
        scenes: dict[tuple[str, int, str], int] = {}  # what one source shows, filmed one way
        self._scenes = np.array(
            [scenes.setdefault((each.source, each.take, each.edit), len(scenes)) for each in views]
        )
        sums = np.zeros((len(scenes), self.vectors.shape[1]), np.float32)
        np.add.at(sums, self._scenes, self.vectors)
        self._means = sums / np.bincount(self._scenes)[:, None]
        self._edits = {
            each.name: choose_edits(each.name, edits_per_source)
            for each in sources
            if each.kind in ("photo", "video")
        }

    def lookup(self, views: Sequence[View], stillness: Mapping[str, float] | None = None) -> Array:
        """(views, 256). An edit that a source lacks is answered by one of those it has, always the
        same one, so that a copy across several sources may change its edit where the shot does.

        `stillness` of a source moves its frames towards the mean of their scene: 0 leaves them, 1
        would be a photograph. A copy stays a copy, because original and copy are moved alike.
        """
        numbers = self.numbers(views)
        vectors: Array = self.vectors[numbers]
        if not stillness:
            return vectors
        share = np.array([[stillness.get(each.source, 0.0)] for each in views], np.float32)
        vectors = (1 - share) * vectors + share * self._means[self._scenes[numbers]]
        return unit(vectors)

    def numbers(self, views: Sequence[View]) -> NDArray[np.intp]:
        return np.fromiter((self._number(view) for view in views), np.intp, len(views))

    def _number(self, view: View) -> int:
        number = self._places.get(view)
        if number is not None:
            return number
        edits = self._edits.get(view.source)
        if edits:
            edit = edits[zlib.crc32(view.edit.encode()) % len(edits)]
            number = self._places[view._replace(edit=edit, take=0)]
        else:  # a card in the middle of a copy stays as it is
            whole = view.half - view.half % VIEWS_PER_SECOND
            number = self._places[View(view.source, 0, whole)]
        self._places[view] = number
        return number


def fill_material(
    images: Path,
    videos: Path,
    bank_root: Path,
    edits_per_source: int,
    split: Split = "train",
    descriptor: str | None = None,
    processes: int = 1,
    on_views: Callable[[int, int], None] = lambda done, total: None,
) -> Material:
    """The material of a split; what the bank lacks for the descriptor of today is embedded now."""
    sources = find_sources(images, videos, split)
    fingerprint = load_descriptor(descriptor, threads=1).fingerprint.key
    bank = Bank(bank_root, fingerprint, sources)
    views = training_views(sources, edits_per_source)
    missing = len(bank.missing(views))
    done = len(views) - missing
    on_views(done, len(views))

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_views(done, len(views))

    if missing:
        fill_bank(bank, views, descriptor, processes, advance)
    return Material(sources, edits_per_source, bank)
