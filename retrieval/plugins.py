"""Localizers, poolers, descriptors by name, through entry points: the engine imports no plugin.

In: a name such as "tn". Out: an object with the protocol below.
Third parties add names in their own package.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import UnknownPlugin
from retrieval.records import Segment

Array = NDArray[np.float32]


@runtime_checkable
class Localizer(Protocol):
    """Finds every copied segment between a query and its candidate references.

    Arrays are (frames, 256), one frame a second. `fingerprint` names the method, its weights and
    every parameter that can change a result; it is part of a pair's unique key. One that learnt
    from a descriptor may name its key as `descriptor`; `vcl doctor` then warns of another.
    """

    name: str
    fingerprint: str

    def localize(self, query: Array, reference: Array) -> list[Segment]: ...

    def localize_many(self, query: Array, references: Sequence[Array]) -> list[list[Segment]]: ...


@dataclass(frozen=True)
class Pooled:
    """What a pooler makes of one video: unit vectors and the seconds `[start, end)` of each.

    `weights` says how much each counts when it is searched with: a stretch of black, little.
    """

    vectors: Array  # (vectors, d)
    spans: Array  # (vectors, 2)
    weights: Array = None  # type: ignore[assignment]  # (vectors,); ones if not given

    def __post_init__(self) -> None:
        if self.weights is None:
            object.__setattr__(self, "weights", np.ones(len(self.vectors), np.float32))


@runtime_checkable
class Pooler(Protocol):
    """Turns a video's descriptors into the vectors that the index holds."""

    name: str
    fingerprint: str

    def pool(
        self, descriptors: Array, low_information: NDArray[np.bool_] | None = None
    ) -> Pooled: ...


def load_plugin(group: str, kind: str, name: str, **arguments: Any) -> Any:
    """What the entry point `name` of `group` makes of the arguments; `kind` is for messages."""
    found = {point.name: point for point in entry_points(group=group)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none (is the package installed?)"
        raise UnknownPlugin(f"no {kind} is called {name!r}; installed: {known}")
    factory = found[name].load()
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise UnknownPlugin(f"the {kind} {name!r} does not take that ({error})") from None
    return factory(**arguments)


def load_localizer(name: str, weights: str | Path | None = None, **parameters: Any) -> Localizer:
    """The localizer of that name; `weights` for those that learn, `parameters` for the rest."""
    arguments = dict(parameters) if weights is None else {"weights": weights, **parameters}
    localizer: Localizer = load_plugin("retrieval.localizers", "localizer", name, **arguments)
    return localizer


def load_pooler(name: str, **parameters: Any) -> Pooler:
    pooler: Pooler = load_plugin("retrieval.poolers", "pooler", name, **parameters)
    return pooler


def localizer_names() -> list[str]:
    return sorted(point.name for point in entry_points(group="retrieval.localizers"))
