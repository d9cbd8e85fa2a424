"""TransVCL for inference: the same numbers as `transvcl`, each video's share computed once.

In: a trained `TransVCL`; frames of single videos, (n, 256), without padding or masks.
Out: per video a `VideoState`, per pair the map and the video logit, per picture its boxes.
Nothing here can be trained.

What a video brings to every pair is kept in its state: its frames after the self layer, and of the
cross layer phi(Q), the frames' half of the MLP's first matrix, and, for a source, the summed-up
keys and values with `merge` already applied. A further pair then costs 7 ms instead of 100.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vcl_plugin.model.attention import EPSILON, AttentionLayer, feature_map
from vcl_plugin.model.detector import decode_boxes
from vcl_plugin.model.fast.folded import FoldedDetector
from vcl_plugin.model.fast.lazy_head import LazyHead
from vcl_plugin.model.fast.runtime import open_runtime
from vcl_plugin.model.fast.winograd import MIN_CHANNELS
from vcl_plugin.model.similarity import (
    Frames,
    detector_picture,
    map_statistics,
    plain_cosine,
    plain_frames,
    similarity_map,
)
from vcl_plugin.model.transvcl import TransVCL

# exp(-70) is far from where float32 loses digits, also when a sum of such terms is inverted.
_SAFE_SPREAD = 70.0


@dataclass(frozen=True, slots=True)
class Summary:
    """All a linear attention needs to know of its source."""

    merged: Tensor  # (256, 256): sum of phi(K)^T V, head by head, times `merge`
    keys: Tensor  # (256,): sum of phi(K)


@dataclass(frozen=True, slots=True)
class VideoState:
    """One video's (or tile's) share of every pair it may be in."""

    plain: Frames  # (n, 256) as they came, and how they change
    x: Tensor  # (1 + n, 256) after the self layer, class token first
    looking: tuple[Tensor, Tensor]  # phi(Q) and the x half of the MLP, for the cross layer
    summary: Summary | None  # of x, for the cross layer; None where nobody looks at it

    @property
    def frames(self) -> int:
        return len(self.plain.features)


@dataclass(frozen=True, slots=True)
class Match:
    """What encoder and map say about a pair, before any detector."""

    similarity: Tensor  # (n, m)
    video_logit: float
    query: VideoState
    reference: VideoState

    def peak(self, rows: int = 5) -> float:
        """Mean of the best cells of the five best query frames: one lucky frame is no copy."""
        best = self.similarity.amax(dim=1)
        return float(best.topk(min(rows, len(best))).values.mean())


class FrozenLayer:
    """An `AttentionLayer` with linear attention, split into source, looker and update."""

    def __init__(self, layer: AttentionLayer) -> None:
        width = layer.q_proj.weight.shape[0]
        self.heads = layer.heads
        self.Wq, self.Wk = layer.q_proj.weight.T, layer.k_proj.weight.T
        split = (layer.heads, width // layer.heads, -1)
        self.Wv = layer.v_proj.weight.view(split).transpose(1, 2)  # (H, 256, D)
        self.Wm = layer.merge.weight.T.reshape(split)  # (H, D, 256)
        first, last = layer.mlp[0], layer.mlp[2]
        assert isinstance(first.weight, Tensor)
        assert isinstance(last.weight, Tensor)
        self.Wx = first.weight[:, :width].T.contiguous()
        message = first.weight[:, width:]
        # norm1's gain and shift move into the matrix that follows it.
        self.Wmessage = (message * layer.norm1.weight).T.contiguous()
        self.shift = message @ layer.norm1.bias
        self.Wlast = last.weight.T
        self.norm2 = layer.norm2
        self.width = width

    def sum_up(self, source: Tensor) -> Summary:
        keys = feature_map(source @ self.Wk)  # (S, 256)
        # (K^T source) Wv = K^T V: one large product instead of many thin ones.
        gathered = (keys.T @ source).unflatten(0, (self.heads, -1))  # (H, D, 256)
        merged = gathered @ self.Wv @ self.Wm  # (H, D, 256)
        return Summary(merged.flatten(0, 1), keys.sum(dim=0))

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """phi(Q) and the part of the MLP's first product that no source can change."""
        return feature_map(x @ self.Wq), torch.addmm(self.shift, x, self.Wx)

    def update(self, x: Tensor, looking: tuple[Tensor, Tensor], source: Summary) -> Tensor:
        Q, partial = looking
        weights = (Q * source.keys).unflatten(1, (self.heads, -1)).sum(dim=2)  # (L, H)
        scaled = Q.unflatten(1, (self.heads, -1)) / (weights + EPSILON)[:, :, None]
        message = F.layer_norm(scaled.flatten(1) @ source.merged, (self.width,))
        hidden = torch.addmm(partial, message, self.Wmessage).relu_()
        return x + self.norm2(hidden @ self.Wlast)


