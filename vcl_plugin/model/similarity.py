"""The similarity map of a pair and the picture the detector sees of it: eq. 5 of the paper.

In: enhanced frames of one pair, (n, 256) and (m, 256), without padding.
Out: the dual-softmax map (n, m); the detector's picture (channels, size, size); map statistics.
Called by `transvcl` for training and by `frozen` for inference.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vcl_plugin.model.config import TransVCLConfig

MAP_STATISTICS = 6
_PEAKS = 16


def similarity_map(query: Tensor, reference: Tensor, config: TransVCLConfig) -> Tensor:
    """softmax over the reference axis times softmax over the query axis (eq. 5), (n, m).

    The release pads both axes to `max_frames` with logit 0 before the softmax, and its weights
    were trained so. The padded cells only add exp(0) to each sum; adding that here gives the same
    map from the n x m cells alone (leaving it out is wrong by a factor of 7 to 154).
    """
    logits = (query @ reference.T) * config.logit_scale  # (n, m)
    n, m = logits.shape
    q_padding = config.max_frames - n if config.counts_padding else 0
    r_padding = config.max_frames - m if config.counts_padding else 0
    along_query = _padded_softmax(logits, 0, q_padding)
    return along_query * _padded_softmax(logits, 1, r_padding)


def _padded_softmax(logits: Tensor, axis: int, padding: int) -> Tensor:
    """Softmax along an axis that has `padding` more cells of logit 0."""
    if padding == 0:
        return logits.softmax(dim=axis)
    # The padding takes part in the maximum: exp must overflow for neither.
    top = logits.detach().amax(dim=axis, keepdim=True).clamp(min=0)
    exponentials = (logits - top).exp()
    return exponentials / (exponentials.sum(dim=axis, keepdim=True) + padding * (-top).exp())


def detector_picture(
    similarity: Tensor, query: Tensor, reference: Tensor, config: TransVCLConfig
) -> Tensor:
    """(3, size, size): the map or the plain cosine three times, or map, its root and cosine.

    `query` and `reference` are the frames before enhancement; only the cosine uses them.
    """
    if config.detector_input == "map":
        return resize_map(similarity, config).expand(3, -1, -1)
    if config.detector_input == "cosine":
        return resize_map(plain_cosine(query, reference), config).expand(3, -1, -1)
    # sqrt has no gradient at 0, where a sure mismatch underflows.
    root = similarity.clamp(min=1e-12).sqrt()
    channels = torch.stack([similarity, root, plain_cosine(query, reference)])
    return resize_map(channels, config)


def plain_cosine(query: Tensor, reference: Tensor) -> Tensor:
    """Cosine of the frames as they came, below zero cut off: (n, m)."""
    cosine = F.normalize(query, dim=1) @ F.normalize(reference, dim=1).T
    return cosine.clamp(min=0)


def resize_map(channels: Tensor, config: TransVCLConfig) -> Tensor:
    """(n, m) or (channels, n, m) to (1 or channels, size, size); rows are the query."""
    size = config.map_size
    stacked = channels if channels.dim() == 3 else channels[None]
    if config.map_resize == "max":
        # Nearest picks every fourth cell of 1200 for 320 and can miss a one-cell diagonal.
        kept = (min(stacked.shape[1], size), min(stacked.shape[2], size))
        stacked = F.adaptive_max_pool2d(stacked, kept)
    rows = nearest_cells(stacked.shape[1], size, stacked.device)
    columns = nearest_cells(stacked.shape[2], size, stacked.device)
    return stacked[:, rows[:, None], columns[None, :]]


def nearest_cells(cells: int, size: int, device: torch.device | None = None) -> Tensor:
    """Source cell of each of `size` pixels: min(floor(pixel * cells / size), cells - 1).

    In whole numbers, so that no rounding of a float scale can shift a row.
    """
    return (torch.arange(size, device=device) * cells // size).clamp(max=cells - 1)


def map_statistics(similarity: Tensor, cosine: Tensor) -> Tensor:
    """(6,): maximum, mean of the top 16 and mean of the roots, of the map and of the cosine.

    What a pair of class tokens cannot know: whether single frames match at all.
    """
    described = []
    for each in (similarity, cosine):
        cells = each.flatten()
        peaks = cells.topk(min(_PEAKS, cells.numel())).values
        described += [peaks[0], peaks.mean(), cells.clamp(min=1e-12).sqrt().mean()]
    return torch.stack(described)
