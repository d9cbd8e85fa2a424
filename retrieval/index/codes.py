"""Codes for the rows of a new snapshot: by the old quantizers while they fit, else by new ones.

In: rows in half precision, and what searched them until now. Out: `CodedVectors`, self-tested.
Codes are trained here and never in a search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.index.selftest import SelfTest, run_self_test
from retrieval.index.vectors import (
    ROWS_A_LIST,
    CodedVectors,
    Codes,
    Vectors,
    chunks,
    count_lists,
    empty_codes,
    train_codes,
)

# Codes fit rows like those they were trained on. They are trained anew for so many times more,
TRAIN_AGAIN = 4
# or when so much less is found than when they were trained.
RECALL_LOSS = 0.01
# Lists visited at first, as a share of all; the self-test may set more.
FIRST_SHARE = 32


@dataclass(frozen=True)
class Training:
    """On how many rows codes were trained, and what the self-test found then."""

    rows: int = 0
    recall: float = 0.0


def encode_rows(
    rows: NDArray[np.float16], current: Vectors, training: Training
) -> tuple[CodedVectors, Training, SelfTest]:
    """Rows and their codes; training takes half of the time, so it is done when it must be."""
    if isinstance(current, CodedVectors) and len(rows) < TRAIN_AGAIN * training.rows:
        coded = _encode(empty_codes(current.codes), rows)
        test = run_self_test(coded)
        if test.recall_at_1 >= training.recall - RECALL_LOSS:
            return coded, training, test
    size = min(len(rows), ROWS_A_LIST * count_lists(len(rows)))
    chosen = np.random.default_rng(0).choice(len(rows), size=size, replace=False)
    sample = rows[np.sort(chosen)].astype(np.float32)
    coded = _encode(train_codes(sample, len(rows)), rows)
    test = run_self_test(coded)
    return coded, Training(len(rows), test.recall_at_1), test


def _encode(codes: Codes, rows: NDArray[np.float16]) -> CodedVectors:
    for positions in chunks(len(rows)):
        codes.add(rows[positions].astype(np.float32))
    return CodedVectors(codes, rows, probes=max(8, codes.nlist // FIRST_SHARE))
