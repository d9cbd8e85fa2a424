"""TransVCL, trainable: the paper's figure as five numbered steps.

In: padded batches of query and reference frames (batch, frames, 256) and their boolean masks.
Out: `TransVCLOutput`. Autograd flows through everything.
Inference uses `frozen`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vcl_plugin.model.config import PAPER, TransVCLConfig
from vcl_plugin.model.detector import PAFPN, DetectionHead, anchor_grid, decode_boxes
from vcl_plugin.model.encoder import FeatureEnhancement
from vcl_plugin.model.similarity import (
    MAP_STATISTICS,
    detector_picture,
    map_statistics,
    plain_cosine,
    plain_frames,
    similarity_map,
)


class TransVCLOutput(NamedTuple):
    """What the network says about a batch of pairs; the last three are for losses."""

    video_logit: Tensor  # (B,): above 0, the pair is a copy
    similarity: list[Tensor]  # B maps, n x m, without padding
    boxes: Tensor  # (B, anchors, 6): cx, cy, w, h in map pixels, objectness, class
    raw: Tensor  # (B, anchors, 6): the same before decoding
    query_token: Tensor  # (B, 256): class token after the self layer, pair-independent
    reference_token: Tensor  # (B, 256)


class TransVCL(nn.Module):
    """Feature enhancement, similarity map, detector and video-level head in one module.

    Attribute names are those of the authors' checkpoints, so that they load strictly.
    """

    grid: Tensor

    def __init__(self, config: TransVCLConfig = PAPER) -> None:
        super().__init__()
        self.config = config
        width = config.dimension
        self.feat_encoding = FeatureEnhancement(config)
        extra = MAP_STATISTICS if config.video_head == "tokens+map" else 0
        self.mlp_head = nn.Sequential(
            nn.Linear(2 * width + extra, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, 1)
        )
        self.backbone = PAFPN(config.width, config.depth, config.channels)
        self.head = DetectionHead(config.width)
        self.register_buffer("grid", anchor_grid(config), persistent=False)

    def forward(
        self, query: Tensor, reference: Tensor, query_mask: Tensor, reference_mask: Tensor
    ) -> TransVCLOutput:
        self._check(query, query_mask, "query")
        self._check(reference, reference_mask, "reference")
        query_mask, reference_mask = query_mask.bool(), reference_mask.bool()
        # 1. Feature enhancement (eq. 1 to 3).
        enhanced = self.feat_encoding(query, reference, query_mask, reference_mask)
        # 2. One similarity map a pair, without padding (eq. 5).
        maps, pictures, statistics = [], [], []
        for i in range(len(query)):
            q, r = query[i, query_mask[i]], reference[i, reference_mask[i]]  # (n, 256), (m, 256)
            q_frames = enhanced.query[i, 1:][query_mask[i]]
            r_frames = enhanced.reference[i, 1:][reference_mask[i]]
            maps.append(similarity_map(q_frames, r_frames, self.config))  # (n, m)
            plain = plain_frames(q, self.config), plain_frames(r, self.config)
            pictures.append(detector_picture(maps[-1], *plain, self.config))  # (C, size, size)
            if self.config.video_head == "tokens+map":
                statistics.append(map_statistics(maps[-1], plain_cosine(q, r)))
        # 3. Video-level head on both class tokens (eq. 4).
        seen = [enhanced.query[:, 0], enhanced.reference[:, 0]]
        seen += [torch.stack(statistics)] if statistics else []
        video_logit = self.mlp_head(torch.cat(seen, dim=1)).squeeze(1)  # (B,)
        # 4. Detector.
        raw = self.head(self.backbone(torch.stack(pictures)))  # (B, anchors, 6)
        # 5. Boxes in map pixels.
        boxes = decode_boxes(raw, self.grid)
        return TransVCLOutput(
            video_logit, maps, boxes, raw, enhanced.query_token, enhanced.reference_token
        )

    def _check(self, features: Tensor, mask: Tensor, what: str) -> None:
        if features.dim() != 3 or features.shape[2] != self.config.dimension:
            raise ValueError(
                f"{what} has shape {tuple(features.shape)}; the network takes (batch, frames, "
                f"{self.config.dimension})"
            )
        if mask.shape != features.shape[:2]:
            raise ValueError(
                f"{what} mask has shape {tuple(mask.shape)}, its features "
                f"{tuple(features.shape[:2])}"
            )
        if features.shape[1] > self.config.max_frames:
            raise ValueError(
                f"{what} has {features.shape[1]} frames; one map takes {self.config.max_frames}, "
                f"TransVCLLocalizer tiles longer videos"
            )
        if not mask.any(dim=1).all():
            raise ValueError(f"{what} has a row without a single frame; leave that pair out")
