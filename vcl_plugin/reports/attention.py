"""Where the network looked at a pair: its enhanced map, and the attention weights behind that.

In: a model and the descriptors of two videos. Out: a map and an `Attention`, as numpy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retrieval.arrays import as_descriptors
from retrieval.errors import Refused
from retrieval.plugins import Array

if TYPE_CHECKING:
    from vcl_plugin.model import TransVCL

Map = NDArray[np.float32]


@dataclass(frozen=True)
class Attention:
    """Where one network looked, heads averaged; each row sums to at most 1."""

    query: Map  # (n, n): query frames at query frames
    reference: Map  # (m, m)
    cross: Map  # (n, m): query frames at reference frames
    token: Map  # (m,): the query's class token at reference frames


def look_inside(model: TransVCL, query: Array, reference: Array) -> tuple[Map, Attention]:
    """The enhanced map of a pair and the attention weights behind it.

    A pair longer than one map of the network is refused: attention does not cross tiles.
    """
    import torch

    q = as_descriptors(query, "query", model.config.dimension)
    r = as_descriptors(reference, "reference", model.config.dimension)
    if max(len(q), len(r)) > model.config.max_frames:
        raise Refused(
            f"videos of {len(q)} and {len(r)} seconds do not fit the network's map of "
            f"{model.config.max_frames}; show a part of them"
        )
    encoder = model.feat_encoding
    sides = [torch.from_numpy(each.copy())[None] for each in (q, r)]
    masks = [torch.ones(each.shape[:2], dtype=torch.bool) for each in sides]
    with torch.inference_mode():
        output = model(sides[0], sides[1], masks[0], masks[1])
        q_rows, r_rows = (
            encoder.embed(frames, mask, side)
            for side, (frames, mask) in enumerate(zip(sides, masks, strict=True))
        )
        to_itself, to_other = encoder.layers
        whole = [torch.ones(each.shape[:2], dtype=torch.bool) for each in (q_rows, r_rows)]
        within = [_weights(to_itself, each, each) for each in (q_rows, r_rows)]
        q_rows = to_itself(q_rows, q_rows, whole[0], whole[0])
        r_rows = to_itself(r_rows, r_rows, whole[1], whole[1])
        across = _weights(to_other, q_rows, r_rows)
    attention = Attention(
        query=within[0][1:, 1:],
        reference=within[1][1:, 1:],
        cross=across[1:, 1:],
        token=across[0, 1:],
    )
    return output.similarity[0].numpy(), attention


def _weights(layer: Any, x: Any, source: Any) -> Map:
    """(rows of x, rows of source): normalised attention of a layer, averaged over its heads."""
    import torch

    from vcl_plugin.model.attention import attend_fully, feature_map

    Q = layer.q_proj(x)[0].unflatten(1, (layer.heads, -1)).transpose(0, 1)  # (H, L, D)
    K = layer.k_proj(source)[0].unflatten(1, (layer.heads, -1)).transpose(0, 1)  # (H, S, D)
    if layer.attend is attend_fully:
        weights = (Q @ K.transpose(1, 2) / Q.shape[2] ** 0.5).softmax(dim=2)
    else:
        products = feature_map(Q) @ feature_map(K).transpose(1, 2)
        weights = products / products.sum(dim=2, keepdim=True)
    averaged: torch.Tensor = weights.mean(dim=0)
    return averaged.numpy()
