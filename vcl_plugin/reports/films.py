"""The film of a video: its file, if it still is the one that was compared.

In: a video of the catalogue. Out: a path that may be shown, or `BadVideo` with the reason.
Files are known by their content, so what was put in a file's place is not shown.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from retrieval.errors import BadVideo
from retrieval.media.roots import confine_path
from retrieval.media.video import hash_file
from retrieval.records import Video
from retrieval.settings import Settings

Seal = tuple[int, ...]

KEPT = 10_000  # files whose digest is remembered


class Films:
    """The files of videos. Each is hashed once, and again when it was written to."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._digests: OrderedDict[tuple[Path, Seal], str] = OrderedDict()

    def open(self, video: Video, side: str = "video") -> Path:
        """Where the file lies that was compared; BadVideo if it does not lie there any more."""
        if video.path is None or video.content_hash is None:
            raise BadVideo(f"the {side} was registered without a file", code="missing")
        try:
            path = confine_path(video.path, self.settings.roots)
            digest = self._hash(path)
        except (BadVideo, OSError):
            raise BadVideo(
                f"the file of the {side} cannot be read where it was", code="missing"
            ) from None
        if digest != video.content_hash:
            raise BadVideo(
                f"the file of the {side} is not the one that was compared", code="changed"
            )
        return path

    def _hash(self, path: Path) -> str:
        seal = seal_file(path)
        known = self._digests.get((path, seal))
        if known is not None:
            return known
        digest = hash_file(path)
        if seal_file(path) == seal:  # nobody wrote to it meanwhile
            self._digests[path, seal] = digest
            if len(self._digests) > KEPT:
                self._digests.popitem(last=False)
        return digest


def seal_file(path: Path) -> Seal:
    """What changes when a file is replaced or written to; nobody can set a ctime back."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
