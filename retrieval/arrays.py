"""What may enter as a video's descriptors, checked in one place.

In: whatever a caller has: a list, a memory map, float16, a slice with strides.
Out: a contiguous float32 array (frames, dimension), or `BadDescriptors` with the reason; rows of
unit length and cosines for those who compare.
Called at the door of the store, the index and every localizer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import BadDescriptors
from retrieval.plugins import Array


def as_descriptors(array: Any, what: str = "query", dimension: int = 256) -> Array:
    """`array` as (frames, dimension) float32, contiguous; what already is so is not copied.

    `what` names the array in the error: "query", "reference 3", a file name.

    >>> as_descriptors(np.ones((2, 4), np.float16), dimension=4).dtype
    dtype('float32')
    """
    try:
        found = np.asarray(array)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise BadDescriptors(
            f"{what} is no array of descriptors ({reason}); pass numbers of shape "
            f"(frames, {dimension})",
            code="not_an_array",
        ) from None
    if found.dtype.kind not in "fiu":
        raise BadDescriptors(
            f"{what} holds {found.dtype} instead of numbers; pass float32 of shape "
            f"(frames, {dimension})",
            code="not_an_array",
        )
    # An empty list is (0,): the missing frames are the news, not its missing second axis.
    if found.ndim >= 1 and found.shape[0] == 0:
        raise BadDescriptors(
            f"{what} has no frames; was its video decoded to the end?", code="no_frames"
        )
    if found.ndim != 2 or found.shape[1] != dimension:
        raise BadDescriptors(
            f"{what} has shape {found.shape}; descriptors are (frames, {dimension}), one row a "
            f"second",
            code="wrong_dimension",
        )
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf and is reported below
        descriptors: Array = np.ascontiguousarray(found, dtype=np.float32)
    if not np.isfinite(descriptors).all():
        row, column = np.argwhere(~np.isfinite(descriptors))[0]
        raise BadDescriptors(
            f"{what} holds {descriptors[row, column]} at frame {row}, dimension {column}; compute "
            f"its descriptors again",
            code="not_finite",
        )
    return descriptors


def unit(rows: NDArray[np.floating]) -> Array:
    """Every row scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


def cosine_map(query: Array, reference: Array) -> Array:
    """Cosine of every query frame (rows) with every reference frame (columns).

    >>> cosine_map(np.eye(2), np.array([[0, 3]]))
    array([[0.],
           [1.]], dtype=float32)
    """
    one, other = (unit(np.asarray(side, np.float32)) for side in (query, reference))
    similarity: Array = one @ other.T
    return similarity
