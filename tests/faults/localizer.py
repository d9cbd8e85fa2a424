"""A localizer with weak spots: the temporal network, and references on which it breaks.

In: descriptor arrays, some with a mark in their first row. Out: segments, or a crash, or nothing.
Loaded by real workers through an entry point, as anybody's localizer would be.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retrieval.plugins import Array
from retrieval.records import Segment
from vcl_plugin.align.network import TemporalNetwork

GATE = "FAULTS_GATE"  # while a file lies there, pairs are begun and not finished
READY = "FAULTS_READY"  # a folder in which each process that has loaded leaves its number
STICKY = "FAULTS_STICKY"  # a file with the number of the process whose device is gone
PACE = "FAULTS_PACE"  # seconds that a pair takes besides its work, without using a core
ENTRY_POINT = """[retrieval.localizers]
marked = tests.faults.localizer:MarkedLocalizer
newer = tests.faults.localizer:NewerLocalizer
"""


class Mark(enum.IntEnum):
    """What a reference does to the process that compares it."""

    ABORT = 1
    HANG = 2
    RAISE = 3


def mark(rows: Array, how: Mark) -> Array:
    """The rows with a first frame that only `MarkedLocalizer` finds strange."""
    marked = rows.copy()
    marked[0] = 0
    marked[0, 0] = how
    return marked


class MarkedLocalizer:
    """Localizes with `tn`; breaks where it is told to."""

    name = "marked"
    fingerprint = "marked-1"

    def __init__(self) -> None:
        self.method = TemporalNetwork()
        self.gate = Path(os.environ[GATE])
        self.pace = float(os.environ[PACE])
        self.sticky = Path(os.environ[STICKY])
        Path(os.environ[READY], str(os.getpid())).touch()

    def localize(self, query: Array, reference: Array) -> list[Segment]:
        if query is not reference:  # nobody waits for what a process makes up to test itself
            self._wait()
        if self.sticky.exists() and self.sticky.read_text() == str(os.getpid()):
            raise RuntimeError("CUDA error: device lost")
        if not np.any(reference[0, 1:]):
            _break(Mark(int(reference[0, 0])))
        return self.method.localize(query, reference)

    def _wait(self) -> None:
        while self.gate.exists():
            time.sleep(0.02)
        time.sleep(self.pace)

    def localize_many(self, query: Array, references: Sequence[Array]) -> list[list[Segment]]:
        return [self.localize(query, reference) for reference in references]


class NewerLocalizer(MarkedLocalizer):
    """The next version of it, as while a site is upgraded."""

    name = "newer"
    fingerprint = "marked-2"


def _break(how: Mark) -> None:
    match how:
        case Mark.ABORT:
            os.abort()
        case Mark.HANG:
            while True:
                time.sleep(3600)
        case Mark.RAISE:
            raise ArithmeticError("this reference cannot be compared")
