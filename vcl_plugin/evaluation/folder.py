"""A benchmark folder in VCSL's layout: descriptor files, pairs, labels, topics.

In: a path. Out: `Folder`, whose pairs know their true boxes and whose descriptors load by id.
Benchmarks are written in this layout, and training reads it too.

    features/<id>.npy    (n, 256), one row a second
    pairs.csv            query_id,reference_id
    labels.json          {"q-r": [[q_start, r_start, q_end, r_end], ...]}; no key: not a copy
    topics.json          optional, {"q-r" or query id: "topic"}
    details.json         optional, {"q-r": {"kind": "copy", ...}}: what a made-up pair was made for
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from retrieval.arrays import as_descriptors
from retrieval.errors import NotFound, RetrievalError
from retrieval.plugins import Array

PLAIN = frozenset("_-. ~+@=,()[]{}!#$&'`^;")
LONGEST_NAME = 200  # bytes; file systems stop at 255


class BadFolder(RetrievalError):
    """A benchmark folder whose pairs or labels cannot be read."""

    code = "bad_folder"


@dataclass(frozen=True, slots=True)
class LabelledPair:
    query_id: str
    reference_id: str
    truth: tuple[tuple[float, float, float, float], ...]
    topic: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Folder:
    """Opened lazily: nothing is read before it is asked for."""

    path: Path

    def __post_init__(self) -> None:
        for name in ("pairs.csv", "features"):
            if not (self.path / name).exists():
                raise NotFound(
                    f"{self.path} has no {name}; a benchmark folder holds features/, pairs.csv "
                    f"and labels.json (`vcl benchmark make` builds one)"
                )

    @cached_property
    def pairs(self) -> list[LabelledPair]:
        names = read_pairs(self.path / "pairs.csv")
        labels = _read_json(self.path / "labels.json", needed=True)
        topics = _read_json(self.path / "topics.json", needed=False)
        details = _read_json(self.path / "details.json", needed=False)
        shared = Counter(label_key(*each) for each in set(names))
        pairs = []
        for query, reference in names:
            key = label_key(query, reference)
            boxes = labels.get(exact_key(query, reference), labels.get(key, []))
            if shared[key] > 1 and key in labels and exact_key(query, reference) not in labels:
                raise BadFolder(
                    f"label {key!r} fits {shared[key]} pairs of {self.path / 'pairs.csv'}; write "
                    f"it as {exact_key(query, reference)} to say which one is meant"
                )
            topic = topics.get(exact_key(query, reference), topics.get(key, topics.get(query, "")))
            detail = details.get(key, {})
            kind = str(detail.get("kind", "")) if isinstance(detail, dict) else ""
            truth = _as_truth(key, boxes)
            pairs.append(LabelledPair(query, reference, truth, str(topic), kind))
        return pairs

    def feature_path(self, video_id: str) -> Path:
        """Where the descriptors of a video lie, whether or not the file is there.

        A folder made elsewhere may hold an id that we would escape under its plain name; that
        name is taken unless it is the escaped name of another id.
        """
        escaped = self.path / "features" / f"{file_name(video_id)}.npy"
        is_plain_possible = "/" not in video_id and "\0" not in video_id
        if is_plain_possible and unquote(video_id) == video_id and len(video_id) < LONGEST_NAME:
            plain = self.path / "features" / f"{video_id}.npy"
            if not escaped.exists() and os.path.exists(plain):  # False for a name beyond measure
                return plain
        return escaped

    def load_features(self, video_id: str) -> Array:
        path = self.feature_path(video_id)
        if not path.exists():
            raise NotFound(f"{path} is missing, the descriptors of {video_id!r}")
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as reason:  # any bytes may stand there, and numpy says anything to them
            raise BadFolder(f"{path} is no array file ({reason}); write it again") from None
        return as_descriptors(array, str(path))


def write_folder(
    path: Path,
    features: Mapping[str, Array],
    pairs: Sequence[LabelledPair],
) -> None:
    """Write a folder that `Folder` reads back; existing descriptor files are replaced."""
    (path / "features").mkdir(parents=True, exist_ok=True)
    for video_id, array in features.items():
        np.save(path / "features" / f"{file_name(video_id)}.npy", array)
    with (path / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["query_id", "reference_id"])
        writer.writerows([pair.query_id, pair.reference_id] for pair in pairs)
    shared = Counter(label_key(pair.query_id, pair.reference_id) for pair in pairs)

    def key_of(pair: LabelledPair) -> str:
        key = label_key(pair.query_id, pair.reference_id)
        return key if shared[key] == 1 else exact_key(pair.query_id, pair.reference_id)

    labels = {key_of(pair): [list(box) for box in pair.truth] for pair in pairs if pair.truth}
    topics = {key_of(pair): pair.topic for pair in pairs if pair.topic}
    (path / "labels.json").write_text(json.dumps(labels), encoding="utf-8")
    if topics:
        (path / "topics.json").write_text(json.dumps(topics), encoding="utf-8")


def file_name(video_id: str) -> str:
    """An id as a file name: what a file system may not like becomes %XX, as in a URL.

    Reversible by URL-unquoting, except for ids beyond 200 bytes, which end in a hash.

    >>> file_name("a/b"), file_name("50%"), file_name("x_y-1.mp4"), file_name("日本")
    ('a%2Fb', '50%25', 'x_y-1.mp4', '日本')
    """
    escaped = "".join(
        each if each.isalnum() or each in PLAIN else _escape(each) for each in video_id
    )
    if len(escaped.encode("utf-8", "surrogatepass")) <= LONGEST_NAME:
        return escaped
    digest = hashlib.sha256(video_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{escaped[:40]}%%{digest}"  # `%%` is in no escaped id


def _escape(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def label_key(query_id: str, reference_id: str) -> str:
    """VCSL's key of a pair. It is built, never taken apart: ids may hold a dash themselves."""
    return f"{query_id}-{reference_id}"


