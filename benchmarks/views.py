"""What parts of pictures bring: copies shown small or on half a screen, found with and without.

Run: python benchmarks/views.py --images FOLDER --videos FOLDER [--uploads 24]

Each upload shows 15 seconds of a reference inside other footage: as a small picture in the picture
or on one half of a split screen. Innocent uploads are made the same way from footage that no
reference has. All are compared with the same references, by each method, once with whole frames
only and once through the parts that the tracker found; a segment that meets the planted one is a
find, any other one a false alarm. Footage as it is shows what looking for parts costs: CPU seconds
of describing with and without, measured in turn in one process.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from retrieval.describe.descriptors import Descriptor, load_descriptor
from retrieval.describe.pictures import flag_low_information, squash
from retrieval.describe.scenes import SceneWatcher
from retrieval.describe.tracker import PartTracker
from retrieval.describe.views import NO_VIEWS, join_views
from retrieval.pairing import localize_views
from retrieval.plugins import Localizer, load_localizer
from retrieval.records import Segment, Span
from retrieval.store import StoredDescriptors
from vcl_plugin.evaluation.sources import (
    FRAME_SIZE,
    VIEWS_PER_SECOND,
    Source,
    find_photos,
    find_videos,
    read_views,
)

COPIED, UPLOAD, REFERENCE = 15, 40, 60  # seconds
METHODS = ("tn", "transvcl")
LAYOUTS = ("inset", "beside", "above")
Frames = np.ndarray


@dataclass(frozen=True)
class Upload:
    """`truth` is the reference it copies, when in either video; None in an innocent one."""

    layout: str
    described: StoredDescriptors
    truth: tuple[int, Span, Span] | None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, help="Folder of photographs.")
    parser.add_argument("--videos", type=Path, required=True, help="Folder of footage.")
    parser.add_argument("--uploads", type=int, default=24, help="With a copy; as many without.")
    parser.add_argument("--references", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    draw = np.random.default_rng(0)
    sources = [*find_photos(arguments.images), *find_videos(arguments.videos)]
    draw.shuffle(sources)
    # What references show is in no upload but the planted copies.
    studio = Studio([each for each in sources if each.split == "test"], draw)
    other_studio = Studio([each for each in sources if each.split == "val"], draw)
    descriptor = load_descriptor(threads=1)

    films = [studio.shoot(REFERENCE) for _ in range(arguments.references)]
    references = [describe(descriptor, film) for film in films]
    uploads = []
    for number in range(2 * arguments.uploads):
        layout = LAYOUTS[number % len(LAYOUTS)]
        is_copy = number < arguments.uploads
        uploads.append(make_upload(other_studio, films, descriptor, layout, is_copy))
    found = sum(len(each.described.views) > 0 for each in uploads)
    print(f"{len(uploads)} uploads, parts found in {found}; {len(references)} references")
    for name in arguments.methods:
        judge(name, load_localizer(name), uploads, references)
    measure_cost([each for each in sources if each.kind == "video"], descriptor)


class Studio:
    """Cuts films from sources, each used once before any is used again."""

    def __init__(self, sources: list[Source], draw: np.random.Generator) -> None:
        self.sources, self.draw = sources, draw
        self.place = 0

    def shoot(self, seconds: int) -> Frames:
        frames: list[Frames] = []
        while len(frames) < seconds:
            source = self.sources[self.place % len(self.sources)]
            self.place += 1
            length = min(int(self.draw.integers(4, 10)), source.seconds)
            views = read_views(source, [0])[0]
            frames += views[: length * VIEWS_PER_SECOND : VIEWS_PER_SECOND]
        return np.stack(frames[:seconds])


def make_upload(
    studio: Studio, films: Sequence[Frames], descriptor: Descriptor, layout: str, is_copy: bool
) -> Upload:
    outer = studio.shoot(UPLOAD)
    at = int(studio.draw.integers(0, UPLOAD - COPIED + 1))
    number = int(studio.draw.integers(len(films)))
    start = int(studio.draw.integers(0, REFERENCE - COPIED + 1))
    inner = films[number][start : start + COPIED] if is_copy else studio.shoot(COPIED)
    outer[at : at + COPIED] = compose(layout, outer[at : at + COPIED], inner, studio.draw)
    frames = np.stack([squash(frame, descriptor.frame_size) for frame in outer])
    spans = Span(float(at), float(at + COPIED)), Span(float(start), float(start + COPIED))
    truth = (number, *spans) if is_copy else None
    return Upload(layout, describe(descriptor, frames, has_parts=True), truth)


def compose(layout: str, outer: Frames, inner: Frames, draw: np.random.Generator) -> Frames:
    width, height = FRAME_SIZE
    if layout == "inset":
        scale = draw.uniform(0.35, 0.6)
        wide, high = round(scale * width), round(scale * height)
        left, top = int(draw.integers(0, width - wide)), int(draw.integers(0, height - high))
    else:
        wide, high = (width // 2, height) if layout == "beside" else (width, height // 2)
        side = int(draw.integers(0, 2))
        left, top = (
            (side * (width - wide), 0) if layout == "beside" else (0, side * (height - high))
        )
    mixed = outer.copy()
    if layout != "inset":  # the other half shows the rest of the footage, squeezed too
        for frame, whole in zip(mixed, outer, strict=True):
            half = squash(whole, (wide, high))
            frame[:high, :wide] = half
            frame[height - high :, width - wide :] = half
    for frame, film in zip(mixed, inner, strict=True):
        frame[top : top + high, left : left + wide] = squash(film, (wide, high))
    return mixed


def describe(
    descriptor: Descriptor, frames: Frames, has_parts: bool = False, has_scenes: bool = False
) -> StoredDescriptors:
    parts, scenes = PartTracker(descriptor), SceneWatcher(descriptor)
    rows, flags = [], []
    for batch in np.array_split(frames, max(1, len(frames) // 16)):
        rows.append(descriptor.embed(batch))
        flags.append(flag_low_information(batch))
        if has_parts:
            parts.watch(batch)
        if has_scenes:
            scenes.watch(batch, rows[-1], flags[-1])
    views = join_views([parts.finish(), scenes.finish()])
    return StoredDescriptors(np.concatenate(rows), np.concatenate(flags), None, views)


def judge(
    name: str,
    localizer: Localizer,
    uploads: Sequence[Upload],
    references: Sequence[StoredDescriptors],
) -> None:
    for has_parts in (False, True):
        hits: Counter[str] = Counter()
        alarms: Counter[str] = Counter()
        for upload in uploads:
            query = upload.described if has_parts else replace(upload.described, views=NO_VIEWS)
            found = localize_views(localizer, query, references)
            true = [is_found(segments, number, upload) for number, segments in enumerate(found)]
            hits[upload.layout] += any(true)
            kind = "innocent" if upload.truth is None else "copying"
            alarms[kind] += sum(
                len(segments) > 0 and not (upload.truth and upload.truth[0] == number)
                for number, segments in enumerate(found)
            )
        total = Counter(each.layout for each in uploads if each.truth)
        shares = ", ".join(f"{each} {hits[each]} of {total[each]}" for each in LAYOUTS)
        print(
            f"{name:18} {'with parts' if has_parts else 'whole only'}: found {shares}; "
            f"wrong references claimed: {alarms['copying']} by copying uploads, "
            f"{alarms['innocent']} by innocent ones"
        )


def is_found(segments: Sequence[Segment], number: int, upload: Upload) -> bool:
    if upload.truth is None or upload.truth[0] != number:
        return False
    _, query, reference = upload.truth
    return any(
        each.query.overlap(query) >= 0.5 * query.seconds
        and each.reference.overlap(reference) >= 0.5 * reference.seconds
        for each in segments
    )


def measure_cost(footage: Sequence[Source], descriptor: Descriptor, seconds: int = 25) -> None:
    """CPU time of describing footage as it is, in turn whole, with parts, and with scenes."""
    films = [read_views(each, [0])[0][: 2 * seconds : VIEWS_PER_SECOND] for each in footage]
    ways = {
        "whole frames": {},
        "parts": {"has_parts": True},
        "scenes": {"has_scenes": True},
    }
    spent, rows = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
    for film in films:
        frames = np.stack([squash(each, descriptor.frame_size) for each in film])
        for way, options in ways.items():
            started = time.process_time()
            described = describe(descriptor, frames, **options)
            spent[way] += time.process_time() - started
            rows[way] += len(described.views)
    print(f"{len(films)} films as they are, {sum(map(len, films))} frames; describing them with")
    for way in ("parts", "scenes"):
        print(
            f"  {way}: {spent[way] / spent['whole frames']:.3f} times the cost of whole frames, "
            f"{rows[way]} views described"
        )


if __name__ == "__main__":
    main()
