"""Descriptor files on disk: one a video and fingerprint, written once, read by memory map.

In: a video's descriptors and their fingerprint. Out: a key to keep in `descriptor_sets`, and the
arrays again. A key is the file's path below the store's folder, so that rows stay true wherever a
machine has mounted that. Rows of earlier releases hold the whole path; they are read, too.

A file is safetensors: `descriptors` (frames, d) in half precision, `low_information` (frames,)
bool, and the fingerprint in its metadata. A video with views has theirs beside them, under the
names of `LAYOUT`. A foreign engine may point at a plain .npy instead.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from retrieval.arrays import as_descriptors
from retrieval.describe.views import MAX_VIEWS, NO_VIEWS, ViewKind, Views, join_views
from retrieval.errors import (
    BadDescriptors,
    FingerprintMismatch,
    MissingFile,
    NotFound,
    RetrievalError,
    ServiceUnavailable,
    Unreadable,
)
from retrieval.files import make_folder, missing_file, read_failure, sync_folder
from retrieval.media.roots import confine_path

# Over two days of video. A file of more is refused before it is read into memory.
MAX_FRAMES = 200_000
DIMENSION = 256  # numbers a row, as `arrays` demands

# The names of each kind's vectors, frames and runs in a file. A scene's mirror image and its middle
# share their frames and runs. Stores are full of such files, and workers of an earlier release may
# read what this one writes, so the names are older than the words used for views now.
LAYOUT = {
    ViewKind.PART: ("parts", "part_frames", "part_tracks"),
    ViewKind.MIRRORED: ("mirrored", "aspect_frames", "aspect_stretches"),
    ViewKind.MIDDLE: ("middle", "aspect_frames", "aspect_stretches"),
}

_OWN = re.compile(r"[^/]+/([0-9a-f]{2})/\1[0-9a-f]{62}\.safetensors")  # a key, see `key_of`
# A full disk, a used-up quota, a limit on the size of files.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RECENTLY = 1.0  # seconds for which a store that was there is believed to be there, when read


@dataclass(frozen=True)
class StoredDescriptors:
    """What the store gives back: float32 rows as they were written, and which of them say little.

    The engine's own rows have unit length; a foreign file's have whatever its maker gave them, and
    poolers and localizers scale them themselves.
    """

    descriptors: NDArray[np.float32]
    low_information: NDArray[np.bool_]
    fingerprint: str | None
    views: Views = NO_VIEWS

    @property
    def frames(self) -> int:
        return len(self.descriptors)


class Store:
    """A folder of descriptor files, addressed by (video, fingerprint).

    Files of foreign engines lie elsewhere: in one of the media `roots`, where there are any.
    `check` raises `ServiceUnavailable` unless the folder is the store that is meant
    (`retrieval/identity.py`); without one, the folder is made where it is missing.
    """

    def __init__(
        self,
        root: Path,
        roots: Sequence[Path] = (),
        check: Callable[[float], None] | None = None,
        mode: int = 0o640,
    ) -> None:
        self.root = root.absolute()  # what is relative is a key
        self.mode = mode
        self.roots = (self.root, *roots) if roots else ()
        self._check = check

    def check(self, within: float = 0.0) -> None:
        """Raise `ServiceUnavailable` unless the store is there."""
        if self._check is not None:
            self._check(within)

    def path_of(self, video_id: str, fingerprint: str) -> Path:
        """Where that video's file lies on this machine."""
        return self.root / key_of(video_id, fingerprint)

    def write(
        self,
        video_id: str,
        fingerprint: str,
        descriptors: NDArray[np.floating],
        low_information: NDArray[np.bool_] | None = None,
        views: Views = NO_VIEWS,
    ) -> str:
        """Write a video's descriptors, and return their key.

        Atomic: a reader never meets half a file.
        """
        rows = as_descriptors(descriptors, f"video {video_id!r}")
        if low_information is None:
            low_information = np.zeros(len(rows), dtype=bool)
        if len(low_information) != len(rows):
            raise BadDescriptors(
                f"video {video_id!r} has {len(rows)} frames and flags for {len(low_information)}"
            )
        # Unit vectors lose about 1e-4 in half precision, far below what any localizer resolves.
        arrays = {
            "descriptors": rows.astype(np.float16),
            "low_information": np.asarray(low_information, dtype=bool),
            **_lay_out(views, video_id),
        }
        payload = save(arrays, metadata={"fingerprint": fingerprint, "video": video_id})
        key = key_of(video_id, fingerprint)
        path = self.root / key
        self.check()
        try:
            write_atomically(path, payload, self.mode, self.root if self._check else None)
        except OSError as error:
            self.check()
            raise ServiceUnavailable(
                f"{path} cannot be written ({error.strerror}); mend the store, and work that "
                "waits for it goes on by itself"
            ) from error
        self.check()  # the disk may have gone meanwhile, and left its folder behind
        return key

    def read(self, location: str | Path, fingerprint: str | None = None) -> StoredDescriptors:
        """The descriptors of that file; of the kind `fingerprint`, if the file says its kind.

        A file can be replaced after it was registered, and numbers of two kinds compare to nothing.
        """
        self.check(within=RECENTLY)
        try:
            path = confine_path(self.find(location), self.roots, BadDescriptors)
            stored = read_descriptors(path)
        except (MissingFile, Unreadable):
            self.check()  # with the whole store away, no file of it is missing
            raise
        if fingerprint is not None and stored.fingerprint not in (None, fingerprint):
            raise FingerprintMismatch(
                f"{location} was made by {stored.fingerprint}, not by {fingerprint}; ingest or "
                "register the video again"
            )
        return stored

    def has(self, location: str | Path) -> bool:
        """Whether a file lies there; whether it can be read is another question."""
        is_there = _is_file(self.find(location))
        if not is_there:
            self.check()
        return is_there

    def find(self, location: str | Path) -> Path:
        """The file that a row names: by its key, or by a path or URL of its own.

        A whole path of a store that was mounted elsewhere then leads to the same file here.
        """
        path = _local_path(location)
        if not path.is_absolute():
            if ".." in path.parts:
                raise NotFound(
                    f"{str(location)!r} is no key of the store; register the video again"
                )
            return self.root / path
        if _OWN.fullmatch("/".join(path.parts[-3:])) and not _is_file(path):
            return self.root.joinpath(*path.parts[-3:])
        return path


