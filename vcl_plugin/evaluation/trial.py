"""A trial on films: references and uploads are made, described, searched and compared; then judged.

In: a `Plan` of uploads (`films`) and a folder. Out: files, descriptors and results in that folder,
and for every method what it found of each upload. Everything that the engine does with a video is
done by the engine's own functions; only rows and messages are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retrieval.describe.descriptors import Descriptor
from retrieval.description import describe_video
from retrieval.index.candidates import propose_pairs
from retrieval.index.local import VideoIndex
from retrieval.index.pooling import pool_query
from retrieval.pairing import localize_views
from retrieval.plugins import Localizer, Pooler
from retrieval.records import Segment
from retrieval.settings import Settings
from retrieval.store import Store, StoredDescriptors
from vcl_plugin.evaluation.films import Plan, Upload, render_reference, render_upload

OnStep = Callable[[str, int, int], None]  # what, done, of how many

QUICK, SLOW = 0.7, 0.9  # mean cosine of neighbouring seconds: of quick footage below, still above


@dataclass(frozen=True)
class Finding:
    """What one method found of one upload, held against the truth."""

    upload: str
    kind: str
    families: tuple[str, ...]
    seconds: float
    speed: float
    is_reversed: bool
    pace: str
    is_proposed: bool  # the copied reference was among the candidates
    is_found: bool
    overlap: float  # the best intersection over union of two rectangles
    off: float | None  # seconds by which the worst end of that segment is off
    false: int  # segments that meet no true one


class Trial:
    """One folder: `references/`, `uploads/`, `described/`; what is there already is kept."""

    def __init__(
        self, folder: Path, plan: Plan, descriptor: Descriptor, settings: Settings
    ) -> None:
        self.folder, self.plan = folder, plan
        self.descriptor, self.settings = descriptor, settings
        self.store = Store(folder / "described")
        self.references = {
            f"{number:04d}-{clip.source.stem}": clip for number, clip in enumerate(plan.references)
        }
        self.by_source = {clip.source: name for name, clip in self.references.items()}

    def prepare(self, on_step: OnStep = lambda what, done, total: None) -> None:
        """Make every file and describe it."""
        steps = [*self.references, *(each.name for each in self.plan.uploads)]
        for done, name in enumerate(steps):
            on_step("files", done, len(steps))
            self.read(name)
        on_step("files", len(steps), len(steps))

    def read(self, name: str) -> StoredDescriptors:
        key = self.descriptor.fingerprint.key
        path = self.store.path_of(name, key)
        if not path.exists():
            described, _ = describe_video(self._render(name), self.descriptor, self.settings)
            self.store.write(
                name, key, described.descriptors, described.low_information, described.views
            )
        return self.store.read(path, key)

    def _render(self, name: str) -> Path:
        is_reference = name in self.references
        path = self.folder / ("references" if is_reference else "uploads") / f"{name}.mp4"
        if path.exists():
            return path
        new = path.with_suffix(".part.mp4")  # a half-made file must not be taken for a whole one
        if is_reference:
            render_reference(self.references[name], new)
        else:
            render_upload(next(each for each in self.plan.uploads if each.name == name), new)
        return new.replace(path)

    def propose(self, pooler: Pooler) -> dict[str, list[str]]:
        """Candidates of each upload, best first."""
        index = VideoIndex(pooler.fingerprint)
        for name in self.references:
            stored = self.read(name)
            index.add(name, pooler.pool(stored.descriptors, stored.low_information))
        return {
            each.name: [
                found.reference_id
                for found in propose_pairs(
                    index, each.name, pool_query(pooler, self.read(each.name)), self.settings.top_k
                )
            ]
            for each in self.plan.uploads
        }

    def judge(
        self,
        localizer: Localizer,
        candidates: dict[str, list[str]],
        on_step: OnStep = lambda what, done, total: None,
    ) -> tuple[list[Finding], float]:
        """A finding for each upload, and the CPU seconds of all comparisons."""
        findings, spent = [], 0.0
        for done, upload in enumerate(self.plan.uploads):
            on_step(localizer.name, done, len(self.plan.uploads))
            names = candidates[upload.name]
            query, references = self.read(upload.name), [self.read(each) for each in names]
            started = time.process_time()
            found = localize_views(localizer, query, references)
            spent += time.process_time() - started
            pairs = [(name, each) for name, row in zip(names, found, strict=True) for each in row]
            findings.append(self._hold(upload, pairs, names))
        on_step(localizer.name, len(self.plan.uploads), len(self.plan.uploads))
        return findings, spent

    def _hold(
        self, upload: Upload, found: Sequence[tuple[str, Segment]], names: Sequence[str]
    ) -> Finding:
        truth = [(self.by_source[path], segment) for path, segment in upload.truth]
        right = [
            (overlap(segment, true), worst_end(segment, true))
            for name, segment in found
            for known, true in truth
            if name == known and overlap(segment, true) > 0
        ]
        false = sum(
            not any(name == known and overlap(segment, true) > 0 for known, true in truth)
            for name, segment in found
        )
        best = max(right, default=(0.0, None))
        shown = upload.shown
        return Finding(
            upload.name,
            upload.kind,
            tuple(step.family for step in shown.steps) or ("none",),
            shown.clip.seconds,
            shown.clip.speed,
            shown.clip.is_reversed,
            self._pace(truth[0][0]) if truth else "",
            all(known in names for known, _ in truth),
            bool(right),
            best[0],
            best[1],
            false,
        )

    def _pace(self, name: str) -> str:
        rows = self.read(name).descriptors
        if len(rows) < 2:
            return "still"
        near = float(np.mean((rows[1:] * rows[:-1]).sum(axis=1)))
        return "quick" if near < QUICK else "slow" if near < SLOW else "still"


def overlap(one: Segment, other: Segment) -> float:
    """Intersection over union of the two as rectangles of query and reference time."""
    both = one.query.overlap(other.query) * one.reference.overlap(other.reference)
    areas = [each.query.seconds * each.reference.seconds for each in (one, other)]
    return both / (sum(areas) - both)


def worst_end(found: Segment, true: Segment) -> float:
    return max(abs(one - other) for one, other in zip(found.box, true.box, strict=True))


def write_truth(plan: Plan, path: Path) -> None:
    """What each upload holds, for other programs."""
    rows = [
        {
            "upload": each.name,
            "kind": each.kind,
            "crf": each.crf,
            "steps": [[step.family, step.strength] for cut in each.cuts for step in cut.steps],
            "copies": [{"reference": str(path), **seg.as_dict()} for path, seg in each.truth],
        }
        for each in plan.uploads
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


Table = tuple[str, list[str], list[list[object]]]  # title, columns, rows
LENGTHS = ((0, 5), (5, 10), (10, 20), (20, 60))


def tabulate(results: Mapping[str, tuple[Sequence[Finding], float]]) -> list[Table]:
    """All methods on one line each; then the share of copies found well, by what they are like."""
    columns = ["method", "copies", "proposed", "found", "IoU > .5", "ends 1 s", "ends 2 s"]
    columns += ["innocent", "false segments", "CPU s"]
    lines: list[list[object]] = []
    for name, (findings, spent) in results.items():
        copies = [each for each in findings if each.kind == "copy"]
        line: list[object] = [name, len(copies), sum(each.is_proposed for each in copies)]
        line += [sum(each.is_found for each in copies), sum(each.overlap > 0.5 for each in copies)]
        line += [sum(_is_within(each, limit) for each in copies) for limit in (1.0, 2.0)]
        false = sum(each.false for each in findings)
        lines.append([*line, len(findings) - len(copies), false, round(spent, 1)])
    tables: list[Table] = [("all uploads", columns, lines)]
    for title, classify in CLASSES.items():
        groups: dict[str, dict[str, list[bool]]] = {}
        for name, (findings, _) in results.items():
            for each in findings:
                for label in classify(each) if each.kind == "copy" else ():
                    groups.setdefault(label, {}).setdefault(name, []).append(each.overlap > 0.5)
        rows: list[list[object]] = [
            [label, len(next(iter(found.values()))), *(sum(found[name]) for name in results)]
            for label, found in sorted(groups.items())
        ]
        tables.append(
            (f"copies found with IoU > .5, by {title}", [title, "copies", *results], rows)
        )
    return tables


def _is_within(each: Finding, limit: float) -> bool:
    return each.off is not None and each.off <= limit


def _length_of(each: Finding) -> tuple[str]:
    for low, high in LENGTHS:
        if low <= each.seconds < high:
            return (f"{low:2d} to {high} s",)
    return (f"{LENGTHS[-1][1]} s and more",)


def _speed_of(each: Finding) -> tuple[str]:
    if each.is_reversed:
        return ("reversed",)
    if each.speed < 0.8:
        return ("slower than .8",)
    return ("faster than 1.25",) if each.speed > 1.25 else ("as it was",)


CLASSES: dict[str, Callable[[Finding], tuple[str, ...]]] = {
    "edit": lambda each: each.families,
    "length": _length_of,
    "speed": _speed_of,
    "pace": lambda each: (each.pace,),
}
