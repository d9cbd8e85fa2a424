"""Limits of the cascade: some of what is empty is skipped, nothing that is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.vcl_plugin.training.planted_pairs import plant
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.weights import Cascade
from vcl_plugin.localize.zoom import Zoom
from vcl_plugin.model import SMALL, TransVCL
from vcl_plugin.training.limits import Looks, choose_cascade, collect_looks, skipped_share


def made_looks(count: int = 1000) -> Looks:
    """Right looks have high peaks, whatever their logit; empty ones low peaks and low logits."""
    draw = np.random.default_rng(0)
    is_right = np.arange(count) % 10 == 0
    logits = np.where(is_right, draw.normal(0, 2, count), draw.normal(-4, 1, count))
    peaks = np.where(is_right, draw.uniform(0.3, 1.0, count), draw.uniform(0.0, 0.4, count))
    return Looks(logits, peaks, is_right)


def is_skipped(looks: Looks, cascade: Cascade) -> np.ndarray:
    return (looks.logits <= cascade.max_logit) & (looks.peaks <= cascade.max_peak)


def test_limits_skip_empty_looks_and_no_right_one():
    looks = made_looks()
    cascade = choose_cascade(looks, max_lost=0.0)
    assert not (is_skipped(looks, cascade) & looks.is_right).any()
    assert skipped_share(looks, cascade) > 0.1


def test_a_share_of_right_looks_may_be_given_up():
    looks = made_looks()
    careful, bold = choose_cascade(looks, 0.0), choose_cascade(looks, 0.05)
    lost = is_skipped(looks, bold) & looks.is_right
    assert 0 < lost.sum() <= 0.05 * looks.is_right.sum()
    assert skipped_share(looks, bold) > skipped_share(looks, careful)


def test_a_network_that_is_never_right_gets_no_limits():
    looks = made_looks()
    assert choose_cascade(looks._replace(is_right=np.zeros(len(looks.logits), bool))) is None
    nothing = Looks(np.zeros(0), np.zeros(0), np.zeros(0, bool))
    assert choose_cascade(nothing) is None


def test_every_look_is_written_down_and_limits_above_all_skip_all():
    torch.manual_seed(0)
    model = TransVCL(replace(SMALL, map_size=64, width=0.125)).eval()
    zoom = Zoom(seconds=30, overlap=10, factor=1.0)
    looks = collect_looks(model, [plant(1), plant(2, is_copy=False)], zoom, min_score=0.0)
    assert len(looks.logits) == 2 * (1 + 2 * 2)  # 40 and 50 seconds are two tiles each
    assert (looks.peaks > 0).all()
    pair = plant(1)
    everything = Cascade(float(looks.logits.max()) + 1, 1.0)
    skipping = TransVCLLocalizer(model, min_score=0.0, cascade=everything)
    assert skipping.localize(pair.query, pair.reference) == []