def key_of(video_id: str, fingerprint: str) -> str:
    """The name of that video's file; ids may hold any character, so their hash stands for them."""
    name = hashlib.sha256(video_id.encode()).hexdigest()
    return f"{fingerprint}/{name[:2]}/{name}.safetensors"


def read_descriptors(location: str | Path) -> StoredDescriptors:
    """Load a file of the store, or a plain .npy, from a path or a file:// URL."""
    path = _local_path(location)
    if not _is_file(path):
        raise missing_file(path)
    try:
        return _read_array(path) if path.suffix.lower() == ".npy" else _read_stored(path)
    except RetrievalError:
        raise
    except Exception as error:
        raise read_failure(error, path) from error


def _read_array(path: Path) -> StoredDescriptors:
    with path.open("rb") as file:  # not np.load, which would also open archives and pickles
        header = np.lib.format.open_memmap(path, mode="r")  # its file may be sparse
        _check_shape(path, header.shape, MAX_FRAMES)
        _check_kind(path, header.dtype)
        rows = as_descriptors(np.lib.format.read_array(file, allow_pickle=False), str(path))
    return StoredDescriptors(rows, np.zeros(len(rows), dtype=bool), None)


def _read_stored(path: Path) -> StoredDescriptors:
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        if "descriptors" not in names:
            raise BadDescriptors(
                f"{path} holds no `descriptors` but {', '.join(sorted(names)) or 'nothing'}",
                code="not_an_array",
            )
        _check_shape(path, file.get_slice("descriptors").get_shape(), MAX_FRAMES)
        rows = as_descriptors(file.get_tensor("descriptors"), str(path))
        flags = np.zeros(len(rows), dtype=bool)
        if "low_information" in names:
            flags = _read_column(file, "low_information", len(rows), path).astype(bool)
        views = _read_views(file, names, len(rows), path)
        metadata = file.metadata() or {}
    return StoredDescriptors(rows, flags, metadata.get("fingerprint"), views)


