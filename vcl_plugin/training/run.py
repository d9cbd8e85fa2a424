"""A training run and its folder: start, go on after a kill, validate, keep the best weights.

In: a `Recipe` and a folder. Out: `best.safetensors`, `last.safetensors`, log and curves in it.

    recipe.json        every choice of the run
    checkpoint.pt      where it goes on; written beside its place and renamed
    log.jsonl          one line each few steps, one each validation
    curves.png         loss and validation F over steps
    best.safetensors   the averaged weights with the best validation F, and their threshold
    last.safetensors   the averaged weights of the last step
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from retrieval.errors import Refused
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.model.checkpoint import load_transvcl, open_transvcl, save_transvcl
from vcl_plugin.model.transvcl import TransVCL
from vcl_plugin.training.loop import Place, Trainer
from vcl_plugin.training.losses import Terms
from vcl_plugin.training.pairs import Alternating, PairSet, open_pairs
from vcl_plugin.training.pseudo import (
    AS_THEY_ARE,
    PseudoLabelled,
    Trust,
    label_pairs,
    measure_trust,
)
from vcl_plugin.training.recipe import Recipe
from vcl_plugin.training.validation import judge_network

log = logging.getLogger(__name__)

LOG_EVERY = 20  # steps
# What may differ between a checkpoint and the recipe that goes on from it.
FREE = frozenset({"threads", "checkpoint_seconds", "device"})


@dataclass
class Progress:
    """What a progress bar shows."""

    step: int
    steps: int
    loss: float
    f_score: float | None
    seconds_left: float


@dataclass
class Run:
    """One run in its folder. `train()` returns when the last step is done."""

    recipe: Recipe
    folder: Path
    on_progress: Callable[[Progress], None] = lambda progress: None
    on_views: Callable[[int, int], None] = lambda done, total: None
    processes: int = 1
    best: float = -1.0
    last_f: float | None = None
    seconds: float = 0.0  # of training, over all starts
    _log: list[dict[str, Any]] = field(default_factory=list)
    _is_told: bool = False  # that no curves can be drawn

    def train(self) -> Path:
        """Train to the last step, from the checkpoint if there is one; the best weights' path."""
        place = Place.from_environment()
        torch.set_num_threads(self.recipe.loop.threads)
        _join_group(place, self.recipe.loop.device)
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(self.recipe.loop.seed)
        model = self._first_model()
        trainer = Trainer(self.recipe, self._open(), model, place)
        self._resume(trainer)
        self._write("recipe.json", json.dumps(self.recipe.as_dict(), indent=2))
        self._train_from(trainer, place)
        if place.rank == 0:
            save_transvcl(trainer.network(), self.folder / "last.safetensors", self._facts(trainer))
            if not self.best_path.exists():
                self._keep_best(trainer)
            self._draw_curves()
            self._choose_threshold()
        return self.best_path

    @property
    def best_path(self) -> Path:
        return self.folder / "best.safetensors"

    def _first_model(self) -> TransVCL:
        model = TransVCL(self.recipe.network)
        if self.recipe.start is not None:
            start = load_transvcl(self.recipe.start)
            # Weights of a first phase without the encoder bring none: it starts anew.
            has_encoder = start.config.attention != "none"
            entries = widen_stem(start, model.config.channels)
            model.load_state_dict(entries, strict=has_encoder)
        return model

    def _open(self) -> PairSet:
        """The pairs to train on; those without boxes get a teacher's first."""
        labelled, others = open_pairs(self.recipe, processes=self.processes, on_views=self.on_views)
        if self.recipe.loop.supervision == "full" or not others:
            return labelled
        teacher = load_transvcl(self.recipe.pseudo.teacher or self._train_teacher())
        labels = self.folder / "pseudo.json"
        if not labels.exists():
            trust = self._trust_in(teacher)
            found = [label_pairs(teacher, each, self.recipe.pseudo, trust) for each in others]
            self._write("pseudo.json", json.dumps(found))
        stored = json.loads(labels.read_text(encoding="utf-8"))
        weight = self.recipe.loss.unlabelled
        marked = [
            PseudoLabelled(each, rows, weight) for each, rows in zip(others, stored, strict=True)
        ]
        marked = [each for each in marked if each.size]  # a size of 0 would mean without end
        if not marked:
            log.warning("the teacher is sure of no pair: this run learns from labelled ones alone")
            return labelled
        share = self.recipe.pseudo.labelled_share
        return Alternating([labelled, *marked], self.recipe.loop.seed, share)

    def _trust_in(self, teacher: TransVCL) -> Trust:
        """What the teacher's scores are worth, by the validation pairs; as they are without any."""
        validation = self.recipe.validation
        if validation.folder is None:
            return AS_THEY_ARE
        judged = judge_network(teacher, Folder(validation.folder)).pairs
        return measure_trust(judged, self.recipe.pseudo)

    def _train_teacher(self) -> Path:
        """A run of its own on the labelled pairs alone, inside this run's folder."""
        steps = self.recipe.pseudo.teacher_steps or self.recipe.loop.steps
        loop = replace(self.recipe.loop, supervision="full", steps=steps)
        data = replace(self.recipe.data, weak_folders=(), unlabelled_folders=())
        recipe = replace(self.recipe, name=f"{self.recipe.name}-teacher", loop=loop, data=data)
        folder = self.folder / "teacher"
        last = folder / "last.safetensors"
        if not last.exists():
            Run(recipe, folder, self.on_progress, self.on_views, self.processes).train()
        return last

    def _train_from(self, trainer: Trainer, place: Place) -> None:
        steps, every = self.recipe.loop.steps, self.recipe.validation.every
        started, first, before = time.monotonic(), trainer.step, self.seconds
        saved, loss = started, 0.0
        while trainer.step < steps:
            terms = trainer.advance()
            loss = 0.98 * loss + 0.02 * float(terms.total) if loss else float(terms.total)
            now = time.monotonic()
            self.seconds = before + now - started
            if place.rank:
                continue
            if trainer.step % LOG_EVERY == 0:
                self._note(trainer, terms)
                left = (now - started) / (trainer.step - first) * (steps - trainer.step)
                self.on_progress(Progress(trainer.step, steps, loss, self.last_f, left))
            is_end = trainer.step == steps
            if self.recipe.validation.folder and (trainer.step % every == 0 or is_end):
                self._validate(trainer)
                self._draw_curves()
            if now - saved >= self.recipe.loop.checkpoint_seconds or is_end:
                self._save(trainer)
                saved = time.monotonic()

    def _validate(self, trainer: Trainer) -> None:
        validation = self.recipe.validation
        assert validation.folder is not None
        judged = judge_network(trainer.network(), Folder(validation.folder), validation.pairs)
        self.last_f = judged.summary.f_score
        self._append({"step": trainer.step, "seconds": self.seconds, **judged.as_dict()})
        if self.last_f > self.best:
            self.best = self.last_f
            self._keep_best(trainer)

    def _keep_best(self, trainer: Trainer) -> None:
        save_transvcl(trainer.network(), self.best_path, self._facts(trainer))

    def _choose_threshold(self) -> None:
        """The threshold of the best weights, chosen on all validation pairs, into their file."""
        model, facts = open_transvcl(self.best_path)
        if self.recipe.validation.folder is None or "validation" in facts:
            return
        folder = Folder(self.recipe.validation.folder)
        judged = judge_network(model, folder)
        chosen = {"min_score": judged.threshold, "descriptor": read_descriptor(folder)}
        facts = {**facts, **chosen, "validation": judged.summary.as_dict()}
        save_transvcl(model, self.best_path, facts)

    def _facts(self, trainer: Trainer) -> dict[str, Any]:
        return {
            "name": self.recipe.name,
            "step": trainer.step,
            "pairs": trainer.step * self.recipe.loop.batch * trainer.place.world,
            "hours": round(self.seconds / 3600, 3),
            "validation_f_score": self.last_f,
        }

    def _save(self, trainer: Trainer) -> None:
        """A checkpoint that is complete or absent, whatever moment the kill comes."""
        partial = self.folder / f"checkpoint.{os.getpid()}.partial"
        content = {
            "trainer": trainer.state(),
            "recipe": json.dumps(self.recipe.as_dict(), sort_keys=True),
            "best": self.best,
            "last_f": -1.0 if self.last_f is None else self.last_f,
            "seconds": self.seconds,
        }
        torch.save(content, partial)
        os.replace(partial, self.folder / "checkpoint.pt")

    def _resume(self, trainer: Trainer) -> None:
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return
        content = torch.load(path, map_location=trainer.device, weights_only=True)
        change = _first_change(json.loads(content["recipe"]), self.recipe.as_dict())
        if change:
            raise Refused(
                f"{self.folder} holds a run with another {change}; name another run folder, or "
                f"remove this one to start anew"
            )
        trainer.load(content["trainer"])
        self.best, self.seconds = float(content["best"]), float(content["seconds"])
        self.last_f = None if content["last_f"] < 0 else float(content["last_f"])
        self._log = [row for row in _read_log(self.folder) if row["step"] <= trainer.step]
        lines = "".join(json.dumps(row) + "\n" for row in self._log)
        self._write("log.jsonl", lines)

    def _note(self, trainer: Trainer, terms: Terms) -> None:
        values = {name: round(float(each), 5) for name, each in terms._asdict().items()}
        self._append({"step": trainer.step, "seconds": round(self.seconds, 1), **values})

    def _append(self, row: dict[str, Any]) -> None:
        self._log.append(row)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _write(self, name: str, text: str) -> None:
        partial = self.folder / f"{name}.{os.getpid()}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.folder / name)

    def _draw_curves(self) -> None:
        """A picture for people: a run goes on without it where matplotlib is not installed."""
        from vcl_plugin.training.curves import draw_curves

        try:
            draw_curves(self._log, self.folder / "curves.png")
        except ModuleNotFoundError as reason:
            if not self._is_told:
                log.warning("no curves.png is drawn: %s; the numbers are in log.jsonl", reason)
            self._is_told = True


