"""Is TransVCL ahead? Every method with the same ends, thresholds by one rule, and an interval.

Run: python benchmarks/compare.py VALIDATION TEST [-j 2] [-p dtw.max_gap=4] [--weights FILE]

Both are folders of `vcl benchmark make`. Every method gets the same refinement of ends. Two
thresholds are chosen for each on the validation folder alone: the best F, and few false alarms by
the rule of `validation.prefer_point`; for `transvcl` that is the threshold that its weights bring,
chosen so when they were finished. The test folder is then read once at either.
Differences in F come with a paired bootstrap interval: the same pairs are drawn anew for both.

`bypassed` is TransVCL by the same weights with the encoder left out, video-level head and all;
`detector` and `detector bypassed` are one look without tiles and rating, with refined ends. Answers
are kept in the folders' results, so that an interrupted comparison goes on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retrieval.plugins import Array, Localizer, load_localizer
from retrieval.records import Segment, Span
from vcl_plugin.evaluation.folder import Folder, LabelledPair, label_key
from vcl_plugin.evaluation.metrics import JudgedPair, copy_share, harmonic_mean, summarize
from vcl_plugin.evaluation.runner import Method, evaluate
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.ends import RefinedLocalizer
from vcl_plugin.localize.pipeline import Pipeline
from vcl_plugin.localize.weights import SHIPPED_WEIGHTS, Finish, open_weights
from vcl_plugin.model.checkpoint import load_transvcl
from vcl_plugin.model.transvcl import TransVCL
from vcl_plugin.training.finishing import judge_candidates
from vcl_plugin.training.loop import without_encoder
from vcl_plugin.training.validation import LOWEST_SCORE, bound_false_alarms, prefer_point

OURS = ("transvcl", "bypassed", "detector", "detector bypassed")
RIVALS = ("hv", "tn", "dp", "dtw", "spd")
MAX_FAR = 0.02
RULES = ("few false alarms", "best F")
DRAWS = 2000
Judged = list[JudgedPair]


def open_finished(weights: str | Path) -> tuple[TransVCL, Finish]:
    """The network, and the rating and thresholds that the file brings."""
    model, facts = open_weights(weights)
    if facts.finish is None:
        sys.exit(f"{weights} brings no rating; finish it by `vcl finish`")
    return model, facts.finish


class Candidates:
    """All that `transvcl` would choose from, rated, before any threshold."""

    name = "candidates"

    def __init__(self, weights: Path, is_bypassed: bool) -> None:
        model, finish = open_finished(weights)
        detector = TransVCLLocalizer(
            without_encoder(model) if is_bypassed else model,
            min_score=finish.candidate_score,
            cascade="off",
        )
        self.pipeline = Pipeline(detector, finish.rating, zoom=finish.zoom, support=finish.support)
        support = f"{finish.support.weight:g}-{finish.support.most:g}"
        parts = detector.fingerprint, finish.rating.fingerprint, support
        self.fingerprint = f"candidates-{'-'.join(parts)}"

    def localize(self, query: Array, reference: Array) -> list[Segment]:
        query, reference = np.array(query, np.float32), np.array(reference, np.float32)
        return self.pipeline.rate(self.pipeline.find(query, reference))

    def localize_many(self, query: Array, references: Sequence[Array]) -> list[list[Segment]]:
        return [self.localize(query, each) for each in references]


@dataclass(frozen=True)
class Contestant(Method):
    """A method as it takes part: with all its candidates and refined ends."""

    def load(self) -> Localizer:
        torch.set_num_threads(1)
        if self.name not in OURS:
            options = {"min_score": LOWEST_SCORE} if self.name == "spd" else {}
            return RefinedLocalizer(load_localizer(self.name, **options, **self.parameters))
        weights = Path(self.weights or SHIPPED_WEIGHTS)
        is_bypassed = self.name.endswith("bypassed")
        if not self.name.startswith("detector"):
            return Candidates(weights, is_bypassed)
        model = load_transvcl(weights)
        return RefinedLocalizer(
            TransVCLLocalizer(
                without_encoder(model) if is_bypassed else model,
                min_score=LOWEST_SCORE,
                cascade="off",
            )
        )


def ask(method: Contestant, folder: Folder, processes: int) -> Judged:
    """Everything the method finds in a folder."""
    journal = folder.path / "results" / f"{method.load().fingerprint}.jsonl"
    return evaluate(folder, method, processes, journal).pairs


def cut(pairs: Judged, threshold: float) -> Judged:
    """The pairs as the method answers them at a threshold: first cut, then chosen from."""
    answered = []
    for pair in pairs:
        found = [
            Segment(Span(box[0], box[2]), Span(box[1], box[3]), score)
            for box, score in zip(pair.found, pair.scores, strict=True)
        ]
        asked = LabelledPair(
            pair.query_id, pair.reference_id, tuple(pair.truth), pair.topic, pair.kind, pair.source
        )
        judged = judge_candidates(asked, found, threshold)
        frames = {"query_frames": pair.query_frames, "reference_frames": pair.reference_frames}
        answered.append(replace(judged, kind=pair.kind, **frames))
    return answered


def choose_thresholds(pairs: Judged) -> dict[str, float]:
    """By rule, on validation pairs; candidates are the scores that were given."""
    scores = np.unique(np.round([score for pair in pairs for score in pair.scores], 4))
    if len(scores) > 150:
        scores = np.quantile(scores, np.linspace(0, 1, 150))
    answers = [cut(pairs, threshold) for threshold in scores.tolist()]
    f_scores = [summarize(each).f_score for each in answers]
    bounds = [bound_false_alarms(each) for each in answers]
    return {
        "few false alarms": float(scores[prefer_point(f_scores, bounds, MAX_FAR)]),
        "best F": float(scores[int(np.argmax(f_scores))]),
    }


def draw_leads(ours: Judged, theirs: Judged, seed: int = 0) -> tuple[float, float, float]:
    """How far our F is above theirs: measured, and the middle 95 % of `DRAWS` bootstrap draws."""
    sides = [
        np.array([[pair.recall for pair in side], [pair.precision for pair in side]])
        for side in (ours, theirs)
    ]
    draw = np.random.default_rng(seed)
    everything = np.arange(len(ours))
    leads = [
        f_score(sides[0][:, chosen]) - f_score(sides[1][:, chosen])
        for chosen in [everything, *draw.integers(0, len(ours), (DRAWS, len(ours)))]
    ]
    low, high = np.quantile(leads[1:], (0.025, 0.975))
    return leads[0], float(low), float(high)


def f_score(measures: np.ndarray) -> float:
    """F of (2, pairs) recalls and precisions; ones say nothing, see `metrics.summarize`."""
    recall, precision = (
        float(row[row != 1].mean()) if (row != 1).any() else 1.0 for row in measures
    )
    return harmonic_mean(precision, recall)


def groups_of(folder: Folder) -> dict[str, Callable[[JudgedPair], bool]]:
    """Kinds of copies, by the folder's own details."""
    details = json.loads((folder.path / "details.json").read_text(encoding="utf-8"))

    def segments(pair: JudgedPair) -> list[dict[str, Any]]:
        key = label_key(pair.query_id, pair.reference_id)
        found: list[dict[str, Any]] = details[key].get("segments", [])
        return found

    def shortest(pair: JudgedPair) -> float:
        return min((box[2] - box[0] for box in pair.truth), default=np.inf)

    def is_fast_or_slow(pair: JudgedPair) -> bool:
        speeds = [(box[3] - box[1]) / (box[2] - box[0]) for box in pair.truth]
        return any(0.5 <= each <= 0.8 or 1.25 <= each <= 2 for each in speeds)

    return {
        "a copy below 10 s": lambda pair: pair.is_copy and shortest(pair) < 10,
        "all copies 10 s or longer": lambda pair: pair.is_copy and shortest(pair) >= 10,
        "copied share below 20 %": lambda pair: pair.is_copy and copy_share(pair) < 0.2,
        "a reversed copy": lambda pair: any(each["is_reversed"] for each in segments(pair)),
        "speed 0.5-0.8 or 1.25-2": is_fast_or_slow,
    }


