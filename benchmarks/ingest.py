"""How fast video becomes descriptors, against the bare cost of the two libraries that do the work.

Run: python benchmarks/ingest.py [--video FILE ...] [--seconds 600] [--memory] [--before TREE]

Bare cost, in one process and one thread: PyAV decodes every frame, takes the frame of each second
and scales it; then ONNX Runtime runs the network on those frames. Ours: the guarded child decodes
what it must while this process describes, with one thread each. Both are measured in one run on
the same files, the faster of two rounds each; what counts is the ratio. `--memory` ingests an hour
of 640x360 video and prints the largest resident size of this process and of the child. `--before`
compares with an older version instead: a checkout of it, as `git worktree add TREE COMMIT` makes
one. Both describe the same files in turn as the engine does, views included, by one thread; what
counts is processor time, of the process and of its decoder, the least of `--rounds`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from retrieval.describe.descriptors import Descriptor, load_descriptor
from retrieval.describe.pictures import flag_low_information
from retrieval.media.video import read_frames
from vcl_plugin.demo.footage import render_reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--video", type=Path, action="append", default=[], help="default: rendered")
    parser.add_argument("--seconds", type=int, default=600, help="length of the rendered video")
    parser.add_argument("--memory", action="store_true", help="an hour of video, and its memory")
    parser.add_argument("--before", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.before:
        with tempfile.TemporaryDirectory() as folder:
            videos = options.video or [make_film(Path(folder), options.seconds)]
            compare_versions(options.before, videos, options.rounds)
        return
    descriptor = load_descriptor("lite0", threads=1)
    with tempfile.TemporaryDirectory() as folder:
        if options.memory:
            measure_memory(descriptor, make_film(Path(folder), 3600))
            return
        for path in options.video or [make_film(Path(folder), options.seconds)]:
            compare(descriptor, path)


DESCRIBE = """
import json, resource, sys
from pathlib import Path
import numpy as np
from retrieval.describe.descriptors import load_descriptor
from retrieval.description import describe_video
from retrieval.settings import load_settings

def spent():
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return [each.ru_utime + each.ru_stime for each in used]

descriptor = load_descriptor("lite0", threads=1)
descriptor.embed(np.zeros((4, 64, 64, 3), np.uint8))
for path in sys.argv[1:]:
    before = spent()
    described, _ = describe_video(Path(path), descriptor, load_settings())
    cost = [after - start for after, start in zip(spent(), before)]
    print(json.dumps([len(described.descriptors), len(described.views), *cost]))
"""


def compare_versions(before: Path, videos: list[Path], rounds: int) -> None:
    """Processor time for a second of video, of the version in `before` and of this one."""
    trees = {"before": before.resolve(), "now": Path(__file__).resolve().parents[1]}
    least: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, tree in trees.items():
            for number, found in enumerate(describe_by(tree, videos)):
                known = least.get((name, number), found)
                least[name, number] = min(known, found, key=lambda each: sum(each[2:]))
    print(f"{'ms of processor a second of video':44s}{'before':>22s}{'now':>22s}{'ratio':>8s}")
    for number, path in enumerate(videos):
        cells, sums = [], []
        for name in trees:
            seconds, views, own, decoder = least[name, number]
            sums.append((own + decoder) / seconds)
            shown = [1000 * each / seconds for each in (own, decoder)]
            cells.append(f"{sum(shown):.0f} = {shown[0]:.0f} + {shown[1]:.0f}, {views:.0f} v")
        facts = f"{path.name[:34]}, {seconds:.0f} s"
        print(f"{facts:44s}{cells[0]:>22s}{cells[1]:>22s}{sums[1] / sums[0]:8.2f}")
    print("network and pictures + decoder, v views")


def describe_by(tree: Path, videos: list[Path]) -> list[list[float]]:
    """Of each video its seconds, its views, and the cost of this process and of its decoder."""
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, *map(str, videos)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def make_film(folder: Path, seconds: int) -> Path:
    """A minute of rendered footage at 640x360 and 25 frames a second, its packets repeated."""
    minute = render_reference(folder / "minute.mp4", seed=1, seconds=60, fps=25, size=(640, 360))
    path = folder / "film.mp4"
    with av.open(str(path), "w") as target:
        stream = None
        for turn in range(max(1, seconds // 60)):
            with av.open(str(minute)) as source:
                track = source.streams.video[0]
                if stream is None:
                    stream = target.add_stream_from_template(track)
                shift = round(60 * turn / track.time_base)
                for packet in source.demux(track):
                    if packet.size:
                        packet.pts += shift
                        packet.dts += shift
                        packet.stream = stream
                        target.mux(packet)
    return path


def compare(descriptor: Descriptor, path: Path) -> None:
    bare, ours = [], []
    for _ in range(2):
        started = time.perf_counter()
        frames = decode_bare(path, descriptor.frame_size)
        decoded = time.perf_counter()
        for start in range(0, len(frames), 16):
            descriptor.embed(frames[start : start + 16])
        described = time.perf_counter()
        bare.append((described - started, decoded - started, described - decoded))
        started = time.perf_counter()
        count = ingest(descriptor, path)
        ours.append(time.perf_counter() - started)
    whole, decoding, network = min(bare)
    print(f"{path.name}: {count} seconds of video")
    print(f"  bare: {whole:.2f} s (decoding {decoding:.2f}, network {network:.2f})")
    print(f"  ours: {min(ours):.2f} s, {count / min(ours):.0f} seconds of video a second")
    print(f"  speed as a share of bare: {whole / min(ours):.2f} (goal 0.85)")


def decode_bare(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Every frame decoded, one a second kept: what a plain loop over PyAV costs."""
    frames, due = [], 0.5
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "NONE"
        last = None
        for frame in container.decode(video=0):
            if last is not None and frame.time > due:
                picture = last.reformat(*size, format="rgb24", interpolation="AREA")
                frames.append(picture.to_ndarray())
                due += 1.0
            last = frame
    return np.stack(frames)


def ingest(descriptor: Descriptor, path: Path) -> int:
    """As the engine does it: descriptors and flags, a batch at a time."""
    count = 0
    for _, frames in read_frames(path, size=descriptor.frame_size):
        count += len(descriptor.embed(frames))
        flag_low_information(frames)
    return count


def measure_memory(descriptor: Descriptor, path: Path) -> None:
    count, child = 0, 0.0
    started = time.perf_counter()
    with read_frames(path, size=descriptor.frame_size) as reader:
        # Not getrusage: a child's figure there starts at the size of its parent.
        status = Path(f"/proc/{reader.child_id}/status")
        for _, frames in reader:
            count += len(descriptor.embed(frames))
            flag_low_information(frames)
            if found := re.search(r"VmHWM:\s+(\d+)", status.read_text() if status.exists() else ""):
                child = max(child, int(found[1]) / 1024)
    taken = time.perf_counter() - started
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} seconds of video in {taken:.0f} s")
    print(f"largest resident size: {own:.0f} MB here, {child:.0f} MB in the decoder (goal 700)")


if __name__ == "__main__":
    main()
