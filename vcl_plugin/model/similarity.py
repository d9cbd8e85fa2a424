"""The similarity map of a pair and the picture the detector sees of it: eq. 5 of the paper.

In: enhanced frames of one pair, (n, 256) and (m, 256), without padding, and what they were before.
Out: the dual-softmax map (n, m); the detector's picture (channels, size, size); map statistics.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vcl_plugin.model.config import TransVCLConfig

MAP_STATISTICS = 6
_PEAKS = 16
SCENE_REACH = 8  # seconds to either side in which a frame's scene is looked for
SCENE_POWER = 4  # frames of another shot have a cosine of 0.1 to 0.3: next to no say
LONELY = 0.25  # a frame that none around it resembles is all change
QUIET = 0.1  # a change shorter than that is the encoder's noise and stays short


class Frames(NamedTuple):
    """A video's frames before enhancement, as the detector's picture is drawn from them."""

    features: Tensor  # (n, 256)
    changes: Tensor | None  # (n, 256), see `frame_changes`; None where no channel shows them


def plain_frames(features: Tensor, config: TransVCLConfig) -> Frames:
    return Frames(features, frame_changes(features) if config.channels == 4 else None)


def frame_changes(features: Tensor) -> Tensor:
    """(n, 256): what each frame adds to the scene around it, at most of unit length; (n, k, 256)
    for k videos side by side. A row of zeros is no frame and belongs to no scene.

    Frames of a fixed camera are all alike, so their cosines are one block in which a copy cannot be
    told from the hour before it. From each frame the mean of its neighbours is taken, weighted by
    how alike they are, so that no other shot gets mixed in. What is left is the passer-by.
    """
    unit = F.normalize(features, dim=-1)
    scene, weight = torch.zeros_like(unit), torch.full_like(unit[..., :1], LONELY)
    for step in range(1, min(SCENE_REACH, len(unit) - 1) + 1):
        earlier, later = unit[:-step], unit[step:]
        alike = (earlier * later).sum(dim=-1, keepdim=True).clamp(min=0) ** SCENE_POWER
        scene[step:] += alike * earlier
        scene[:-step] += alike * later
        weight[step:] += alike
        weight[:-step] += alike
    change = unit - scene / weight
    return change / change.norm(dim=-1, keepdim=True).clamp(min=QUIET)


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
    similarity: Tensor, query: Frames, reference: Frames, config: TransVCLConfig
) -> Tensor:
    """(channels, size, size): the map or the plain cosine three times, or map, its root, cosine
    and, if asked for, the cosine of changes."""
    if config.detector_input == "map":
        return resize_map(similarity, config).expand(3, -1, -1)
    cosine = plain_cosine(query.features, reference.features)
    if config.detector_input == "cosine":
        return resize_map(cosine, config).expand(3, -1, -1)
    # sqrt has no gradient at 0, where a sure mismatch underflows.
    channels = [similarity, similarity.clamp(min=1e-12).sqrt(), cosine]
    if query.changes is not None and reference.changes is not None:
        channels.append((query.changes @ reference.changes.T).clamp(min=0))
    return resize_map(torch.stack(channels), config)


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
    return stacked.index_select(1, rows).index_select(2, columns)


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