def widen_stem(model: TransVCL, channels: int) -> dict[str, Tensor]:
    """The weights for a picture of more channels: the new ones count for nothing yet."""
    entries = dict(model.state_dict())
    missing = channels - model.config.channels
    if missing > 0:
        name = "backbone.backbone.stem.conv.conv.weight"
        corners = entries[name].unflatten(1, (4, -1))  # (out, corner, channel, 3, 3)
        entries[name] = F.pad(corners, (0, 0, 0, 0, 0, missing)).flatten(1, 2)
    return entries


def read_descriptor(folder: Folder) -> str | None:
    """The descriptor of a folder of `vcl benchmark make`; of any other folder nobody knows it."""
    recipe = folder.path / "recipe.json"
    if not recipe.exists():
        return None
    found: str | None = json.loads(recipe.read_text(encoding="utf-8")).get("descriptor")
    return found


def _join_group(place: Place, device: str) -> None:
    if place.world > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")


def _read_log(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # the line that a kill left unfinished
    return rows


def _first_change(old: dict[str, Any], new: dict[str, Any], where: str = "") -> str:
    for name in sorted(set(old) | set(new)):
        before, after = old.get(name), new.get(name)
        if name in FREE or before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            if found := _first_change(before, after, f"{where}{name}."):
                return found
            continue
        return f"{where}{name} ({before!r}, not {after!r})"
    return ""