def report(
    rule: str, folder: Folder, on_test: dict[str, Judged], on_validation: dict[str, Judged]
) -> None:
    print(f"\n## Threshold for {rule}\n")
    print("| method | F | recall | precision | FRR | FAR | validation: F, FAR | transvcl's lead |")
    print("|---|---|---|---|---|---|---|---|")
    for name, judged in on_test.items():
        numbers, before = summarize(judged), summarize(on_validation[name])
        lead, low, high = draw_leads(on_test["transvcl"], judged)
        said = "" if name == "transvcl" else f"{lead:+.3f} [{low:+.3f}, {high:+.3f}]"
        cells = (numbers.f_score, numbers.recall, numbers.precision, numbers.frr, numbers.far)
        print(
            f"| {name} | {' | '.join(f'{each:.3f}' for each in cells)} | "
            f"{before.f_score:.3f}, {before.far:.3f} | {said} |"
        )
    print("\n| F on pairs with | pairs | " + " | ".join(on_test) + " |")
    print("|---" * (2 + len(on_test)) + "|")
    for title, belongs in groups_of(folder).items():
        rows = [[pair for pair in judged if belongs(pair)] for judged in on_test.values()]
        cells = [f"{summarize(each).f_score:.3f}" for each in rows]
        print(f"| {title} | {len(rows[0])} | {' | '.join(cells)} |")
    print("\n| false alarms on | pairs | " + " | ".join(on_test) + " |")
    print("|---" * (2 + len(on_test)) + "|")
    negatives = [pair for pair in on_test["transvcl"] if not pair.is_copy]
    for kind in sorted({pair.kind for pair in negatives}):
        rows = [[pair for pair in judged if pair.kind == kind] for judged in on_test.values()]
        cells = [f"{summarize(each).far:.2f}" for each in rows]
        print(f"| {kind} | {len(rows[0])} | {' | '.join(cells)} |")


