"""One method over one benchmark folder: in several processes, and again where it stopped.

In: a `Folder` and a `Method`. Out: a `Report` with the numbers of the paper's tables.
The numbers are those of `metrics`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from retrieval.errors import BadDescriptors, NotFound
from retrieval.plugins import Localizer, load_localizer
from vcl_plugin.evaluation.folder import BadFolder, Folder, LabelledPair
from vcl_plugin.evaluation.metrics import (
    JudgedPair,
    Summary,
    length_group,
    macro_over_queries,
    matching_average_precision,
    share_group,
    speed_group,
    summarize,
    summarize_by,
)

BATCH = 16  # references of one query handed to a localizer at once
MAX_NAMED = 20  # missing files named in a report; the rest are counted


@dataclass(frozen=True)
class Method:
    """A localizer by name, so that each process can load its own."""

    name: str
    weights: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Localizer:
        return load_localizer(self.name, self.weights, **self.parameters)


@dataclass(frozen=True)
class Job:
    """A query and some of its references; the unit of work."""

    query_id: str
    reference_ids: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a method said of one pair. `problem` is set instead when it could not be asked."""

    query_id: str
    reference_id: str
    boxes: list[list[float]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    query_frames: int = 0
    reference_frames: int = 0
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Report:
    method: str
    fingerprint: str
    pairs: list[JudgedPair]
    total: int
    problems: list[str]
    seconds: float

    @property
    def summary(self) -> Summary:
        return summarize(self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; fractions, seconds of localizing summed over all pairs and processes."""
        macro_recall, macro_precision = macro_over_queries(self.pairs)
        by_topic = summarize_by(self.pairs, lambda pair: pair.topic)
        by_share = summarize_by(self.pairs, share_group)
        by_length = summarize_by(self.pairs, length_group)
        by_speed = summarize_by(self.pairs, speed_group)
        by_kind = summarize_by(self.pairs, lambda pair: pair.kind)
        return {
            "method": self.method,
            "fingerprint": self.fingerprint,
            **self.summary.as_dict(),
            "seconds": round(self.seconds, 3),
            "macro_recall": macro_recall,
            "macro_precision": macro_precision,
            "average_precision": matching_average_precision(self.pairs),
            "pairs_total": self.total,
            "pairs_missing": self.total - len(self.pairs),
            "problems": self.problems[:MAX_NAMED],
            "by_topic": {name: each.as_dict() for name, each in by_topic.items()},
            "by_copy_share": {name: each.as_dict() for name, each in by_share.items()},
            "by_length": {name: each.as_dict() for name, each in by_length.items()},
            "by_speed": {name: each.as_dict() for name, each in by_speed.items()},
            "by_kind": {name: each.as_dict() for name, each in by_kind.items()},
        }


def evaluate(
    folder: Folder,
    method: Method,
    processes: int = 1,
    journal: Path | None = None,
    on_pair: Callable[[int], None] = lambda count: None,
) -> Report:
    """Localize every pair of the folder and judge the result.

    Pairs whose descriptors are missing or unreadable are left out, counted and named. With a
    `journal`, answers are written down as they come; those that an earlier run wrote for the same
    descriptors and the same fingerprint are taken from there. `on_pair` is told of finished pairs.
    """
    localizer = method.load()
    known = _read_journal(journal, folder) if journal else {}
    wanted = [(pair.query_id, pair.reference_id) for pair in folder.pairs]
    answers = {key: known[key] for key in wanted if key in known}
    on_pair(len(answers))
    jobs = list(_plan([key for key in wanted if key not in answers]))
    with _Journal(journal, folder) as notes:
        for done in _work(jobs, folder, method, localizer, processes):
            for answer in done:
                answers[answer.query_id, answer.reference_id] = answer
                notes.write(answer)
            on_pair(len(done))
    judged = [_judge(pair, answers[pair.query_id, pair.reference_id]) for pair in folder.pairs]
    pairs = [pair for pair in judged if pair is not None]
    problems = sorted({answer.problem for answer in answers.values() if answer.problem})
    if not pairs:
        reason = problems[0] if problems else "pairs.csv is empty"
        raise NotFound(f"no pair of {folder.path} can be evaluated: {reason}")
    return Report(
        method=method.name,
        fingerprint=localizer.fingerprint,
        pairs=pairs,
        total=len(folder.pairs),
        problems=problems,
        seconds=sum(answer.seconds for answer in answers.values()),
    )


def journal_path(folder: Folder, method: Method) -> Path:
    """Where the answers of a method on a folder are kept: one file per fingerprint."""
    return folder.path / "results" / f"{method.load().fingerprint}.jsonl"


def _plan(pairs: Iterable[tuple[str, str]]) -> Iterator[Job]:
    """Jobs of one query each, so that a localizer prepares the query once."""
    by_query: dict[str, list[str]] = {}
    for query, reference in pairs:
        by_query.setdefault(query, []).append(reference)
    for query, references in by_query.items():
        for start in range(0, len(references), BATCH):
            yield Job(query, tuple(references[start : start + BATCH]))


def _work(
    jobs: list[Job], folder: Folder, method: Method, localizer: Localizer, processes: int
) -> Iterator[list[Answer]]:
    if processes <= 1 or len(jobs) < 2:
        for job in jobs:
            yield run_job(job, folder, localizer)
        return
    # Forked children of a process that has used torch or faiss hang; spawned ones do not.
    with ProcessPoolExecutor(
        min(processes, len(jobs)),
        mp_context=get_context("spawn"),
        initializer=_prepare_process,
        initargs=(folder.path, method),
    ) as pool:
        waiting = [pool.submit(_run_in_process, job) for job in jobs]
        for each in as_completed(waiting):
            yield each.result()


_process: dict[str, Any] = {}


def _prepare_process(path: Path, method: Method) -> None:
    _process["folder"], _process["localizer"] = Folder(path), method.load()


def _run_in_process(job: Job) -> list[Answer]:
    return run_job(job, _process["folder"], _process["localizer"])


def run_job(job: Job, folder: Folder, localizer: Localizer) -> list[Answer]:
    """Answers to every pair of the job, those that could not be asked included."""
    try:
        query = folder.load_features(job.query_id)
    except (NotFound, BadFolder, BadDescriptors) as reason:
        return [Answer(job.query_id, each, problem=str(reason)) for each in job.reference_ids]
    answers, references = [], {}
    for reference_id in job.reference_ids:
        try:
            references[reference_id] = folder.load_features(reference_id)
        except (NotFound, BadFolder, BadDescriptors) as reason:
            answers.append(Answer(job.query_id, reference_id, problem=str(reason)))
    started = time.perf_counter()
    found = localizer.localize_many(query, list(references.values()))
    seconds = (time.perf_counter() - started) / max(len(references), 1)
    for (reference_id, reference), segments in zip(references.items(), found, strict=True):
        answers.append(
            Answer(
                query_id=job.query_id,
                reference_id=reference_id,
                boxes=[list(segment.box) for segment in segments],
                scores=[segment.score for segment in segments],
                query_frames=len(query),
                reference_frames=len(reference),
                seconds=seconds,
            )
        )
    return answers


def _judge(pair: LabelledPair, answer: Answer) -> JudgedPair | None:
    if answer.problem:
        return None
    return JudgedPair(
        query_id=pair.query_id,
        reference_id=pair.reference_id,
        found=answer.boxes,
        truth=pair.truth,
        scores=answer.scores,
        query_frames=answer.query_frames,
        reference_frames=answer.reference_frames,
        topic=pair.topic,
        kind=pair.kind,
    )


class _Journal:
    """Appends answers as lines; each line tells the state of the descriptor files it is about."""

    def __init__(self, path: Path | None, folder: Folder) -> None:
        self.path, self.folder = path, folder
        self.file: Any = None

    def __enter__(self) -> _Journal:
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self.path.open("a", encoding="utf-8")
        return self

    def write(self, answer: Answer) -> None:
        if self.file and not answer.problem:
            stamp = _stamp(self.folder, answer.query_id, answer.reference_id)
            self.file.write(json.dumps({**vars(answer), "stamp": stamp}) + "\n")
            self.file.flush()

    def __exit__(self, *_: object) -> None:
        if self.file:
            self.file.close()


def _read_journal(path: Path, folder: Folder) -> dict[tuple[str, str], Answer]:
    if not path.exists():
        return {}
    answers = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                row = json.loads(line)
                stamp = row.pop("stamp")
                answer = Answer(**row)
            except (ValueError, KeyError, TypeError):
                continue  # the line that an interrupted run left unfinished
            if stamp == _stamp(folder, answer.query_id, answer.reference_id):
                answers[answer.query_id, answer.reference_id] = answer
    return answers


def _stamp(folder: Folder, *ids: str) -> list[int] | None:
    """Size and time of the files behind an answer; a file written anew makes the answer void."""
    try:
        states = [os.stat(folder.feature_path(each)) for each in ids]
    except OSError:
        return None
    return [number for state in states for number in (state.st_size, state.st_mtime_ns)]
