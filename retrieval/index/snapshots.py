"""Snapshot folders of an index: written aside, swapped in whole, cleaned away when nobody writes.

In: the files that an index writes. Out: the folder that the pointer names, and facts about it.
A crash at any instant leaves the old snapshot or the new one as the current.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from retrieval.files import open_folder
from retrieval.store import write_atomically

CURRENT = "current.json"
DAMAGED = "damaged.json"  # what a pointer is called whose snapshot cannot be read
FACTS = "facts.json"


@dataclass(frozen=True)
class SnapshotFacts:
    """What a snapshot holds; small, so that it can be read without opening the index."""

    key: str
    dimension: int
    seq: int  # last change of the log that is in it
    stamp: str  # when that change was written
    kind: str
    videos: int
    vectors: int
    made_at: str
    trained_on: int  # rows there were when the codes were trained; 0 for a flat index
    trained_recall: float  # of the self-test at that time
    probes: int
    self_test: dict[str, float]
    unreadable: dict[str, str]  # videos that are missing in it, and their files


def current_snapshot(folder: Path, key: str) -> Path | None:
    """The snapshot that the pointer names, if both are there."""
    try:
        pointer = json.loads((folder / f"{key}.{CURRENT}").read_text(encoding="utf-8"))
        snapshot = folder / str(pointer["snapshot"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return snapshot if snapshot.is_dir() else None


def set_aside(folder: Path, key: str, snapshot: Path) -> None:
    """Let a snapshot that cannot be read be current no more, so that a new one is due.

    Whoever makes one at this moment replaces it in any case, and is not disturbed.
    """
    with suppress(OSError), lock_index(folder, key, wait=False) as is_ours:
        if is_ours and current_snapshot(folder, key) == snapshot:
            os.replace(folder / f"{key}.{CURRENT}", folder / f"{key}.{DAMAGED}")


def read_facts(snapshot: Path) -> SnapshotFacts:
    return SnapshotFacts(**json.loads((snapshot / FACTS).read_text(encoding="utf-8")))


def current_facts(folder: Path, key: str) -> SnapshotFacts | None:
    """Facts of the current snapshot, or None where there is none that can be read."""
    snapshot = current_snapshot(folder, key)
    try:
        return None if snapshot is None else read_facts(snapshot)
    except (OSError, ValueError, TypeError):
        return None


def saved_indexes(folder: Path) -> list[SnapshotFacts]:
    """Facts of every index that has a current snapshot, by key."""
    keys = sorted(each.name.removesuffix(f".{CURRENT}") for each in folder.glob(f"*.{CURRENT}"))
    found = (current_facts(folder, key) for key in keys)
    return [facts for facts in found if facts is not None]


def write_facts(snapshot: Path, facts: SnapshotFacts) -> None:
    (snapshot / FACTS).write_text(json.dumps(asdict(facts)), encoding="utf-8")


def size_of(snapshot: Path) -> dict[str, int]:
    """Bytes of each of its files."""
    return {file.name: file.stat().st_size for file in sorted(snapshot.iterdir())}


@contextmanager
def lock_index(folder: Path, key: str, wait: bool = True) -> Iterator[bool]:
    """Whether this process alone may make a snapshot there; False only if it need not wait.

    A lock on a file and not in PostgreSQL: machines with folders of their own are not in each
    other's way, and a build of an hour holds no transaction open.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        yield False
        return
    try:
        yield True
    finally:
        os.close(handle)


@contextmanager
def new_snapshot(folder: Path, key: str, seq: int, mode: int = 0o640) -> Iterator[Path]:
    """A folder to write into; at the end it is the current snapshot, or gone if that failed.

    Its files can be read by those who may read files of that mode.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, lock = _make_locked(folder, f"{key}-{seq:012d}-", mode)
    try:
        yield path
        for file in path.iterdir():
            file.chmod(mode)
            _sync(file)  # else the pointer could reach the disk before what it points to
        _sync(path)
        pointer = json.dumps({"snapshot": path.name}).encode()
        write_atomically(folder / f"{key}.{CURRENT}", pointer, mode)
        _sync(folder)
        _clean(folder, key)
    except BaseException:
        if current_snapshot(folder, key) != path:
            shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _make_locked(folder: Path, prefix: str, mode: int) -> tuple[Path, int]:
    """A new folder that no cleaner takes away while its maker lives."""
    while True:
        path = Path(tempfile.mkdtemp(dir=folder, prefix=prefix))
        with suppress(FileNotFoundError):  # a cleaner was quicker than our lock
            open_folder(path, mode)
            lock = os.open(path, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_dir():
                return path, lock
            os.close(lock)


def _clean(folder: Path, key: str) -> None:
    """Remove what is no longer current, and what a killed writer left. Its lock died with it;
    mapped files live on in their readers."""
    name = re.compile(rf"{re.escape(key)}-\d+-\w{{8}}")  # exactly: keys may begin alike
    for path in folder.iterdir():
        if not name.fullmatch(path.name) or path == current_snapshot(folder, key):
            continue
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path != current_snapshot(folder, key):  # its writer may have just swapped it in
                    shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                pass  # somebody is writing it
            finally:
                os.close(lock)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