def read_parameters(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`dtw.max_gap=4` and so on, by method."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        method, _, parameter = name.partition(".")
        found.setdefault(method, {})[parameter] = ast.literal_eval(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("validation", type=Path, help="folder that thresholds are chosen on")
    parser.add_argument("test", type=Path, help="folder that is only read at those thresholds")
    parser.add_argument("--methods", nargs="*", default=[*OURS, *RIVALS])
    parser.add_argument("--weights", help="TransVCL's weights; those that ship if not given")
    parser.add_argument("-p", "--parameter", action="append", default=[], help="dtw.max_gap=4")
    parser.add_argument("-j", "--processes", type=int, default=1)
    arguments = parser.parse_args()
    parameters = read_parameters(arguments.parameter)
    validation, test = Folder(arguments.validation), Folder(arguments.test)
    judged: dict[str, tuple[dict[str, float], Judged, Judged]] = {}
    for name in arguments.methods:
        weights = arguments.weights if name in OURS else None
        method = Contestant(name, weights, parameters.get(name, {}))
        chosen_on = ask(method, validation, arguments.processes)
        thresholds = choose_thresholds(chosen_on)
        if name == "transvcl":  # as it ships: finishing chose it by that rule, with its support
            _, finish = open_finished(weights or SHIPPED_WEIGHTS)
            thresholds["few false alarms"] = finish.min_rating
        print(name, thresholds, file=sys.stderr, flush=True)
        judged[name] = thresholds, chosen_on, ask(method, test, arguments.processes)
    for rule in RULES:
        on_test = {name: cut(t, at[rule]) for name, (at, _, t) in judged.items()}
        on_validation = {name: cut(v, at[rule]) for name, (at, v, _) in judged.items()}
        report(rule, test, on_test, on_validation)


if __name__ == "__main__":
    main()
