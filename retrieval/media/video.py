"""Video files become frames: probed and decoded in a guarded child, a few frames at a time.

In: a path. Out: a `VideoInfo`, or batches of RGB frames at one frame a second; else `BadVideo`.

Frame `i` is what is on screen at second `i + 0.5`, or a moment earlier (`sampler`), counted from
the start of the video as a player counts: it stands for the span `[i, i + 1)`. At another rate,
frame `i` is at `(i + 0.5) / fps`. A video shorter than half a second gives one frame.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import BadVideo
from retrieval.media.child import DecoderChild

log = logging.getLogger(__name__)

SAMPLE_FPS = 1.0
DECODER_MEMORY = 1 << 30
PROCESSOR_LEEWAY = 10
BATCH_BYTES = 1 << 28  # pictures kept at their own size fill a batch sooner than by their number

_FRAME_HEAD = struct.Struct("<dIIH")


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What the container says; a hint where a broken file says wrong. `duration` in seconds."""

    duration: float | None
    width: int
    height: int
    fps: float | None
    codec: str
    container: str
    has_audio: bool


class FrameBatch(NamedTuple):
    """Consecutive samples: `seconds` (k,) float64 and `frames` (k, height, width, 3) uint8 RGB."""

    seconds: NDArray[np.float64]
    frames: NDArray[np.uint8]


def probe_video(path: str | Path, timeout: float = 60.0) -> VideoInfo:
    with FrameReader(path, fps=None, timeout=timeout) as reader:
        return reader.info


def read_frames(
    path: str | Path,
    fps: float = SAMPLE_FPS,
    size: tuple[int, int] | None = None,
    *,
    batch_frames: int = 32,
    max_frames: int = 36_000,
    timeout: float = 600.0,
    threads: int = 1,
    device: str = "cpu",
    must_confine: bool = False,
    moments: Sequence[float] | None = None,
) -> FrameReader:
    """Frames of the whole video, `batch_frames` at a time, so memory does not grow with length.

    `size` is (width, height), aspect ratio not kept; None keeps the video's own. `timeout` is how
    long the child may keep us waiting in all: time we spend on its frames does not count. Frames
    after `max_frames` are not read. `moments`, which rise, are seconds to read instead of every
    one at `fps`; what lies between is not decoded. `must_confine` refuses, as ServiceUnavailable,
    to decode on a system that cannot confine the decoder. Use it as an iterator, or in a `with` to
    stop early.

        for seconds, frames in read_frames("film.mkv", size=(224, 224)):
            descriptors.append(descriptor.embed(frames))
    """
    return FrameReader(
        path,
        fps=fps,
        size=size,
        batch_frames=batch_frames,
        max_frames=max_frames,
        timeout=timeout,
        threads=threads,
        device=device,
        must_confine=must_confine,
        moments=moments,
    )


