"""Better parameters for a method, found on a validation folder.

In: a `Folder` and a method's name. Out: `Trial`s, best first.
Never run it on the folder that the final numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.errors import Refused
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.metrics import Summary
from vcl_plugin.evaluation.runner import Method, evaluate


@dataclass(frozen=True)
class Trial:
    parameters: Mapping[str, Any]
    summary: Summary


def tune(
    folder: Folder,
    method: Method,
    grid: Mapping[str, Sequence[Any]] | None = None,
    processes: int = 1,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Try each parameter's values in turn, keep the best F-score, until a round changes nothing.

    A full grid over eight parameters would be thousands of runs; turn by turn it is a few dozen.
    """
    grid = getattr(type(method.load()), "GRID", {}) if grid is None else grid
    if not grid:
        raise Refused(f"method {method.name!r} names no parameters to tune")
    tried: dict[str, Trial] = {}

    def run(parameters: Mapping[str, Any]) -> Trial:
        key = repr(sorted(parameters.items()))
        if key not in tried:
            candidate = Method(method.name, method.weights, dict(parameters))
            tried[key] = Trial(dict(parameters), evaluate(folder, candidate, processes).summary)
            on_trial(tried[key])
        return tried[key]

    best = run(method.parameters)
    while True:
        before = best
        for name, values in grid.items():
            for value in values:
                trial = run({**best.parameters, name: value})
                if trial.summary.f_score > best.summary.f_score:
                    best = trial
        if best is before:
            break
    return sorted(tried.values(), key=lambda trial: -trial.summary.f_score)
