"""Attention between two frame sequences: the layer that both enhancement steps are made of.

In: a sequence to update (batch, frames, 256), a source to look at, and their masks.
Out: the updated sequence, same shape.
`frozen` computes the same numbers with the source summed up once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vcl_plugin.model.config import TransVCLConfig

# Keeps the normaliser of a source without frames away from zero.
EPSILON = 1e-6


def feature_map(x: Tensor) -> Tensor:
    """phi(x) = elu(x) + 1: positive, so that a sum of keys can stand for a softmax."""
    return F.elu(x) + 1.0


def attend_linear(Q: Tensor, K: Tensor, V: Tensor, q_mask: Tensor, k_mask: Tensor) -> Tensor:
    """phi(Q) (sum phi(K)^T V) / (phi(Q) . sum phi(K)); supplement, "Linear Transformer".

    Q (B, L, H, D); K, V (B, S, H, D); masks (B, L) and (B, S). Costs L + S instead of L x S.
    """
    Q = feature_map(Q) * q_mask[:, :, None, None]
    K = feature_map(K) * k_mask[:, :, None, None]
    V = V * k_mask[:, :, None, None]
    summary = torch.einsum("bshd,bshe->bhde", K, V)  # (B, H, D, D)
    normaliser = torch.einsum("blhd,bhd->blh", Q, K.sum(dim=1)) + EPSILON  # (B, L, H)
    return torch.einsum("blhd,bhde->blhe", Q, summary) / normaliser[..., None]  # (B, L, H, D)


def attend_fully(Q: Tensor, K: Tensor, V: Tensor, q_mask: Tensor, k_mask: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V, the vanilla attention that the supplement compares with."""
    Q, K, V = (each.transpose(1, 2) for each in (Q, K, V))  # (B, H, frames, D)
    message = F.scaled_dot_product_attention(Q, K, V, attn_mask=k_mask[:, None, None, :])
    return message.transpose(1, 2) * q_mask[:, :, None, None]


class AttentionLayer(nn.Module):
    """One MHA(x, y, y) of eq. 3 with its MLP: x + norm2(mlp([x ; norm1(merge(message))])).

    The residual spans the whole layer; there is none before the MLP.
    """

    def __init__(self, config: TransVCLConfig) -> None:
        super().__init__()
        width = config.dimension
        self.heads = config.heads
        self.attend = attend_fully if config.attention == "full" else attend_linear
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(2 * width, 2 * width, bias=False),
            nn.ReLU(),
            nn.Linear(2 * width, width, bias=False),
        )
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        nn.init.constant_(self.norm2.weight, config.norm2_start)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, source: Tensor, x_mask: Tensor, source_mask: Tensor) -> Tensor:
        Q = self._split(self.q_proj(x))  # (B, L, H, D)
        K, V = self._split(self.k_proj(source)), self._split(self.v_proj(source))  # (B, S, H, D)
        message = self.attend(Q, K, V, x_mask, source_mask).flatten(2)  # (B, L, 256)
        message = self.norm1(self.merge(message))
        update: Tensor = self.norm2(self.mlp(torch.cat([x, message], dim=2)))
        return x + update

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1))  # (B, frames, H, D)