def hash_file(path: str | Path) -> str:
    """SHA-256 of the content, in hex: the identity of a video whatever its name."""
    with _opened(Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FrameReader:
    """Owns one decoder child. `info` is known at once; iterating yields `FrameBatch`es.

    `seconds` is the length as decoded, known when the iteration came to the end of the file; some
    containers (MPEG) only guess their `info.duration`.
    """

    info: VideoInfo
    seconds: float | None = None

    def __init__(
        self,
        path: str | Path,
        *,
        fps: float | None,
        size: tuple[int, int] | None = None,
        batch_frames: int = 32,
        max_frames: int = 1,
        timeout: float,
        threads: int = 1,
        device: str = "cpu",
        must_confine: bool = False,
        moments: Sequence[float] | None = None,
    ) -> None:
        self.path = Path(path)
        self._batch_frames = batch_frames
        # Decoders of a card cannot be confined: their drivers open devices as they go.
        may_use_card = device != "cpu" and not must_confine and Path("/dev/nvidia0").exists()
        hardware = "cuda" if may_use_card else None
        request = {
            "fps": fps,
            "size": size,
            "max_frames": max_frames if moments is None else len(moments),
            "moments": None if moments is None else list(moments),
            "threads": threads,
            "hardware": hardware,
            "must_confine": must_confine,
            # CUDA reserves address space by the terabyte; such a child has no memory limit.
            "memory_bytes": None if hardware else DECODER_MEMORY,
            "cpu_seconds": _processor_limit(timeout, max_frames, threads),
        }
        with _opened(self.path) as file:
            self._child = DecoderChild(self.path, file, request, timeout)
        try:
            self.info = self._read_info()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FrameReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[FrameBatch]:
        seconds: list[float] = []
        frames: list[NDArray[np.uint8]] = []
        last: NDArray[np.uint8] | None = None
        try:
            while (message := self._child.read_message()) is not None:
                if message[0] == b"D":
                    self.seconds = self._unpack_end(message[1])
                    continue
                second, frame = self._unpack_frame(*message, frames[-1] if frames else last)
                # A film whose picture size changes midway starts a new batch there.
                if frames and (
                    len(frames) == self._batch_frames
                    or frame.shape != frames[0].shape
                    or (len(frames) + 1) * frame.nbytes > BATCH_BYTES
                ):
                    last = frames[-1]
                    yield FrameBatch(np.array(seconds), np.stack(frames))
                    seconds, frames = [], []
                seconds.append(second)
                frames.append(frame)
            if frames:
                yield FrameBatch(np.array(seconds), np.stack(frames))
        finally:
            self.close()

    @property
    def child_id(self) -> int:
        """The process id of the decoder, for those who watch it."""
        return self._child.pid

    def close(self) -> None:
        """Ends the child whatever it does; harmless when it is gone."""
        self._child.close()

    def _read_info(self) -> VideoInfo:
        message = self._child.read_message()
        if message is None:
            raise self._child.make_error("decoder_died", "the decoder ended without an answer")
        try:
            facts = json.loads(message[1])
            _tell_missing(", ".join(facts.pop("unconfined", ())))
            return VideoInfo(**facts)
        except (ValueError, TypeError, AttributeError):
            raise self._child.end_babble() from None

    def _unpack_frame(
        self, kind: bytes, body: bytes, last: NDArray[np.uint8] | None
    ) -> tuple[float, NDArray[np.uint8]]:
        """A picture and its second; "R" says that the last one is still on screen."""
        try:
            if kind == b"R" and last is not None:
                return struct.unpack("<d", body)[0], last
            second, width, height, rotation = _FRAME_HEAD.unpack_from(body)
            frame = np.frombuffer(body, np.uint8, offset=_FRAME_HEAD.size)
            frame = frame.reshape(height, width, 3)
        except (ValueError, struct.error):
            raise self._child.end_babble() from None
        return second, np.rot90(frame, rotation // 90) if rotation % 90 == 0 else frame

    def _unpack_end(self, body: bytes) -> float:
        """How many seconds the film was shown for."""
        try:
            return float(json.loads(body)["seconds"])
        except (ValueError, TypeError, KeyError, OverflowError):
            raise self._child.end_babble() from None


def _processor_limit(timeout: float, max_frames: int, threads: int) -> int:
    """Seconds of processor time for a decoder whose parent is gone or does not watch it.

    `timeout` itself is counted by the parent and only while it waits. A long film is decoded while
    its frames are described, so it may well take the decoder many times as long.
    """
    return (threads or os.cpu_count() or 1) * (int(PROCESSOR_LEEWAY * timeout) + max_frames)


@lru_cache(maxsize=8)
def _tell_missing(nets: str) -> None:
    """Once a process, for each finding."""
    if nets:
        log.warning(
            "decoders are not confined by %.200s; a hostile video that takes one over may do what "
            "this user may (VCL_REQUIRE_CONFINEMENT=yes refuses to decode so)",
            nets,
        )


def _opened(path: Path) -> BufferedReader:
    """The file open for reading, or the plain reason why it cannot be."""
    try:
        _require_video_file(path, path.stat())  # before opening: some devices act on that
        # Not waiting: the name may have become a pipe since, whose writer never comes.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        try:
            _require_video_file(path, os.fstat(file.fileno()))
        except BaseException:
            file.close()
            raise
        return file
    except (FileNotFoundError, NotADirectoryError):
        raise BadVideo(f"{path} does not exist; check the path", code="missing") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadVideo(
            f"{path} cannot be read ({reason}); check its permissions", code="unreadable"
        ) from None


def _require_video_file(path: Path, facts: os.stat_result) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise BadVideo(f"{path} is a directory; name a video file in it", code="is_directory")
    if not stat.S_ISREG(facts.st_mode):
        raise BadVideo(f"{path} is not a regular file; save it as one", code="unreadable")
    if facts.st_size == 0:
        raise BadVideo(f"{path} is empty; copy or upload it again", code="empty")
