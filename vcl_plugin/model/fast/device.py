"""Where the network runs, and how many pictures at once.

In: "auto", "cpu", "cuda" or "cuda:N". Out: a torch device that exists, or `BadSetting`; and a
batch that halves itself when the device's memory does not suffice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from retrieval.errors import BadSetting


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" is the first CUDA device, or the CPU without one."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise BadSetting(f"device is {name!r}; use auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda:0" if count else "cpu")
    if name.startswith("cuda"):
        wanted = int(name.partition(":")[2] or 0)
        if wanted >= count:
            found = f"only {count} of them" if count else "no CUDA device"
            raise BadSetting(f"device is {name!r}, but torch sees {found}; use cpu or auto")
        return torch.device(f"cuda:{wanted}")
    return torch.device("cpu")


class HalvingBatch:
    """Runs pictures in batches of at most `size`; out of memory, it halves `size` for good."""

    def __init__(self, run: Callable[[Tensor], Tensor], size: int) -> None:
        self._run = run
        self.size = size

    def run(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        """One result a picture, in their order. A single picture that does not fit is an error."""
        done: list[Tensor] = []
        while len(done) < len(pictures):
            batch = pictures[len(done) : len(done) + self.size]
            try:
                done.extend(self._run(torch.stack(list(batch))))
            except torch.OutOfMemoryError:
                if len(batch) == 1:
                    raise
                self.size = max(1, len(batch) // 2)
                torch.cuda.empty_cache()
        return done
