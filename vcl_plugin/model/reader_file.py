"""Files of a line reader: safetensors with its config, its fingerprint and facts beside it.

In: a path. Out: a `LineReader` and `ReaderFacts`, or a file on disk that is complete or absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from retrieval.errors import MissingWeights
from vcl_plugin.model.checkpoint import digest_weights
from vcl_plugin.model.reader import LineReader, ReaderConfig

FORMAT = "lines-1"


@dataclass(frozen=True)
class ReaderFacts:
    """What belongs to a reader besides its weights."""

    min_score: float = 0.5  # segments below are not reported
    descriptor: str | None = None  # fingerprint of the descriptor that it learnt from
    history: Mapping[str, Any] = field(default_factory=dict)  # for people: pairs, steps, numbers


def is_reader_file(path: str | Path) -> bool:
    """Whether a file says that it holds a line reader; False if it cannot be read as ours."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (OSError, SafetensorError):
        return False


def open_reader(path: str | Path) -> tuple[LineReader, ReaderFacts, str]:
    """The network in eval mode, its facts, and twelve hex digits that name its weights."""
    path = Path(path)
    if not path.is_file():
        raise MissingWeights(f"there is no weights file at {path}; check the path or train one")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as reason:
        raise MissingWeights(
            f"{path} is no readable safetensors file ({reason}); copy it again"
        ) from None
    if metadata.get("format") != FORMAT:
        raise MissingWeights(
            f"{path} says format {metadata.get('format')!r} instead of {FORMAT!r}; it holds no "
            "line reader"
        )
    try:
        reader = LineReader(ReaderConfig.from_json(metadata["config"]))
        facts = ReaderFacts(**json.loads(metadata.get("facts", "{}")))
        reader.load_state_dict(entries, strict=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as reason:
        raise MissingWeights(
            f"{path} holds a network or facts that this version cannot read ({reason}); use the "
            "version that wrote it"
        ) from None
    digest = digest_weights(reader.config.to_json(), reader.state_dict())
    if digest != metadata.get("fingerprint"):
        raise MissingWeights(
            f"{path} does not match its own fingerprint {metadata.get('fingerprint')}; the file "
            "is damaged, copy it again"
        )
    return reader.eval(), facts, digest


def save_reader(reader: LineReader, path: str | Path, facts: ReaderFacts) -> str:
    """Writes weights, config, fingerprint and facts; returns the fingerprint."""
    target = Path(path)
    entries = {name: each.detach().cpu().contiguous() for name, each in reader.state_dict().items()}
    digest = digest_weights(reader.config.to_json(), entries)
    metadata = {
        "format": FORMAT,
        "config": reader.config.to_json(),
        "fingerprint": digest,
        "facts": json.dumps(asdict(facts), sort_keys=True),
    }
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        save_file(entries, partial, metadata)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return digest
