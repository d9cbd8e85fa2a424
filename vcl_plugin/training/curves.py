"""Curves of a training run as a picture.

In: rows of a run's log. Out: a PNG with losses above and validation F below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TERMS = ("box", "objectness", "classes", "video", "token")
SMOOTHING = 25  # rows of the log in one moving mean


def draw_curves(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Nothing is drawn before there are two rows to join."""
    losses = [row for row in rows if "total" in row]
    judged = [row for row in rows if "f_score" in row]
    if len(losses) < 2:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 7), sharex=True)
    steps = [row["step"] for row in losses]
    for name in TERMS:
        above.plot(steps, _smooth([row[name] for row in losses]), label=name, linewidth=1)
    above.set_yscale("log")
    above.set_ylabel("loss terms")
    above.legend(ncol=3, fontsize=8)
    for name in ("f_score", "recall", "precision"):
        below.plot([row["step"] for row in judged], [row[name] for row in judged], label=name)
    below.set_ylabel("validation")
    below.set_xlabel("step")
    if judged:
        below.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _smooth(values: Sequence[float]) -> np.ndarray:
    width = min(SMOOTHING, len(values))
    padded = np.concatenate([[values[0]] * (width - 1), values])
    return np.convolve(padded, np.ones(width) / width, mode="valid").clip(min=1e-6)
