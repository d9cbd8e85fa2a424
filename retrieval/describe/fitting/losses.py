"""What a fit asks of descriptors: copies near their original, everything else far and spread out.

In: descriptors of a batch and of earlier originals, and which pictures are no contest.
Out: one number to descend, and a few to watch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

TEMPERATURE = 0.05
GLOBAL_SHARE = 0.5
BACK_SHARE = 0.5
SPREAD_SHARE = 3.0
NEVER = -10.0  # in place of the cosine of a pair that is no contest


class Contest:
    """Which pictures may not be blamed for being alike: those that show a source in common, or
    two sources that look the same."""

    def __init__(self, alike: NDArray[np.bool_]) -> None:
        # The last row and column stand for "shows nothing more" (-1).
        self.alike = torch.from_numpy(np.pad(alike, ((0, 1), (0, 1))))

    def excuse(self, mine: Tensor, theirs: Tensor) -> Tensor:
        """(n, m) of the sources shown, (n, a) and (m, b): True where the two are no contest."""
        excused = torch.zeros(len(mine), len(theirs), dtype=torch.bool)
        for i in range(mine.shape[1]):
            for j in range(theirs.shape[1]):
                excused |= self.alike[mine[:, i]][:, theirs[:, j]]
        return excused


@dataclass(frozen=True)
class Loss:
    """`total` is descended; `found` is the share of copies whose original was nearest, `quantile`
    the cosine that one in a thousand unrelated pairs exceeds."""

    total: Tensor
    found: float
    quantile: float


def compare(
    found: Tensor, shown: Tensor, keys: Tensor, keys_shown: Tensor, contest: Contest
) -> Loss:
    """`found` (originals, 1 + copies, d), what they show (…, 2), earlier originals `keys` (k, d).

    Four terms: a copy picks its original among all others; an original picks its copy; every match
    beats the mismatches of all queries together, so that one threshold serves all (what micro-AP
    asks); and every picture keeps away from its nearest stranger (KoLeo), so that unrelated
    pictures spread out.
    """
    originals, copies = found[:, 0], found[:, 1:].flatten(0, 1)
    per_row = found.shape[1] - 1
    own, seen = shown[:, 0, :1], shown[:, 1:].flatten(0, 1)
    others, others_shown = torch.cat([originals, keys]), torch.cat([own, keys_shown])
    right = (found[:, 1:] * originals[:, None]).sum(dim=2).flatten()

    def against(one: Tensor, one_shown: Tensor, two: Tensor, two_shown: Tensor) -> Tensor:
        return (one @ two.T).masked_fill(contest.excuse(one_shown, two_shown), NEVER)

    wrong = against(copies, seen, others, others_shown)
    logits = torch.cat([right[:, None], wrong, against(copies, seen, copies, seen)], dim=1)
    forth = _pick_first(logits)
    back_wrong = torch.cat(
        [against(originals, own, copies, seen), against(originals, own, others, others_shown)],
        dim=1,
    ).repeat_interleave(per_row, 0)
    back = _pick_first(torch.cat([right[:, None], back_wrong], dim=1))
    level = torch.logsumexp(wrong.flatten() / TEMPERATURE, 0) - math.log(len(copies))
    everywhere = F.softplus(level - right / TEMPERATURE).mean()
    flat, flat_shown = found.flatten(0, 1), shown.flatten(0, 1)
    nearest = against(flat, flat_shown, flat, flat_shown).max(dim=1).values.clamp_min(-1)
    spread = -torch.log((2 - 2 * nearest).clamp_min(1e-4).sqrt()).mean()
    total = forth + BACK_SHARE * back + GLOBAL_SHARE * everywhere + SPREAD_SHARE * spread
    with torch.no_grad():
        unrelated = wrong[wrong > NEVER / 2]
        quantile = float(np.quantile(unrelated.numpy(), 0.999)) if len(unrelated) else 0.0
        hits = float((logits.argmax(dim=1) == 0).float().mean())
    return Loss(total, hits, quantile)


def _pick_first(cosines: Tensor) -> Tensor:
    return F.cross_entropy(cosines / TEMPERATURE, torch.zeros(len(cosines), dtype=torch.int64))