class FrozenTransVCL:
    """The network without autograd. `runtime` picks what runs the detector on a CPU."""

    def __init__(
        self, model: TransVCL, device: torch.device | None = None, runtime: str = "auto"
    ) -> None:
        self.device = device or torch.device("cpu")
        # A copy: freezing must not end the training of the one that was passed.
        self.model = copy.deepcopy(model).eval().requires_grad_(False).to(self.device)
        self.config = model.config
        self.layers: tuple[FrozenLayer, FrozenLayer] | None = None
        if self.config.attention == "linear":
            own, other = self.model.feat_encoding.layers
            assert isinstance(own, AttentionLayer)
            assert isinstance(other, AttentionLayer)
            self.layers = FrozenLayer(own), FrozenLayer(other)
        detector = FoldedDetector(self.model.backbone, self.model.head, self.config)
        self.channels = detector.channels
        shape = (self.channels, self.config.map_size, self.config.map_size)
        # A wide head is worth running apart: fewer multiplications, and most of them skipped.
        is_wide = int(256 * self.config.width) >= MIN_CHANNELS
        self.head = LazyHead(detector.scales) if is_wide and self.device.type == "cpu" else None
        module = detector if self.head is None else detector.pyramid
        self.runtime = open_runtime(module, shape, self.device, runtime)

    @torch.inference_mode()
    def encode(self, features: Tensor, side: int = 0) -> VideoState:
        """Everything that depends on one video alone; `side` is 0 for a query."""
        features = features.to(self.device)
        enhancement = self.model.feat_encoding
        mask = torch.ones(1, len(features), dtype=torch.bool, device=self.device)
        x = enhancement.embed(features[None], mask, side)[0]  # (1 + n, 256)
        if self.layers is None:
            if self.config.attention == "full":
                whole = torch.ones(1, len(x), dtype=torch.bool, device=self.device)
                x = enhancement.layers[0](x[None], x[None], whole, whole)[0]
            return VideoState(plain_frames(features, self.config), x, (x, x), None)
        own, other = self.layers
        x = own.update(x, own.look(x), own.sum_up(x))
        # A query is a source only once it is updated, unless both sides look at the same time.
        is_source = side == 1 or self.config.has_symmetric_cross
        summary = other.sum_up(x) if is_source else None
        return VideoState(plain_frames(features, self.config), x, other.look(x), summary)

    @torch.inference_mode()
    def match(self, query: VideoState, reference: VideoState) -> Match:
        """Cross layer, map and video-level head of one pair."""
        q, r = self._cross(query, reference)
        similarity = self._similarity(q[1:], r[1:])
        seen = [q[0], r[0]]
        if self.config.video_head == "tokens+map":
            cosine = plain_cosine(query.plain.features, reference.plain.features)
            seen.append(map_statistics(similarity, cosine))
        logit = self.model.mlp_head(torch.cat(seen)[None])
        return Match(similarity, float(logit), query, reference)

    @torch.inference_mode()
    def picture(self, match: Match) -> Tensor:
        """(channels, size, size): what the detector sees; one channel where all are equal."""
        plain = match.query.plain, match.reference.plain
        return detector_picture(match.similarity, *plain, self.config)[: self.channels]

    @torch.inference_mode()
    def detect(self, pictures: Tensor, min_score: float = 0.0) -> Tensor:
        """(batch, channels, size, size) to boxes (batch, anchors, 6) in map pixels.

        Rows whose objectness x class is below `min_score` may come with a class of 0.
        """
        if self.head is None:
            raw = self.runtime.run(pictures)[0].float()
        else:
            runs = [self.runtime.run(each[None]) for each in pictures]
            raw = torch.stack([self.head(maps, min_score) for maps in runs])
        return decode_boxes(raw.to(self.device), self.model.grid)

    def _cross(self, query: VideoState, reference: VideoState) -> tuple[Tensor, Tensor]:
        if self.config.attention == "none":
            return query.x, reference.x
        is_symmetric = self.config.has_symmetric_cross
        if self.layers is None:
            other = self.model.feat_encoding.layers[1]
            q, r = query.x[None], reference.x[None]
            q_mask = torch.ones(q.shape[:2], dtype=torch.bool, device=self.device)
            r_mask = torch.ones(r.shape[:2], dtype=torch.bool, device=self.device)
            updated = other(q, r, q_mask, r_mask)
            seen = q if is_symmetric else updated
            return updated[0], other(r, seen, r_mask, q_mask)[0]
        cross = self.layers[1]
        assert reference.summary is not None
        q_new = cross.update(query.x, query.looking, reference.summary)
        source = query.summary if is_symmetric else cross.sum_up(q_new)
        assert source is not None
        return q_new, cross.update(reference.x, reference.looking, source)

    def _similarity(self, q: Tensor, r: Tensor) -> Tensor:
        """`similarity_map` with one exponential for both softmaxes, where float32 allows it."""
        logits = (q * self.config.logit_scale) @ r.T  # (n, m)
        low, high = (float(each) for each in torch.aminmax(logits))
        has_padding = self.config.counts_padding
        top = max(high, 0.0) if has_padding else high
        if top - low > _SAFE_SPREAD:
            return similarity_map(q, r, self.config)
        n, m = logits.shape
        exponentials = logits.sub_(top).exp_()
        down, across = exponentials.sum(dim=0), exponentials.sum(dim=1)
        if has_padding:
            empty = float(torch.tensor(-top).exp())
            down += (self.config.max_frames - n) * empty
            across += (self.config.max_frames - m) * empty
        along_reference = exponentials / across[:, None]
        return exponentials.div_(down).mul_(along_reference)
