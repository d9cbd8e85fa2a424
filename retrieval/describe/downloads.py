"""Weights that a user brings: a file on disk or an address, checked by SHA-256.

In: a path, a URL or nothing. Out: a path that exists and holds what was promised.
Nothing is fetched without a checksum.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from retrieval.errors import MissingWeights
from retrieval.settings import mask_password

LARGEST_FILE = 8 << 30


def obtain_weights(
    wanted: str, folder: Path, source: str | Path | None = None, sha256: str | None = None
) -> Path:
    """The file called `wanted`: `source` if given, else where it belongs, in `folder`."""
    if source is not None and str(source).startswith(("http://", "https://")):
        return _fetch(str(source), folder / wanted, sha256)
    path = Path(source) if source is not None else folder / wanted
    if not path.is_file():
        raise MissingWeights(
            f"{path} does not exist; this descriptor needs {wanted}: put it there, "
            "or give a path or URL as `weights`"
        )
    if sha256 is not None and hash_weights(path) != sha256.lower():
        raise MissingWeights(
            f"{path} has the SHA-256 {hash_weights(path)}, not {sha256}; fetch it again"
        )
    return path


def hash_weights(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MissingWeights(f"{path} cannot be read ({error.strerror})") from None


def _fetch(url: str, target: Path, sha256: str | None) -> Path:
    shown = mask_password(url)
    if sha256 is None:
        raise MissingWeights(f"{shown} needs its SHA-256 beside it; give `sha256`")
    if target.is_file() and hash_weights(target) == sha256.lower():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
    part = Path(temporary)
    try:
        # Only http and https come here, and an answer may lead on to no other scheme.
        with (
            os.fdopen(handle, "wb") as file,
            urllib.request.urlopen(url, timeout=60) as answer,  # nosec B310
        ):
            _copy(answer, file, shown)
        found = hash_weights(part)
        if found != sha256.lower():
            raise MissingWeights(f"{shown} gave a file with SHA-256 {found}, not {sha256}")
        part.replace(target)
    except (urllib.error.URLError, OSError) as error:
        raise MissingWeights(
            f"{shown} cannot be fetched ({error}); download it to {target}"
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return target


def _copy(source: IO[bytes], target: IO[bytes], shown: str) -> None:
    """To the end, but not without end: a server may send until the disk is full."""
    size = 0
    while part := source.read(1 << 20):
        size += len(part)
        if size > LARGEST_FILE:
            raise MissingWeights(
                f"{shown} sends over {LARGEST_FILE >> 30} GB; is it a weights file?"
            )
        target.write(part)
