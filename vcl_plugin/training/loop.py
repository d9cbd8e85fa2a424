"""The training loop: one step, and everything that must survive a kill.

In: a recipe and its pairs. Out: a `Trainer` whose `network()` is the averaged model.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from retrieval.errors import Refused
from vcl_plugin.model.transvcl import TransVCL, TransVCLOutput
from vcl_plugin.training.batches import Batch, Batches
from vcl_plugin.training.losses import Terms, TokenQueue, measure_loss
from vcl_plugin.training.pairs import PairSet
from vcl_plugin.training.recipe import Loop, Recipe


@dataclass(frozen=True)
class Place:
    """This process among those that train together; torchrun sets the variables."""

    rank: int = 0
    world: int = 1

    @classmethod
    def from_environment(cls) -> Place:
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


ALONE = Place()


def rate_at(step: int, loop: Loop, first: int = 0) -> float:
    """Share of the full rate: a straight warm-up from `first` on, under half a cosine to the end.

    >>> rate_at(0, Loop(steps=100, warmup=10)), rate_at(99, Loop(warmup=9, final_rate=1.0))
    (0.1, 1.0)
    """
    if step < first:
        return 0.0
    warm = min(1.0, (step - first + 1) / max(loop.warmup, 1))
    way = min(step / max(loop.steps, 1), 1.0)
    cosine = 0.5 * (1 + math.cos(math.pi * way))
    return warm * (loop.final_rate + (1 - loop.final_rate) * cosine)


class Trainer:
    """Model, average, optimizer and queue of one run, at one step.

    `state()` and `load()` are the whole of it: a trainer that loads a state goes on bit for bit.
    """

    def __init__(self, recipe: Recipe, pairs: PairSet, model: TransVCL, place: Place = ALONE):
        self.recipe, self.place = recipe, place
        self.device = torch.device(recipe.loop.device)
        self.model = model.to(self.device).train()
        self.average = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = _make_optimizer(self.model, recipe.loop)
        self.batches = Batches(
            pairs, recipe.augment, recipe.loop.batch, recipe.loop.seed, place.rank, place.world
        )
        self.queue = TokenQueue(recipe.loss.token_queue, model.config.dimension)
        self.step = 0
        # Walking through the modules each step would cost as much as a small layer.
        self._parameters = list(self.model.parameters())
        self._floats = _floating(self.average), _floating(self.model)
        self._others = _whole(self.average), _whole(self.model)
        self._wrapped: nn.Module = self.model
        if place.world > 1:
            self._wrapped = nn.parallel.DistributedDataParallel(
                self.model, find_unused_parameters=True
            )

    def advance(self) -> Terms:
        """One step; returns the terms of its loss, detached."""
        loop = self.recipe.loop
        self._set_rates()
        self._set_bypass(self.step < loop.bypass)
        batch = self.batches.at(self.step).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        terms = self._measure(batch)
        terms.total.backward()
        nn.utils.clip_grad_norm_(self._parameters, loop.clip)
        self.optimizer.step()
        self._update_average()
        self.step += 1
        return Terms(*(each.detach() for each in terms))

    def network(self) -> TransVCL:
        """The averaged model in eval mode, without the encoder as long as that is untrained."""
        if self.step > self.recipe.loop.bypass:
            return self.average
        return without_encoder(self.average)

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "queue": self.queue.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.queue.load(state["queue"])

    def _measure(self, batch: Batch) -> Terms:
        is_mixed = self.recipe.loop.precision == "mixed" and self.device.type == "cuda"
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=is_mixed):
            output: TransVCLOutput = self._wrapped(
                batch.query, batch.reference, batch.query_mask, batch.reference_mask
            )
        if not torch.isfinite(output.raw).all():
            raise Refused(
                f"the network's answers are no numbers at step {self.step}; lower loop.rate or "
                f"loop.clip, then start again from the last checkpoint"
            )
        return measure_loss(
            output, batch.pairs, self.model.grid, self.model.config.map_size, self.recipe.loss,
            None if self.step < self.recipe.loop.bypass else self.queue,
        )  # fmt: skip

    def _set_rates(self) -> None:
        loop = self.recipe.loop
        for group in self.optimizer.param_groups:
            is_encoder = group["is_encoder"]
            first = loop.bypass if is_encoder else 0
            scale = loop.encoder_rate if is_encoder else 1.0
            group["lr"] = loop.rate * scale * rate_at(self.step, loop, first)

    def _set_bypass(self, is_on: bool) -> None:
        config = self.model.config
        self.model.feat_encoding.config = replace(config, attention="none") if is_on else config

    @torch.no_grad()
    def _update_average(self) -> None:
        """A moving average, short at first, so that the initial weights do not rule it."""
        keep = min(self.recipe.loop.ema, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(*self._floats, 1 - keep)
        for mine, theirs in zip(*self._others, strict=True):
            mine.copy_(theirs)


def without_encoder(model: TransVCL) -> TransVCL:
    """The same network with its enhancement bypassed, in eval mode."""
    bypassed = TransVCL(replace(model.config, attention="none"))
    names = bypassed.state_dict().keys()
    bypassed.load_state_dict({name: model.state_dict()[name] for name in names})
    return bypassed.eval()


def _floating(model: nn.Module) -> list[Tensor]:
    return [each for each in _tensors(model) if each.dtype.is_floating_point]


def _whole(model: nn.Module) -> list[Tensor]:
    return [each for each in _tensors(model) if not each.dtype.is_floating_point]


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from (each.data for each in model.parameters())
    yield from model.buffers()


def _make_optimizer(model: TransVCL, loop: Loop) -> torch.optim.Optimizer:
    """Four groups: encoder or detector, with decay or (norms, biases, the token) without."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        is_encoder = name.startswith("feat_encoding.")
        has_decay = parameter.dim() > 1 and "cls_token" not in name
        groups.setdefault((is_encoder, has_decay), []).append(parameter)
    listed: list[dict[str, Any]] = [
        {"params": each, "is_encoder": is_encoder, "weight_decay": loop.decay if decays else 0.0}
        for (is_encoder, decays), each in sorted(groups.items(), key=lambda item: item[0])
    ]
    if loop.optimizer == "sgd":
        return torch.optim.SGD(listed, lr=loop.rate, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(listed, lr=loop.rate, betas=(0.9, 0.99), fused=True)
