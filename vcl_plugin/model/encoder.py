"""Feature enhancement with attention: section "Feature Enhancement" of the paper, eq. 1 to 3.

In: two padded frame sequences (batch, frames, 256) with their masks.
Out: both enhanced, class token first: (batch, 1 + frames, 256); and the tokens before they met.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from vcl_plugin.model.attention import AttentionLayer
from vcl_plugin.model.config import TransVCLConfig


def temporal_encoding(positions: int, dimension: int) -> Tensor:
    """f_tem of eq. 1: sine in even, cosine in odd dimensions; (positions, dimension)."""
    # By numpy: it is wanted even where torch builds a network without values (`load_transvcl`).
    pair = np.arange(0, dimension, 2)
    angle = np.arange(positions)[:, None] * np.exp(-pair * (math.log(10_000.0) / dimension))
    table = np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(positions, dimension)
    return torch.from_numpy(table.astype(np.float32))


class Enhanced(NamedTuple):
    query: Tensor  # (B, 1 + n, 256), token first
    reference: Tensor  # (B, 1 + m, 256)
    query_token: Tensor  # (B, 256) after the self layer: depends on the query alone
    reference_token: Tensor  # (B, 256)


class FeatureEnhancement(nn.Module):
    """F_output = T(F_input) of eq. 2, with T = [self, cross] of eq. 3.

    One self layer and one cross layer, each serving both sides. The names of the parameters are
    those of the authors' checkpoints.
    """

    encoding: Tensor

    def __init__(self, config: TransVCLConfig) -> None:
        super().__init__()
        self.config = config
        tokens = 1 if config.has_shared_token else 2
        self.cls_token = nn.Parameter(torch.zeros(1, tokens, config.dimension))
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        # Without attention a weights file has no use for 1.3 million parameters.
        layers = 0 if config.attention == "none" else 2
        self.layers = nn.ModuleList(AttentionLayer(config) for _ in range(layers))
        # Not part of a checkpoint: it follows from the config.
        table = temporal_encoding(config.max_frames + 1, config.dimension) * config.encoding_scale
        self.register_buffer("encoding", table, persistent=False)

    def forward(self, query: Tensor, reference: Tensor, q_mask: Tensor, r_mask: Tensor) -> Enhanced:
        # 1. Temporal encoding and class token (eq. 1).
        q, q_mask = self.embed(query, q_mask, side=0), _with_token(q_mask)  # (B, 1 + n, 256)
        r, r_mask = self.embed(reference, r_mask, side=1), _with_token(r_mask)  # (B, 1 + m, 256)
        if self.config.attention == "none":
            return Enhanced(q, r, q[:, 0], r[:, 0])
        # 2. Self attention: each video by itself.
        to_itself, to_other = self.layers
        q, r = to_itself(q, q, q_mask, q_mask), to_itself(r, r, r_mask, r_mask)
        query_token, reference_token = q[:, 0], r[:, 0]
        # 3. Cross attention. In the release the reference looks at the query already updated.
        updated = to_other(q, r, q_mask, r_mask)
        seen = q if self.config.has_symmetric_cross else updated
        return Enhanced(updated, to_other(r, seen, r_mask, q_mask), query_token, reference_token)

    def embed(self, features: Tensor, mask: Tensor, side: int) -> Tensor:
        """[token; frames] + encoding (eq. 1); `side` is 0 for the query, 1 for the reference."""
        frames = features.shape[1]
        scaled = features * self.config.feature_scale
        token = self.cls_token[:, min(side, self.cls_token.shape[1] - 1)]  # (1, 256)
        token = token[:, None].expand(len(features), 1, -1)
        if self.config.token_start == "mean":
            count = mask.sum(dim=1).clamp(min=1)[:, None, None]
            token = token + (scaled * mask[:, :, None]).sum(dim=1, keepdim=True) / count
        if self.config.has_encoded_token:
            return torch.cat([token, scaled], dim=1) + self.encoding[: frames + 1]
        # The release adds the encoding first: the token has no position, frame 0 has position 0.
        return torch.cat([token, scaled + self.encoding[:frames]], dim=1)


def _with_token(mask: Tensor) -> Tensor:
    return torch.cat([mask.new_ones(len(mask), 1), mask], dim=1)
