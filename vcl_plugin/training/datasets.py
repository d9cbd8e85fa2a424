"""The own label files of known benchmarks, turned into the folders that we read.

In: files as VCSL, VCDB, FIVR-200K and SVD publish them. Out: a folder: pairs.csv, labels.json
(boxes) or weak.json (copy or not); descriptors are linked in when they are given.

    VCSL   pairs.csv of query_id,reference_id and {"q-r": [[q_start, r_start, q_end, r_end], ...]}
    VCDB   text files of lines  video_a,video_b,start_a,end_a,start_b,end_b  as hh:mm:ss
    FIVR   {"query": {"ND": [ids], "DS": [ids], "CS": [ids], "IS": [ids]}}: weak
    SVD    lines  query candidate 0|1: weak
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from retrieval.errors import NotFound
from vcl_plugin.evaluation.folder import BadFolder, file_name, label_key, read_pairs

Box = tuple[float, float, float, float]
PairKey = tuple[str, str]
WEAK_FILE = "weak.json"
# FIVR's classes: near duplicates and duplicate scenes show the same footage, complementary and
# incident scenes show the same event filmed by somebody else.
FIVR_COPIES, FIVR_OTHERS = ("ND", "DS"), ("CS", "IS")


@dataclass(frozen=True)
class Imported:
    """Pairs of a benchmark. `boxes` where they are marked, `copies` where only that is known."""

    pairs: tuple[PairKey, ...]
    boxes: Mapping[PairKey, tuple[Box, ...]] = field(default_factory=dict)
    copies: Mapping[PairKey, bool] = field(default_factory=dict)


def read_vcsl(labels: Path, pairs: Path | None = None) -> Imported:
    """`label_file_uuid_total.json` and one of the `pair_file_*.csv`; without the latter the
    labelled pairs alone, for which an id must not hold a dash."""
    content = _read_json(labels)
    if pairs is not None:
        keys = read_pairs(pairs)
    else:
        keys = [_split_key(each, labels) for each in content]
    boxes = {
        key: tuple(_as_box(row, labels) for row in content[label_key(*key)])
        for key in keys
        if content.get(label_key(*key))
    }
    return Imported(tuple(keys), boxes)


def read_vcdb(folder: Path) -> Imported:
    """Annotation files of VCDB, one an event; each line is one copied stretch of two videos."""
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else [folder]
    if not files or not files[0].exists():
        raise NotFound(f"{folder} holds no annotation files (*.txt) of VCDB")
    boxes: dict[PairKey, list[Box]] = {}
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
            if not line.strip():
                continue
            parts = [each.strip() for each in line.split(",")]
            if len(parts) != 6:
                raise BadFolder(
                    f"{path}, line {number}: {line!r} has {len(parts)} fields; VCDB writes "
                    f"video,video,start,end,start,end"
                )
            one, other = (Path(each).stem for each in parts[:2])
            q_start, q_end, r_start, r_end = (_seconds(each, path, number) for each in parts[2:])
            boxes.setdefault((one, other), []).append((q_start, r_start, q_end, r_end))
    return Imported(tuple(boxes), {key: tuple(rows) for key, rows in boxes.items()})


def read_fivr(annotation: Path) -> Imported:
    """`annotation.json` of FIVR-200K as weak labels; same event, other camera is no copy."""
    copies: dict[PairKey, bool] = {}
    for query, classes in _read_json(annotation).items():
        for names, is_copy in ((FIVR_OTHERS, False), (FIVR_COPIES, True)):
            for name in names:
                copies.update({(query, each): is_copy for each in classes.get(name, ())})
    return Imported(tuple(copies), copies=copies)


def read_svd(path: Path) -> Imported:
    """Ground truth of SVD as weak labels."""
    copies: dict[PairKey, bool] = {}
    for number, line in enumerate(_read_text(path).splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 3 or parts[2] not in ("0", "1"):
            raise BadFolder(f"{path}, line {number}: {line!r} is not `query candidate 0|1`")
        copies[Path(parts[0]).stem, Path(parts[1]).stem] = parts[2] == "1"
    return Imported(tuple(copies), copies=copies)


READERS: Mapping[str, Callable[[Path], Imported]] = {
    "vcsl": read_vcsl,
    "vcdb": read_vcdb,
    "fivr": read_fivr,
    "svd": read_svd,
}


def write_import(imported: Imported, out: Path, features: Path | None = None) -> dict[str, int]:
    """Write the folder; returns how many pairs of each kind, and whose descriptors are missing.

    With `features`, a folder of `<id>.npy`, pairs whose descriptors are not there are left out:
    nobody has all videos of these benchmarks, many are gone from the web.
    """
    (out / "features").mkdir(parents=True, exist_ok=True)
    kept = list(imported.pairs)
    missing: set[str] = set()
    if features is not None:
        present = {}
        for video in sorted({each for pair in kept for each in pair}):
            source = features / f"{video}.npy"
            if source.exists():
                present[video] = source
            else:
                missing.add(video)
        kept = [pair for pair in kept if not missing & set(pair)]
        for video in {each for pair in kept for each in pair}:
            _link(present[video], out / "features" / f"{file_name(video)}.npy")
    with (out / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["query_id", "reference_id"])
        writer.writerows(kept)
    boxes = {
        label_key(*key): [list(box) for box in imported.boxes[key]]
        for key in kept
        if key in imported.boxes
    }
    (out / "labels.json").write_text(json.dumps(boxes), encoding="utf-8")
    if imported.copies:
        write_weak(out, {key: imported.copies[key] for key in kept if key in imported.copies})
    return {
        "pairs": len(kept),
        "with_boxes": len(boxes),
        "weak_copies": sum(imported.copies.get(key, False) for key in kept),
        "weak_others": sum(not imported.copies.get(key, True) for key in kept),
        "videos_without_descriptors": len(missing),
    }


def write_weak(folder: Path, copies: Mapping[PairKey, bool]) -> None:
    """Video-level labels beside pairs.csv: a list, so that any id may hold any character."""
    rows = [
        {"query_id": query, "reference_id": reference, "is_copy": is_copy}
        for (query, reference), is_copy in copies.items()
    ]
    (folder / WEAK_FILE).write_text(json.dumps(rows), encoding="utf-8")


def read_weak(folder: Path) -> dict[PairKey, bool]:
    """Video-level labels of a folder; none when it has no such file."""
    path = folder / WEAK_FILE
    if not path.exists():
        return {}
    rows: Iterable[Mapping[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    return {(str(row["query_id"]), str(row["reference_id"])): bool(row["is_copy"]) for row in rows}


def _link(source: Path, target: Path) -> None:
    if not target.exists():
        os.symlink(source.absolute(), target)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as reason:
        raise NotFound(f"{path} cannot be read ({reason.strerror})") from None


def _read_json(path: Path) -> dict[str, dict[str, list[str]]]:
    try:
        content = json.loads(_read_text(path))
    except ValueError as reason:
        raise BadFolder(f"{path} is no JSON ({reason})") from None
    if not isinstance(content, dict):
        raise BadFolder(f"{path} holds a {type(content).__name__}; it must be one JSON object")
    return content


def _split_key(key: str, path: Path) -> PairKey:
    query, separator, reference = key.partition("-")
    if not separator or "-" in reference:
        raise BadFolder(f"{path}: the key {key!r} can be cut in several ways; give the pair file")
    return query, reference


def _as_box(row: object, path: Path) -> Box:
    if not isinstance(row, list) or len(row) != 4:
        raise BadFolder(f"{path} holds the box {row!r}; it must be four numbers")
    q_start, r_start, q_end, r_end = (float(each) for each in row)
    return (q_start, r_start, q_end, r_end)


def _seconds(text: str, path: Path, line: int) -> float:
    """Seconds of hh:mm:ss, mm:ss or plain seconds."""
    try:
        total = 0.0
        for part in text.split(":"):
            total = 60 * total + float(part)
        return total
    except ValueError:
        raise BadFolder(f"{path}, line {line}: {text!r} is no time; VCDB writes hh:mm:ss") from None
