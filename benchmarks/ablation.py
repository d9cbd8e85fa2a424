"""What each part of TransVCL is worth: the same small budget for every arm, several seeds.

Run: python benchmarks/ablation.py --out runs/ablation --judge FOLDER \\
         --set 'data.geometry=[...]' --set data.images=DIR ... --set validation.folder=FOLDER

Arms and budget stand in `ablation.toml` beside this file. The threshold of every run is chosen on
its validation folder, its numbers come from the folder `--judge`; neither is a test folder. A run
that is there already is not run again and a killed one goes on where it was, so the command may be
given again and again. `--table` only prints what is there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retrieval.plugins import Localizer
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.metrics import JudgedPair, summarize
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.model import load_transvcl
from vcl_plugin.training.recipe import Recipe, read_recipe
from vcl_plugin.training.run import Run
from vcl_plugin.training.validation import above, choose_threshold

# After so few steps scores are tiny, and the more so the more pairs without a copy were learnt
# from: from 0.01 on, arms with many negatives would lose copies that they rank well.
THRESHOLDS = tuple(np.geomspace(0.0005, 0.9, 76).tolist())
COLUMNS = ("f_score", "recall", "precision", "frr", "far")
Numbers = dict[str, float]


@dataclass(frozen=True)
class Arm:
    name: str
    says: str
    set: tuple[str, ...]
    after: str = ""  # the arm whose network of the same seed it starts from and is taught by


@dataclass(frozen=True)
class Study:
    recipe: Path
    seeds: tuple[int, ...]
    set: tuple[str, ...]
    arms: tuple[Arm, ...]

    @classmethod
    def read(cls, path: Path) -> Study:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        arms = tuple(
            Arm(name, each["says"], tuple(each["set"]), each.get("after", ""))
            for name, each in content["arms"].items()
        )
        recipe = path.parent / content["recipe"]
        return cls(recipe, tuple(content["seeds"]), tuple(content["set"]), arms)

    def recipe_of(self, arm: Arm, seed: int, out: Path, more: Sequence[str]) -> Recipe:
        own = [*self.set, *more, *arm.set, f"loop.seed={seed}"]
        if arm.after:
            first = run_folder(out, arm.after, seed) / "last.safetensors"
            own += [f"start={first}", f"pseudo.teacher={first}"]
        return read_recipe(self.recipe, own)


def run_folder(out: Path, arm: str, seed: int) -> Path:
    return out / f"{arm}-{seed}"


def run_arm(recipe: Recipe, folder: Path, judge: Folder) -> dict[str, Any]:
    """Train, choose thresholds on validation, judge; the row that was kept if there is one."""
    kept = folder / "result.json"
    if kept.exists():
        row: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return row
    assert recipe.validation.folder is not None, "set validation.folder"
    Run(recipe, folder).train()
    started = time.process_time()
    network = load_transvcl(folder / "last.safetensors")
    localizer = TransVCLLocalizer(network, min_score=THRESHOLDS[0])
    row = {"seconds": json.loads((folder / "log.jsonl").read_text().splitlines()[-1])["seconds"]}
    longest = recipe.data.max_frames
    chosen = localize_short(localizer, Folder(recipe.validation.folder), longest)
    judged = localize_short(localizer, judge, longest)
    threshold, _ = choose_threshold(chosen, THRESHOLDS)
    numbers = summarize([above(each, threshold) for each in judged])
    row |= {"threshold": threshold, **numbers.as_dict()}
    row["judging_seconds"] = round(time.process_time() - started, 1)
    kept.write_text(json.dumps(row, indent=1), encoding="utf-8")
    return row


def localize_short(localizer: Localizer, folder: Folder, longest: int) -> list[JudgedPair]:
    """Pairs as long as those trained on: the small picture was never meant for longer ones."""
    judged: list[JudgedPair] = []
    left_out: list[str] = []
    for pair in folder.pairs:
        query = folder.load_features(pair.query_id)
        reference = folder.load_features(pair.reference_id)
        if max(len(query), len(reference)) > longest:
            left_out.append(f"{pair.query_id} {pair.reference_id}")
            continue
        found = localizer.localize(query, reference)
        judged.append(
            JudgedPair(
                query_id=pair.query_id,
                reference_id=pair.reference_id,
                found=[each.box for each in found],
                truth=pair.truth,
                scores=[each.score for each in found],
            )
        )
    if left_out:
        print(
            f"{folder.path}: {len(left_out)} of {len(folder.pairs)} pairs are left out, because a "
            f"video has more than {longest} frames: {', '.join(left_out)}",
            file=sys.stderr,
        )
    return judged


def print_table(study: Study, out: Path) -> None:
    """Mean and standard deviation over the seeds that are done."""
    print("| arm | seeds | F | recall | precision | FRR | FAR |")
    print("|---|---|---|---|---|---|---|")
    for arm in study.arms:
        rows: list[Numbers] = []
        for seed in study.seeds:
            kept = run_folder(out, arm.name, seed) / "result.json"
            if kept.exists():
                rows.append(json.loads(kept.read_text(encoding="utf-8")))
        if rows:
            cells = [_spread([row[name] for row in rows]) for name in COLUMNS]
            print(f"| {arm.says} | {len(rows)} | {' | '.join(cells)} |")


def _spread(values: Sequence[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--study", type=Path, default=Path(__file__).with_suffix(".toml"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--judge", type=Path, help="folder of pairs that the arms are judged on")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, repeated")
    parser.add_argument("--arms", nargs="*", help="only these arms")
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    arguments = parser.parse_args()
    study = Study.read(arguments.study)
    if not arguments.table:
        if arguments.judge is None:
            parser.error("--judge FOLDER is needed to run arms")
        torch.set_num_threads(1)
        judge = Folder(arguments.judge)
        for seed in study.seeds:  # seed by seed, so that a table of all arms is there early
            for arm in study.arms:
                if arguments.arms and arm.name not in arguments.arms:
                    continue
                recipe = study.recipe_of(arm, seed, arguments.out, arguments.set)
                row = run_arm(recipe, run_folder(arguments.out, arm.name, seed), judge)
                print(arm.name, seed, json.dumps(row), file=sys.stderr, flush=True)
    print_table(study, arguments.out)


if __name__ == "__main__":
    main()
