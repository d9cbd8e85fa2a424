"""A benchmark folder built from real copy geometry and real frames.

In: label files, folders of images and videos, a seed. Out: a folder that `vcl evaluate` reads, with
`recipe.json` (what made it) and `details.json` (which edit and which kind each pair is).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.fitting.material import Split
from retrieval.errors import Refused
from vcl_plugin.evaluation.bank import Bank, fill_bank
from vcl_plugin.evaluation.composition import (
    NEGATIVES,
    Composed,
    Composer,
    Geometry,
    View,
    read_geometry,
)
from vcl_plugin.evaluation.folder import LabelledPair, label_key, write_folder
from vcl_plugin.evaluation.sources import find_photos, find_videos, make_cards


@dataclass(frozen=True)
class Order:
    """What to build. Sources, events and rows of another split are never touched."""

    geometry: tuple[Path, ...]
    images: Path
    videos: Path
    seed: int = 0
    split: Split = "test"
    copies: int = 300
    negatives: int = 300
    max_frames: int = 500


def make_benchmark(
    order: Order,
    out: Path,
    bank_root: Path,
    descriptor: str | None = None,
    processes: int = 1,
    on_views: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Build the folder and return its recipe. `on_views(done, total)` follows the embedding."""
    if (out / "pairs.csv").exists():
        raise Refused(f"{out} already holds a benchmark; remove it or name another folder")
    sources = [
        source
        for source in [*find_photos(order.images), *find_videos(order.videos)]
        if source.split == order.split
    ]
    sources += make_cards()
    pairs = compose_pairs(order, Composer(sources, np.random.default_rng(order.seed)))
    fingerprint = load_descriptor(descriptor, threads=1).fingerprint.key
    bank = Bank(bank_root, fingerprint, sources)
    views = list(dict.fromkeys(view for pair in pairs for view in _views(pair)))
    done = len(views) - len(bank.missing(views))
    on_views(done, len(views))

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_views(done, len(views))

    computed = fill_bank(bank, views, descriptor, processes, advance)
    labelled, features, details = [], {}, {}
    for number, pair in enumerate(pairs):
        query_id, reference_id = f"q{number:05d}", f"r{number:05d}"
        features[query_id] = bank.lookup(pair.query)
        features[reference_id] = bank.lookup(pair.reference)
        labelled.append(LabelledPair(query_id, reference_id, pair.truth, pair.topic))
        details[label_key(query_id, reference_id)] = dict(pair.facts)
    recipe = {
        **{name: _plain(value) for name, value in asdict(order).items()},
        "descriptor": fingerprint,
        "sources": len(sources),
        "views": len(views),
        "views_computed": computed,
        "kinds": dict(Counter(str(pair.facts["kind"]) for pair in pairs)),
    }
    write_folder(out, features, labelled)
    (out / "details.json").write_text(json.dumps(details), encoding="utf-8")
    (out / "recipe.json").write_text(json.dumps(recipe, indent=2), encoding="utf-8")
    return recipe


def compose_pairs(order: Order, composer: Composer) -> list[Composed]:
    """The pairs of an order: copies first, then negatives of each kind in turn."""
    rows = [
        row
        for path in order.geometry
        for row in read_geometry(path, order.max_frames)
        if row.split == order.split
    ]
    if len(rows) < order.copies:
        raise Refused(
            f"the {order.split} split of the labels has {len(rows)} usable rows, {order.copies} "
            f"were asked for; add a --geometry file or ask for fewer"
        )
    chosen = _draw_rows(rows, order.copies, composer.draw)
    pairs = [composer.compose_copy(row) for row in chosen]
    for number, row in enumerate(_draw_rows(rows, order.negatives, composer.draw)):
        pairs.append(composer.compose_negative(row, NEGATIVES[number % len(NEGATIVES)]))
    return pairs


def _draw_rows(rows: Sequence[Geometry], count: int, draw: np.random.Generator) -> list[Geometry]:
    places = draw.choice(len(rows), count, replace=count > len(rows))
    return [rows[int(place)] for place in places]


def _views(pair: Composed) -> list[View]:
    return [*pair.query, *pair.reference]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.name if isinstance(value, Path) else value
