"""Class tokens as index vectors: what TransVCL's encoder makes of a stretch by itself.

In: descriptors (frames, 256), one a second. Out: the token after the self layer, of the whole video
and of its stretches. Loaded by the engine through the entry point `class_token`.

After the cross layer the token depends on the pair and could not be indexed; after the self layer
it knows one video only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retrieval.arrays import unit
from retrieval.index.pooling import (
    MAX_SECONDS,
    SECONDS_A_VECTOR,
    cover,
    weigh_frames,
    weigh_spans,
)
from retrieval.plugins import Array, Pooled
from vcl_plugin.model.attention import AttentionLayer
from vcl_plugin.model.checkpoint import fingerprint_weights, open_transvcl

BATCH = 256  # stretches of one length at a time


class ClassTokenPooler:
    """Pooler `class_token`: the stretches of `mean`, each as the encoder sums it up.

    `weights` is a file that `load_transvcl` reads; None is the one shipped with the package. A
    video longer than the network's map is summed up by its first frames, as far as the map goes.
    """

    name = "class_token"

    def __init__(
        self,
        weights: str | Path | None = None,
        seconds: int = SECONDS_A_VECTOR,
        longest: int = MAX_SECONDS,
    ) -> None:
        model, facts = open_transvcl(weights)
        model.requires_grad_(False)
        self.descriptor = facts.get("descriptor")
        self.encoder, self.config = model.feat_encoding, model.config
        self.seconds, self.longest = seconds, longest
        self.fingerprint = f"token-{fingerprint_weights(model)}-{seconds}-{longest}"

    def pool(self, descriptors: Array, low_information: NDArray[np.bool_] | None = None) -> Pooled:
        """The whole video first, then its stretches in time order."""
        weights = weigh_frames(len(descriptors), low_information)
        spans = cover(descriptors, weights, self.seconds, self.longest)
        rows = torch.from_numpy(unit(descriptors))
        tokens = np.zeros((len(spans), self.config.dimension), np.float32)
        lengths = np.minimum(spans[:, 1] - spans[:, 0], self.config.max_frames)
        for length in np.unique(lengths):
            places = np.flatnonzero(lengths == length)
            for group in np.array_split(places, -(-len(places) // BATCH)):
                steps = torch.arange(int(length))
                frames = rows[torch.from_numpy(spans[group, :1]) + steps]  # (group, length, 256)
                tokens[group] = self._tell(frames).numpy()
        return Pooled(unit(tokens), spans.astype(np.float32), weigh_spans(spans, weights))

    @torch.inference_mode()
    def _tell(self, frames: Tensor) -> Tensor:
        """(stretches, frames, 256) to the token of each, (stretches, 256)."""
        mask = torch.ones(frames.shape[:2], dtype=torch.bool)
        x = self.encoder.embed(frames, mask, side=1)  # (stretches, 1 + frames, 256)
        if self.config.attention == "none":
            return x[:, 0]
        to_itself = self.encoder.layers[0]
        assert isinstance(to_itself, AttentionLayer)
        whole = torch.ones(x.shape[:2], dtype=torch.bool)
        told: Tensor = to_itself(x[:, :1], x, whole[:, :1], whole)  # only the token is updated
        return told[:, 0]
