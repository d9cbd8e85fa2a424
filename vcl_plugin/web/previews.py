"""What a browser is shown of a film: the file itself, a small H.264 preview of it, or one frame.

In: a video whose file still is the one that was compared. Out: files to send.
A preview is for what browsers cannot play. A confined decoder child makes frames of the film, so
the hostile bytes never reach the encoder here; it has no sound. Previews and frames are made once
and kept by the content of the film, under `previews` in the home.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retrieval.errors import BadVideo, RetrievalError
from retrieval.media.video import VideoInfo, probe_video, read_frames
from retrieval.records import Video
from retrieval.settings import Settings
from retrieval.store import write_atomically
from vcl_plugin.reports.evidence import write_jpeg
from vcl_plugin.reports.films import Films, Seal, seal_file

log = logging.getLogger(__name__)

THUMBNAIL_PIXELS = 256  # the longer side of a thumbnail
PREVIEW_PIXELS = 480  # and of a preview
PREVIEW_FPS = 25.0
MOST_FRAMES = 2_000_000
DECODERS = 2  # frames that are made at once; others wait
# What the browsers of today play, by container. "matroska,webm" is WebM or not: its head tells.
PLAYABLE = {
    "mov,mp4,m4a,3gp,3g2,mj2": ("h264", "av1", "libdav1d", "vp9"),
    "matroska,webm": ("vp8", "vp9", "av1", "libdav1d", "libvpx", "libvpx-vp9"),
}
MEDIA_TYPES = {"matroska,webm": "video/webm"}

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Film:
    """A file that a browser plays, and whether it is the film itself."""

    path: Path
    media_type: str
    is_original: bool


@dataclass(frozen=True)
class Progress:
    """How far a preview is: `ready`, `making` or `failed`; a share from 0 to 1."""

    state: str
    share: float = 0.0
    message: str | None = None


class Previews:
    """The films that a server shows; one for the process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.films = Films(settings)
        self._infos: OrderedDict[tuple[Path, Seal], VideoInfo] = OrderedDict()
        self._under_way: dict[str, Progress] = {}
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._decoders = threading.Semaphore(DECODERS)
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="preview")

    def find_film(self, video: Video, must_convert: bool = False) -> Film | None:
        """What a browser can play of a video; None while a preview of it is being made."""
        path = self.films.open(video)
        info = self._probe(path)
        if not must_convert and is_playable(path, info):
            return Film(path, MEDIA_TYPES.get(info.container, "video/mp4"), True)
        preview = self._preview_path(video)
        if preview.is_file():
            return Film(preview, "video/mp4", False)
        self._begin(video, path, info)
        return None

    def read_progress(self, video: Video) -> Progress:
        """How far the preview of a video is."""
        if self._preview_path(video).is_file():
            return Progress("ready", 1.0)
        with self._lock:
            known = self._under_way.get(str(video.content_hash))
        return known or Progress("missing")

    def read_thumbnail(self, video: Video, second: float, beside: Sequence[float] = ()) -> Path:
        """A JPEG of what the video shows at that second.

        `beside` are seconds that will be asked for next: one decoder makes them all.
        """
        path = self._thumbnail_path(video, second)
        if not path.is_file():
            self.make_thumbnails(video, [second, *beside])
        if not path.is_file():
            raise BadVideo(f"no frame of it is shown at second {second:g}", code="no_frames")
        return path

    def make_thumbnails(self, video: Video, seconds: Sequence[float]) -> None:
        """Make those that are missing; whoever needs the same ones meanwhile waits for them."""
        original = self.films.open(video)
        with self._lock_of(video), self._decoders:
            missing = sorted(
                {
                    round(max(0.0, each), 1)
                    for each in seconds
                    if not self._thumbnail_path(video, each).is_file()
                }
            )
            for moment, frame in zip(missing, self._decode_frames(original, missing), strict=False):
                picture = Image.fromarray(frame)
                small = picture.resize(shrink(picture.size, THUMBNAIL_PIXELS))
                write_atomically(self._thumbnail_path(video, moment), write_jpeg(np.asarray(small)))

    def _thumbnail_path(self, video: Video, second: float) -> Path:
        return self._folder(video) / f"{round(10 * max(0.0, second))}.jpg"

    def _decode_frames(self, path: Path, moments: Sequence[float]) -> Iterator[Picture]:
        """In their own size: only the decoder knows whether the film is turned."""
        if not moments:
            return
        with read_frames(
            path,
            moments=moments,
            batch_frames=4,
            timeout=self.settings.decode_timeout,
            must_confine=self.settings.require_confinement,
        ) as reader:
            for _, frames in reader:
                yield from frames

    @contextmanager
    def _lock_of(self, video: Video) -> Iterator[None]:
        with self._lock:
            lock = self._locks.setdefault(str(video.content_hash), threading.Lock())
        with lock:
            yield

    def _probe(self, path: Path) -> VideoInfo:
        key = (path, seal_file(path))
        with self._lock:
            known = self._infos.get(key)
        if known is None:
            known = probe_video(path, timeout=self.settings.decode_timeout)
            with self._lock:
                self._infos[key] = known
                if len(self._infos) > 10_000:
                    self._infos.popitem(last=False)
        return known

    def _folder(self, video: Video) -> Path:
        content = str(video.content_hash)  # hex, of our own making
        return self.settings.preview_dir / content[:2] / content

    def _preview_path(self, video: Video) -> Path:
        return self._folder(video) / "preview.mp4"

    def _begin(self, video: Video, path: Path, info: VideoInfo) -> None:
        content = str(video.content_hash)
        with self._lock:
            known = self._under_way.get(content)
            if known is not None and known.state == "making":
                return
            if known is not None and known.state == "failed":
                raise BadVideo(f"no preview can be made: {known.message}", code="no_frames")
            self._under_way[content] = Progress("making")
        self._maker.submit(self._make, content, path, self._preview_path(video), info)

    def _make(self, content: str, source: Path, target: Path, info: VideoInfo) -> None:
        try:
            for share in self._convert(source, target, info):
                self._tell(content, Progress("making", share))
            with self._lock:
                self._under_way.pop(content, None)
        except (RetrievalError, OSError, av.error.FFmpegError) as error:
            log.warning("no preview of %s: %s", source, error)
            message = str(error) if isinstance(error, BadVideo) else "it cannot be written"
            self._tell(content, Progress("failed", message=message))

    def _tell(self, content: str, progress: Progress) -> None:
        with self._lock:
            self._under_way[content] = progress

    def _convert(self, source: Path, target: Path, info: VideoInfo) -> Iterator[float]:
        """Write a preview; yields the share that is done."""
        first = next(self._decode_frames(source, [0.0]))
        width, height = shrink(first.shape[1::-1], PREVIEW_PIXELS)
        fps = min(info.fps or PREVIEW_FPS, PREVIEW_FPS)
        with _new_file(target) as path, av.open(str(path), "w", "mp4", options=MP4) as container:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.options = {"preset": "veryfast", "crf": "26", "threads": "1"}
            with read_frames(
                source,
                fps=fps,
                size=(width, height),
                max_frames=MOST_FRAMES,
                timeout=max(self.settings.decode_timeout, 4 * (info.duration or 0)),
                must_confine=self.settings.require_confinement,
            ) as reader:
                for times, frames in reader:
                    for picture in frames:
                        shown = np.ascontiguousarray(picture)
                        frame = av.VideoFrame.from_ndarray(shown, format="rgb24")
                        container.mux(stream.encode(frame))
                    yield min(1.0, float(times[-1]) / info.duration) if info.duration else 0.0
            container.mux(stream.encode(None))


MP4 = {"movflags": "faststart"}


def is_playable(path: Path, info: VideoInfo) -> bool:
    """Whether browsers play such a file as it is."""
    if info.codec not in PLAYABLE.get(info.container, ()):
        return False
    if info.container != "matroska,webm":
        return True
    with path.open("rb") as file:
        return b"webm" in file.read(64)


def shrink(size: tuple[int, ...], longest: int) -> tuple[int, int]:
    """Width and height of the same shape: even, and no longer than that.

    >>> shrink((1920, 1080), 480), shrink((90, 160), 480)
    ((480, 270), (90, 160))
    """
    scale = min(1.0, longest / max(size))
    width, height = (max(2, 2 * round(each * scale / 2)) for each in size)
    return width, height


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A file that takes its name when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".preview-")
    os.close(handle)
    path = Path(name)
    try:
        yield path
        path.replace(target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