def _lay_out(views: Views, video_id: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file that hold these views."""
    mirrored, middle = (views.kinds == each for each in (ViewKind.MIRRORED, ViewKind.MIDDLE))
    for column in (views.frames, views.runs):
        if not np.array_equal(column[mirrored], column[middle]):
            raise BadDescriptors(
                f"video {video_id!r} has other frames mirrored than described by their middle; "
                "describe each scene both ways"
            )
    arrays: dict[str, NDArray[Any]] = {}
    for kind, (vectors, frames, runs) in LAYOUT.items():
        rows = views.kinds == kind
        if rows.any():
            arrays[vectors] = views.vectors[rows].astype(np.float16)
            arrays[frames] = views.frames[rows].astype(np.int32)
            arrays[runs] = views.runs[rows].astype(np.int32)
    return arrays


def _read_views(file: Any, names: set[str], frames: int, path: Path) -> Views:
    return join_views(
        _read_kind(file, kind, frames, path) for kind, (name, *_) in LAYOUT.items() if name in names
    )


def _read_kind(file: Any, kind: ViewKind, frames: int, path: Path) -> Views:
    name, *numbers = LAYOUT[kind]
    _check_shape(path, file.get_slice(name).get_shape(), MAX_VIEWS * frames, f" of views ({name})")
    vectors = as_descriptors(file.get_tensor(name), f"{path}, {name}")
    owners, runs = (
        _read_column(file, each, len(vectors), path).astype(np.int32) for each in numbers
    )
    if owners.min() < 0 or owners.max() >= frames:
        raise BadDescriptors(
            f"{path} describes {len(vectors)} views that do not fit its {frames} frames; "
            "ingest or register the video again"
        )
    return Views(vectors, owners, np.full(len(owners), kind, np.uint8), runs)


def _read_column(file: Any, name: str, rows: int, path: Path) -> NDArray[Any]:
    """One number a row. Its shape is asked before it is read: a header of a few bytes may claim
    what fills the memory, and a sparse file keeps the promise.
    """
    shape = file.get_slice(name).get_shape()
    if list(shape) != [rows]:
        raise BadDescriptors(
            f"{path} has {name} of shape {tuple(shape)}, which do not fit its {rows} rows; ingest "
            "or register the video again"
        )
    column: NDArray[Any] = file.get_tensor(name)
    return column


def _check_shape(path: Path, shape: Sequence[int], most: int, what: str = "") -> None:
    """Refuse, unread, rows that are too many or of another length than descriptors have."""
    if len(shape) != 2 or shape[1] != DIMENSION:
        raise BadDescriptors(
            f"{path} has shape {tuple(shape)}{what}; descriptors are (frames, {DIMENSION}), one "
            "row a second",
            code="no_frames" if len(shape) > 0 and shape[0] == 0 else "wrong_dimension",
        )
    if shape[0] > most:
        raise BadDescriptors(
            f"{path} has {shape[0]} rows{what}; more than {most} do not fit and are not read, cut "
            "the video into parts",
            code="too_long",
        )


def _check_kind(path: Path, kind: np.dtype[Any]) -> None:
    """Refuse, unread, what is no number: a text or a structure has any size."""
    if kind.kind not in "fiu":
        raise BadDescriptors(
            f"{path} holds {kind.name[:60]} instead of numbers; write float32 of shape "
            f"(frames, {DIMENSION})",
            code="not_an_array",
        )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name beyond measure, a folder nobody may enter
        return False


def write_atomically(
    path: Path, payload: bytes, mode: int | None = None, within: Path | None = None
) -> None:
    """Temp file, fsync, rename: after a crash the old file or the new one is there, never half.

    The file has that mode, or 0644. Folders are made as needed, below `within` only: one made where
    a disk should be mounted would be taken for it. A disk without room is ServiceUnavailable: like
    a server that is away, it can come back.
    """
    try:
        make_folder(path.parent, within, mode)
        _write_and_rename(path, payload, 0o644 if mode is None else mode)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise ServiceUnavailable(
            f"there is no room for {path} ({len(payload)} bytes: {error.strerror}); free space, "
            "and work that waits for it goes on by itself",
            code="store_full",
        ) from error


def _write_and_rename(path: Path, payload: bytes, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # a temp file is its maker's only
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _local_path(location: str | Path) -> Path:
    text = str(location)
    if "://" not in text:
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise NotFound(f"{text!r} is no address ({error}); give a path or file:// URL") from None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise NotFound(
            f"descriptors at {text!r} are out of reach; give a path or a file:// URL that the "
            "workers can read"
        )
    return Path(unquote(parts.path))
