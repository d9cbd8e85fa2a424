"""From a video's descriptors to the few vectors that stand for it in the index.

In: descriptors (frames, d), one a second. Out: unit vectors and the seconds each of them covers.
Called by the engine through the entry point `retrieval.poolers`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retrieval.plugins import Array, Pooled

WINDOW_SECONDS = 8
STRIDE_SECONDS = 4
# A black frame or a title card says nothing about the footage around it, but a video made of
# nothing else must still have a vector.
LOW_INFORMATION_WEIGHT = 0.05


class MeanPooler:
    """Weighted means over the whole video and over overlapping windows of it.

    A short copy vanishes in the mean of a long video; a window of eight seconds keeps it.
    """

    name = "mean"

    def __init__(self, window: int = WINDOW_SECONDS, stride: int = STRIDE_SECONDS) -> None:
        self.window = window
        self.stride = stride
        self.fingerprint = f"mean-{window}-{stride}"

    def pool(self, descriptors: Array, low_information: NDArray[np.bool_] | None = None) -> Pooled:
        """The whole video first, then its windows in time order.

        >>> MeanPooler().pool(np.eye(12, dtype=np.float32)).spans.tolist()
        [[0.0, 12.0], [0.0, 8.0], [4.0, 12.0]]
        """
        frames = len(descriptors)
        spans = [(0, frames)]
        if frames > self.window:
            last = frames - self.window
            starts = [*range(0, last, self.stride), last]
            spans += [(start, start + self.window) for start in starts]
        weights = np.ones(frames, dtype=np.float64)
        if low_information is not None:
            weights[low_information] = LOW_INFORMATION_WEIGHT
        # Prefix sums: the cost does not depend on how much the windows overlap.
        weighted = np.cumsum(descriptors * weights[:, None], axis=0, dtype=np.float64)
        prefix = np.concatenate([np.zeros((1, descriptors.shape[1])), weighted])
        edges = np.asarray(spans)
        sums = prefix[edges[:, 1]] - prefix[edges[:, 0]]
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        vectors = (sums / np.maximum(lengths, 1e-12)).astype(np.float32)
        return Pooled(vectors, edges.astype(np.float32))
