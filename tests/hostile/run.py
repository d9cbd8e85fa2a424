"""Every hostile file through the decoder: `python -m tests.hostile.run`.

In: a seed. Out: a table of what became of each family, and one line that sums it up.
Exit code 1 when a file had an outcome it may not have, took too long or too much, or led out.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from retrieval.errors import BadVideo
from retrieval.media.roots import confine_path
from retrieval.media.video import read_frames
from tests.hostile.corpus import READY, HostileFile, build_corpus

MOST_SECONDS = 60.0
MOST_BYTES = 1 << 30
FRAME_SIZE = (224, 224)  # what the default descriptor asks for


@dataclass(frozen=True)
class Verdict:
    """What became of one file; `outcome` is "ready" or a reason code."""

    file: HostileFile
    outcome: str
    message: str
    frames: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.outcome in self.file.outcomes and self.seconds < MOST_SECONDS


class Listener:
    """Where the playlists' addresses lead: counts who follows them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def count_visitors(self) -> int:
        visitors = 0
        while True:
            try:
                self._socket.accept()[0].close()
            except BlockingIOError:
                return visitors
            visitors += 1

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening() -> Iterator[Listener]:
    listener = Listener()
    try:
        yield listener
    finally:
        listener.close()


def judge(file: HostileFile, root: Path) -> Verdict:
    """Decode the file as a worker would, within the media root."""
    started = time.monotonic()
    frames, outcome, message = 0, READY, ""
    try:
        path = confine_path(file.path, [root])
        for batch in read_frames(path, size=FRAME_SIZE, timeout=MOST_SECONDS - 1):
            frames += len(batch.frames)
    except BadVideo as error:
        outcome, message = error.code, str(error)
    return Verdict(file, outcome, message, frames, time.monotonic() - started)


def judge_all(files: Sequence[HostileFile], root: Path) -> list[Verdict]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda file: judge(file, root), files))


def largest_decoder() -> int:
    """Memory of the largest child that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.run", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed damages other bits")
    parser.add_argument("--all", action="store_true", help="print a line for every file")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, listening() as listener:
        root = Path(folder)
        files = build_corpus(root, chosen.seed, listener.port)
        started = time.monotonic()
        verdicts = judge_all(files, root)
        seconds = time.monotonic() - started
        visitors = listener.count_visitors()
    for family in dict.fromkeys(file.family for file in files):
        counts = Counter(each.outcome for each in verdicts if each.file.family == family)
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        print(f"{family:12} {counts.total():4}  {told}")
    for each in verdicts:
        if chosen.all or not each.is_right:
            label = "" if each.is_right else "WRONG "
            name = ascii(str(each.file.path.relative_to(root)))
            print(f"{label}{name}: {each.outcome} in {each.seconds:.1f} s {each.message!a}")
    ready = sum(each.outcome == READY for each in verdicts)
    slowest = max(verdicts, key=lambda each: each.seconds)
    died = sum(each.outcome == "decoder_died" for each in verdicts)
    hangs = sum(each.seconds >= MOST_SECONDS for each in verdicts)
    wrong = sum(not each.is_right for each in verdicts)
    print(
        f"{len(verdicts)} files: {len(verdicts) - ready} reason codes, {ready} readable and ready, "
        f"{hangs} hangs, {died} decoders died, {visitors} addresses followed, "
        f"{wrong} wrong outcomes\n"
        f"one worker process lived through all of them, {seconds:.0f} s; "
        f"slowest {slowest.seconds:.1f} s ({slowest.file.path.name!a}); "
        f"largest decoder {largest_decoder() / 2**20:.0f} MB"
    )
    return int(bool(wrong or visitors or largest_decoder() > MOST_BYTES))


if __name__ == "__main__":
    sys.exit(main())
