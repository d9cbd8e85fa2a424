"""The release's arithmetic, plainly: everything padded to 1200, nothing kept, nothing folded.

In: a `TransVCL` in the `paper` preset; a query and its candidates, (frames, 256) each.
Out: one `(video_logit, boxes (8400, 6))` a candidate.
The rival of `benchmarks/localize.py`; `tests/vcl_plugin/model/test_padded_rival.py` holds it to the
golden numbers, so that what is compared is the same work.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vcl_plugin.model import TransVCL
from vcl_plugin.model.detector import decode_boxes

MAX_FRAMES = 1200


def pad_frames(videos: list[Tensor]) -> tuple[Tensor, Tensor]:
    """(batch, 1200, 256) and the mask of what is real."""
    features = torch.zeros(len(videos), MAX_FRAMES, videos[0].shape[1])
    mask = torch.zeros(len(videos), MAX_FRAMES, dtype=torch.bool)
    for row, video in enumerate(videos):
        features[row, : len(video)] = video
        mask[row, : len(video)] = True
    return features, mask


@torch.inference_mode()
def run_padded(
    model: TransVCL, query: Tensor, references: list[Tensor], batch: int = 1
) -> list[tuple[float, Tensor]]:
    """Each candidate with the query beside it, `batch` pairs at a time."""
    results: list[tuple[float, Tensor]] = []
    for start in range(0, len(references), batch):
        some = references[start : start + batch]
        q, q_mask = pad_frames([query] * len(some))
        r, r_mask = pad_frames(some)
        # Encoder over 1201 rows a side, real or not.
        enhanced = model.feat_encoding(q, r, q_mask, r_mask)
        tokens = torch.cat([enhanced.query[:, 0], enhanced.reference[:, 0]], dim=1)
        logits = model.mlp_head(tokens).squeeze(1)
        # A 1200 x 1200 map a pair: padded cells are logit 0 and take part in both softmaxes.
        q_frames, r_frames = enhanced.query[:, 1:] / 16, enhanced.reference[:, 1:] / 16
        products = torch.einsum("bnd,bmd->bnm", q_frames, r_frames) / 0.1
        products = products.masked_fill(~(q_mask[:, :, None] & r_mask[:, None, :]), 0.0)
        maps = products.softmax(dim=1) * products.softmax(dim=2)
        # Cropped, resized, in three equal channels.
        pictures = torch.cat(
            [
                F.interpolate(
                    each[: len(query), : len(video)].expand(1, 3, -1, -1), size=(640, 640)
                )
                for each, video in zip(maps, some, strict=True)
            ]
        )
        raw = model.head(model.backbone(pictures))
        boxes = decode_boxes(raw, model.grid)
        results += [(float(logit), box) for logit, box in zip(logits, boxes, strict=True)]
    return results
