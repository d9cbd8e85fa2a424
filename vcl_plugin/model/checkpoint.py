"""Weights files: our safetensors with config and checksum, and the authors' `.pth`.

In: a path. Out: a `TransVCL` ready for inference, or a file on disk that is complete or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from retrieval.errors import MissingWeights
from vcl_plugin.model.config import PAPER, TransVCLConfig
from vcl_plugin.model.transvcl import TransVCL

SHIPPED_WEIGHTS = Path(__file__).parents[1] / "weights" / "transvcl-small.safetensors"
FORMAT = "transvcl-1"
LARGEST = 100  # times the release's own number


def load_transvcl(path: str | Path) -> TransVCL:
    """The network in `path`, in eval mode; `.safetensors` is ours, anything else the authors'."""
    return open_transvcl(path)[0]


def open_transvcl(weights: str | Path | None) -> tuple[TransVCL, dict[str, Any]]:
    """The network and the facts beside it, read at once; None is the file that ships."""
    path = SHIPPED_WEIGHTS if weights is None else Path(weights)
    if weights is None and not path.is_file():
        raise MissingWeights(
            f"this installation ships no trained weights ({path.name} is absent); pass "
            f"weights=PATH, ours or the authors' .pth, or train with `vcl train`"
        )
    config, entries, facts = _read(path)
    with torch.device("meta"):  # no time spent on an initialisation that is overwritten
        model = TransVCL(config)
    _check_entries(path, model.state_dict(), entries)
    model.load_state_dict(dict(entries), strict=True, assign=True)
    return model.eval(), facts


def read_facts(path: str | Path) -> dict[str, Any]:
    """What training wrote beside the weights, as it is stored. Empty for a `.pth`.

    A localizer takes `min_score` and `descriptor` from it; the rest is for people.
    """
    return _read(Path(path))[2]


def save_transvcl(
    model: TransVCL,
    path: str | Path,
    facts: Mapping[str, Any] | None = None,
    has_half_matrices: bool = False,
) -> str:
    """Write weights, config, fingerprint and training facts; returns the fingerprint.

    Written beside its place and renamed, so that a reader never meets half a file.
    `has_half_matrices` rounds matrices and kernels, not norms, to 16 bits: half the size.
    """
    target = Path(path)
    entries = {name: value.detach().cpu().contiguous() for name, value in _entries(model).items()}
    if has_half_matrices:
        entries = {name: each.half() if each.dim() > 1 else each for name, each in entries.items()}
    # Of the values as a reader gets them, whatever their precision in the file.
    fingerprint = _digest(model.config, _widened(entries))
    metadata = {
        "format": FORMAT,
        "config": model.config.to_json(),
        "fingerprint": fingerprint,
        "facts": json.dumps(dict(facts or {}), sort_keys=True),
    }
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        save_file(entries, partial, metadata)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return fingerprint


def fingerprint_weights(model: TransVCL) -> str:
    """Twelve hex digits over the config and every weight: two models agree or differ by it."""
    return _digest(model.config, _entries(model))


def _entries(model: TransVCL) -> dict[str, Tensor]:
    return dict(model.state_dict())


def _widened(entries: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: value.float() if value.dtype == torch.float16 else value
        for name, value in entries.items()
    }


def _digest(config: TransVCLConfig, entries: Mapping[str, Tensor]) -> str:
    return digest_weights(config.to_json(), entries)


def digest_weights(config: str, entries: Mapping[str, Tensor]) -> str:
    """Twelve hex digits over a config and every weight."""
    digest = hashlib.sha256(config.encode())
    for name in sorted(entries):
        value = entries[name].detach().cpu().contiguous()
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:12]


def _read(path: Path) -> tuple[TransVCLConfig, dict[str, Tensor], dict[str, Any]]:
    if not path.is_file():
        raise MissingWeights(f"there is no weights file at {path}; check the path or train one")
    if path.suffix == ".safetensors":
        return _read_ours(path)
    return PAPER, _read_authors(path), {}


def _read_ours(path: Path) -> tuple[TransVCLConfig, dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            entries = _widened({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except Exception as reason:  # garbage raises whatever the reader stumbles over
        raise MissingWeights(
            f"{path} is no readable safetensors file ({reason}); copy it again"
        ) from None
    if metadata.get("format") != FORMAT:
        raise MissingWeights(
            f"{path} says format {metadata.get('format')!r} instead of {FORMAT!r}; it was not "
            f"written by save_transvcl"
        )
    try:
        config = TransVCLConfig.from_json(metadata["config"])
        _refuse_absurd(config)
        facts = json.loads(metadata.get("facts", "{}"))
        if not isinstance(facts, dict):
            raise ValueError(f"its facts are a {type(facts).__name__}")
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as reason:
        raise MissingWeights(
            f"{path} holds a config this version cannot read ({reason}); use the version that "
            f"wrote it"
        ) from None
    try:
        is_whole = _digest(config, entries) == metadata.get("fingerprint")
    except TypeError:  # numbers of a kind that we never write
        is_whole = False
    if not is_whole:
        raise MissingWeights(
            f"{path} does not match its own fingerprint {metadata.get('fingerprint')}; the file "
            f"is damaged, copy it again"
        )
    return config, entries, facts


def _refuse_absurd(config: TransVCLConfig) -> None:
    """A file may ask for a network that fills the memory before a weight is compared."""
    for each in fields(config):
        value, usual = getattr(config, each.name), getattr(PAPER, each.name)
        is_number = type(value) in (int, float) and type(usual) in (int, float)
        if type(value) is not type(usual) and not is_number:
            raise ValueError(f"{each.name} is {value!r}")
        if is_number and not 0 <= value <= LARGEST * max(usual, 1):
            raise ValueError(f"{each.name} is {value!r}, which no network of ours has")


def _read_authors(path: Path) -> dict[str, Tensor]:
    """The authors' layout: a dict whose key `model` holds the state dict. Nothing is unpickled."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as reason:  # garbage raises whatever the reader stumbles over, KeyError too
        first_line = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise MissingWeights(
            f"{path} is no checkpoint that can be read without running its code ({first_line})"
        ) from None
    entries = content.get("model") if isinstance(content, dict) else None
    if not isinstance(entries, Mapping):
        raise MissingWeights(
            f"{path} has no entry 'model' with a state dict; is it a TransVCL checkpoint?"
        )
    return dict(entries)


def _check_entries(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Any]) -> None:
    """Names the first entry that is missing, misshapen or unknown, in the network's order."""
    for name, value in expected.items():
        if name not in found:
            raise MissingWeights(f"{path} lacks {name} {tuple(value.shape)}; wrong network?")
        given = found[name]
        if not isinstance(given, Tensor) or given.shape != value.shape:
            shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise MissingWeights(
                f"{path} holds {name} as {shape} instead of {tuple(value.shape)}; wrong network?"
            )
        if given.is_floating_point() and not torch.isfinite(given).all():
            raise MissingWeights(f"{path} holds a value in {name} that is not finite; damaged?")
    unknown = [name for name in found if name not in expected]
    if unknown:
        raise MissingWeights(f"{path} holds {unknown[0]}, which this network has not")
