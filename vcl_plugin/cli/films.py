"""Video files that a command is given: files, folders, patterns, and lists on stdin.

In: words of a command line. Out: paths, each once, in the order given.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from retrieval.errors import NotFound

SUFFIXES = frozenset(
    {
        *(".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".avi"),
        *(".mpg", ".mpeg", ".ts", ".m2ts", ".ogv", ".flv", ".wmv"),
    }
)
LISTS = (".txt", ".m3u")  # a path a line
STDIN = "-"


def list_films(words: Sequence[str]) -> list[Path]:
    """The files that are meant. A path that is not there stays: whoever reads it says so."""
    return list(dict.fromkeys(path for word in words for path in _read_word(word)))


def find_films(folder: Path) -> list[Path]:
    """Every video file of a folder, with all below it."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise NotFound(f"there is no video in {folder}; looked for {' '.join(sorted(SUFFIXES))}")
    return files


def _read_word(word: str) -> Iterator[Path]:
    path = Path(word)
    if word == STDIN:
        yield from _read_lines(sys.stdin)
    elif path.is_dir():
        yield from find_films(path)
    elif path.suffix.lower() in LISTS and path.is_file():
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            yield from _read_lines(lines)
    elif has_magic(word) and not path.exists():
        found = sorted(glob(word, recursive=True))
        if not found:
            raise NotFound(f"no file fits {word!r}")
        for each in found:
            yield from find_films(Path(each)) if Path(each).is_dir() else [Path(each)]
    else:
        yield path


def _read_lines(lines: Iterable[str]) -> Iterator[Path]:
    """A path a line; empty lines and those that begin with # say nothing."""
    for line in lines:
        text = line.rstrip("\r\n")
        if text.strip() and not text.startswith("#"):
            yield Path(text)
