"""A film shown small is followed from frame to frame and described for itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from retrieval.describe import tracker as tracker_module
from retrieval.describe.tracker import PartTracker
from retrieval.describe.views import ViewKind, Views
from tests.retrieval.test_engine import CoarseDescriptor

BOX = (20, 30, 90, 110)  # left, top, right, bottom of the inner film


class CountingDescriptor(CoarseDescriptor):
    frame_size = (16, 16)

    def __init__(self) -> None:
        self.described = 0

    def embed(self, frames: np.ndarray) -> np.ndarray:
        self.described += len(frames)
        return super().embed(frames)


def smooth_frames(count: int, seed: int, low: int = 0, high: int = 120) -> np.ndarray:
    """Slow waves: a picture without a straight cut in it, another one each second."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:128, 0:128] / 128
    frames = []
    for number in range(count):
        phase, tilt = rng.uniform(0, 6, 2)
        waves = np.sin(2 * x + tilt + 0.3 * number) + np.cos(2 * y + phase)
        frames.append(np.repeat((low + (high - low) * (waves + 2) / 4)[:, :, None], 3, axis=2))
    return np.stack(frames).astype(np.uint8)


def framed(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Frames with a bright film inside a dark one, and that film by itself."""
    left, top, right, bottom = BOX
    inner = smooth_frames(count, seed, low=170, high=250)[:, top:bottom, left:right]
    frames = smooth_frames(count, seed + 100)
    frames[:, top:bottom, left:right] = inner
    return frames, inner


def watch(frames: np.ndarray, batch: int = 4) -> tuple[list[Views], int]:
    descriptor = CountingDescriptor()
    tracker = PartTracker(descriptor)
    for start in range(0, len(frames), batch):
        tracker.watch(frames[start : start + batch])
    return tracker.finish().runs_of(ViewKind.PART), descriptor.described


@pytest.mark.parametrize("batch", [1, 4, 50])
def test_a_film_inside_a_frame_is_one_run_however_the_frames_come(batch: int):
    frames, inner = framed(20)
    found, _ = watch(frames, batch)
    alike = [
        (CoarseDescriptor().embed(resized(inner))[run.frames] * run.vectors).sum(axis=1).min()
        for run in found
    ]
    best = found[int(np.argmax(alike))]
    assert max(alike) > 0.95
    assert best.frames.tolist() == list(range(best.frames[0], best.frames[0] + len(best)))
    assert len(best) >= 18


def resized(frames: np.ndarray) -> np.ndarray:
    from retrieval.describe.pictures import squash

    return np.stack([squash(frame, (16, 16)) for frame in frames])


def test_of_plain_frames_nothing_more_is_described():
    assert watch(smooth_frames(30, seed=5)) == ([], 0)


def test_an_edge_that_is_gone_two_seconds_later_is_not_described():
    frames = smooth_frames(20, seed=5)
    frames[8] = framed(1)[0][0]
    assert watch(frames) == ([], 0)


def test_a_frame_hidden_for_a_moment_is_still_the_same_one():
    frames, _ = framed(24)
    frames[10:12] = smooth_frames(2, seed=9)
    found, _ = watch(frames)
    assert max(map(len, found)) >= 22


def test_two_halves_of_a_screen_are_runs_of_their_own():
    frames = smooth_frames(12, seed=3)
    frames[:, :, 64:] = smooth_frames(12, seed=4, low=170, high=250)[:, :, 64:]
    found, _ = watch(frames)
    assert len(found) >= 2
    assert first_row(found, 0) != first_row(found, 1)


def test_a_clear_frame_takes_the_place_of_the_least_clear_edge(monkeypatch: pytest.MonkeyPatch):
    shelves = [(0.0, 0.0, 0.3, 0.3), (0.3, 0.3, 0.6, 0.6), (0.7, 0.0, 1.0, 0.3)]
    inset = (0.1, 0.6, 0.5, 1.0)
    shown = [shelves] * 4 + [[inset, *shelves]] * 4
    monkeypatch.setattr(tracker_module, "propose_parts", lambda frame: shown[frame[0, 0, 0] // 2])
    descriptor = CountingDescriptor()
    tracker = PartTracker(descriptor)
    numbers = np.arange(16, dtype=np.uint8)[:, None, None, None]
    tracker.watch(np.broadcast_to(numbers, (16, 32, 32, 3)))
    boxes = [run.box for run in tracker.open]
    assert inset in boxes
    assert shelves[2] not in boxes
    lengths = {len(each) for each in tracker.finish().runs_of(ViewKind.PART)}
    assert lengths == {15, 8, 7}, "what gave way keeps the seconds it was followed for"


def first_row(found: Sequence[Views], number: int) -> list[float]:
    return [round(float(each), 3) for each in found[number].vectors[0]]
