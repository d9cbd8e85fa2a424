"""Everything that the pipeline finds in many pairs, before it is rated; in several processes.

In: weights, training pairs and a validation folder. Out: `Finding`s of both, and looks for limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retrieval.plugins import Array
from retrieval.records import Segment
from vcl_plugin.evaluation.folder import Folder, LabelledPair
from vcl_plugin.localize.boxes import iou_matrix
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.pipeline import Pipeline
from vcl_plugin.localize.rating import FACTS, Facts
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model.checkpoint import load_transvcl
from vcl_plugin.training.augment import TrainingPair, vary_pair
from vcl_plugin.training.limits import Looks, collect_looks
from vcl_plugin.training.pairs import PairSet
from vcl_plugin.training.recipe import Recipe

CANDIDATE_SCORE = 0.02  # detector scores from here on are worth a rating
JOB_PAIRS = 10
Run = Callable[[str, Sequence[range]], Iterator[list[Any]]]


@dataclass(frozen=True)
class Finding:
    """The candidates of one pair, and how well each of them meets the truth."""

    segments: list[Segment] = field(default_factory=list)
    facts: Facts = field(default_factory=lambda: np.zeros((0, len(FACTS))))
    ious: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # with the best true box
    logit: float = 0.0  # of the pair as a whole, see `pipeline.Candidates`


def find_pair(
    pipeline: Pipeline,
    query: Array,
    reference: Array,
    truth: Array | Sequence[Sequence[float]] | None,
) -> Finding:
    """All that the pipeline would rate in one pair."""
    groups = pipeline.find(query, reference)
    if not groups:
        return Finding()
    segments = [each for group in groups for each in group.segments]
    ious = np.zeros(len(segments))
    if truth is not None and len(truth):
        ious = iou_matrix([each.box for each in segments], list(truth)).max(axis=1)
    facts = np.concatenate([group.facts for group in groups])
    return Finding(segments, facts, ious.astype(np.float64), groups[0].logit)


def find_labelled(pipeline: Pipeline, folder: Folder, pair: LabelledPair) -> Finding:
    query, reference = (
        np.array(folder.load_features(each), np.float32)
        for each in (pair.query_id, pair.reference_id)
    )
    return find_pair(pipeline, query, reference, pair.truth)


def draw_pair(pairs: PairSet, recipe: Recipe, number: int) -> TrainingPair:
    """A training pair that the network has not met: from the far end of an endless set."""
    draw = np.random.default_rng([recipe.loop.seed, number, 3])
    pair = pairs.pair(number if pairs.size else 10**9 + number)
    return vary_pair(pair, recipe.augment, draw)


def draw_pairs(pairs: PairSet, recipe: Recipe, numbers: Iterable[int]) -> Iterator[TrainingPair]:
    """Those of the numbered pairs whose boxes are known."""
    for number in numbers:
        if pairs.size and number >= pairs.size:
            return
        pair = draw_pair(pairs, recipe, number)
        if pair.boxes is not None:
            yield pair


class Survey:
    """One network that looks at training pairs and at a validation folder; one a process."""

    def __init__(
        self, weights: Path, pairs: PairSet, recipe: Recipe, folder: Path, zoom: Zoom | None
    ) -> None:
        self.model = load_transvcl(weights)
        localizer = TransVCLLocalizer(self.model, min_score=CANDIDATE_SCORE, cascade="off")
        self.pipeline = Pipeline(localizer, zoom=zoom)
        self.pairs, self.recipe, self.folder, self.zoom = pairs, recipe, Folder(folder), zoom

    def learn(self, numbers: Sequence[int]) -> list[Finding]:
        chosen = draw_pairs(self.pairs, self.recipe, numbers)
        return [find_pair(self.pipeline, pair.query, pair.reference, pair.boxes) for pair in chosen]

    def judge(self, numbers: Sequence[int]) -> list[Finding]:
        return [
            find_labelled(self.pipeline, self.folder, self.folder.pairs[number])
            for number in numbers
        ]

    def look(self, numbers: Sequence[int]) -> list[Looks]:
        chosen = draw_pairs(self.pairs, self.recipe, numbers)
        return [collect_looks(self.model, chosen, self.zoom, CANDIDATE_SCORE)]


@dataclass(frozen=True)
class Findings:
    learnt: list[Finding]  # of training pairs
    judged: list[Finding]  # of all pairs of the validation folder, in their order
    looks: Looks


def find_all(
    weights: Path,
    pairs: PairSet,
    recipe: Recipe,
    folder: Folder,
    count: int,
    looked_at: int,
    zoom: Zoom | None,
    processes: int = 1,
    on_pairs: Callable[[int], None] = lambda count: None,
) -> Findings:
    """`count` training pairs and the folder described, `looked_at` of the former look by look."""
    jobs = {"learn": count, "judge": len(folder.pairs), "look": looked_at}
    numbers = {
        verb: [range(at, min(at + JOB_PAIRS, total)) for at in range(0, total, JOB_PAIRS)]
        for verb, total in jobs.items()
    }
    answers: dict[str, list[Any]] = {verb: [] for verb in jobs}
    arguments = (weights, pairs, recipe, folder.path, zoom)
    with _start(processes, arguments) as run:
        for verb, chunks in numbers.items():
            for chunk, answer in zip(chunks, run(verb, chunks), strict=True):
                answers[verb] += answer
                on_pairs(len(chunk))
    looks = Looks(*(np.concatenate(each) for each in zip(*answers["look"], strict=True)))
    return Findings(answers["learn"], answers["judge"], looks)


@contextmanager
def _start(processes: int, arguments: tuple[Any, ...]) -> Iterator[Run]:
    """What carries a job out: this process, or several that each load the network once."""
    if processes <= 1:
        survey = Survey(*arguments)
        yield lambda verb, chunks: (getattr(survey, verb)(chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_prepare, initargs=arguments
    ) as pool:
        yield lambda verb, chunks: pool.map(partial(_carry_out, verb), chunks)


_process: dict[str, Survey] = {}


def _prepare(*arguments: Any) -> None:
    torch.set_num_threads(1)
    _process["survey"] = Survey(*arguments)


def _carry_out(verb: str, numbers: Sequence[int]) -> list[Any]:
    answer: list[Any] = getattr(_process["survey"], verb)(numbers)
    return answer