def exact_key(query_id: str, reference_id: str) -> str:
    """A key for the rare pairs whose plain keys are the same, as with "a-b","c" and "a","b-c"."""
    return json.dumps([query_id, reference_id], ensure_ascii=False)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of a CSV file with the columns query_id and reference_id, repetitions dropped."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(dict.fromkeys(_parse_pairs(path, csv.DictReader(file))))
    except (csv.Error, UnicodeDecodeError) as reason:
        raise BadFolder(f"{path} is no CSV in UTF-8 ({reason}); write it again") from None


def _parse_pairs(path: Path, reader: csv.DictReader[str]) -> Iterator[tuple[str, str]]:
    columns = reader.fieldnames or []
    missing = {"query_id", "reference_id"} - set(columns)
    if missing:
        raise BadFolder(
            f"{path} has the columns {', '.join(columns) or 'none'}; its first line must name "
            f"query_id and reference_id"
        )
    for row in reader:
        if row["query_id"] is None or row["reference_id"] is None:
            raise BadFolder(f"{path}, line {reader.line_num}: a pair needs two ids")
        yield row["query_id"], row["reference_id"]


def _read_json(path: Path, needed: bool) -> dict[str, Any]:
    if not path.exists():
        if needed:
            raise NotFound(f"{path} is missing; without labels nothing can be judged")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as reason:
        raise BadFolder(f"{path} is no JSON ({reason})") from None
    if not isinstance(content, dict):
        raise BadFolder(f"{path} holds a {type(content).__name__}; it must be one JSON object")
    return content


def _as_truth(key: str, boxes: Any) -> tuple[tuple[float, float, float, float], ...]:
    if not isinstance(boxes, list):
        raise BadFolder(f"label {key!r} is {boxes!r:.100}; it must be a list of boxes")
    truth = []
    for box in boxes:
        try:
            q_start, r_start, q_end, r_end = (float(each) for each in box)
        except (TypeError, ValueError, OverflowError):
            raise BadFolder(
                f"label {key!r} holds {box!r}; a box is [q_start, r_start, q_end, r_end]"
            ) from None
        if not all(map(math.isfinite, (q_start, r_start, q_end, r_end))):
            raise BadFolder(f"label {key!r} holds {box!r}, which is not finite")
        truth.append((q_start, r_start, q_end, r_end))
    return tuple(truth)
