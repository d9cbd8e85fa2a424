"""Scenes in front of a fixed camera are described in two more ways, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.arrays import unit
from retrieval.describe.scenes import EMBED_AT_ONCE, MIN_SECONDS, REACH, SceneWatcher
from retrieval.describe.views import ViewKind, Views
from tests.retrieval.describe.test_tracker import CountingDescriptor

SIDE = 16


class LevelDescriptor(CountingDescriptor):
    """Grey levels of a picture of 16 by 16, the mean taken off: a mirror image is another."""

    def embed(self, frames: np.ndarray) -> np.ndarray:
        self.described += len(frames)
        rows = frames.mean(axis=3).reshape(len(frames), -1).astype(np.float32)
        return unit(rows - rows.mean(axis=1, keepdims=True))


def scene(count: int, seed: int, sway: float = 20.0) -> np.ndarray:
    """One picture, and noise that differs from second to second."""
    rng = np.random.default_rng(seed)
    picture = rng.uniform(40, 215, (1, SIDE, SIDE, 1))
    frames = picture + rng.uniform(-sway, sway, (count, SIDE, SIDE, 1))
    return np.repeat(frames.clip(0, 255), 3, axis=3).astype(np.uint8)


def moving(count: int, seed: int) -> np.ndarray:
    """Another picture each second."""
    return np.concatenate([scene(1, seed + number) for number in range(count)])


def watch(
    frames: np.ndarray, batch: int = 4, empty: tuple[int, ...] = ()
) -> tuple[list[tuple[Views, Views]], int]:
    """Each scene mirrored and by its middle, and how many pictures were described for it."""
    watched, counted = LevelDescriptor(), LevelDescriptor()
    watcher = SceneWatcher(watched)
    flags = np.isin(np.arange(len(frames)), empty)
    for start in range(0, len(frames), batch):
        part = slice(start, start + batch)
        watcher.watch(frames[part], counted.embed(frames[part]), flags[part])
    views = watcher.finish()
    mirrored, middle = (views.runs_of(kind) for kind in (ViewKind.MIRRORED, ViewKind.MIDDLE))
    for one, other in zip(mirrored, middle, strict=True):
        assert one.frames.tolist() == other.frames.tolist()
    return list(zip(mirrored, middle, strict=True)), watched.described


@pytest.mark.parametrize("batch", [1, 4, 50])
@pytest.mark.parametrize("count", [MIN_SECONDS, EMBED_AT_ONCE + 3, 3 * EMBED_AT_ONCE])
def test_a_still_scene_is_described_mirrored_and_by_its_middle(count: int, batch: int):
    frames = scene(count, seed=1)
    [(mirrored, found)], described = watch(frames, batch)
    assert found.frames.tolist() == list(range(count))
    assert np.allclose(mirrored.vectors, LevelDescriptor().embed(frames[:, :, ::-1]))
    middle = LevelDescriptor().embed(frames).reshape(count, SIDE, SIDE)[:, 2:-2, 2:-2]
    assert found.vectors.shape == (count, SIDE * SIDE)
    alike = found.vectors.reshape(count, SIDE, SIDE)[:, :: SIDE - 1, :: SIDE - 1]
    corners = middle[:, ::11, ::11]
    assert (np.sign(alike) == np.sign(corners)).mean() > 0.9, "its corners are the middle's"
    assert described == 2 * count


def test_under_a_moving_camera_nothing_more_is_described():
    assert watch(moving(40, seed=5)) == ([], 0)


def test_a_scene_of_a_few_seconds_is_not_described():
    frames = np.concatenate([scene(MIN_SECONDS - 1, seed=each) for each in range(5)])
    assert watch(frames) == ([], 0)


def test_scenes_with_a_cut_between_them_are_runs_of_their_own():
    frames = np.concatenate([scene(12, seed=1), scene(20, seed=2), moving(9, 7), scene(10, seed=3)])
    found, _ = watch(frames)
    assert [each.frames.tolist() for each, _ in found] == [
        list(range(12)),
        list(range(12, 32)),
        list(range(41, 51)),
    ]


def test_a_passer_by_does_not_end_a_scene():
    frames = scene(20, seed=1)
    frames[8 : 8 + REACH - 1] = moving(REACH - 1, seed=7)
    [(found, _)], _ = watch(frames)
    assert found.frames.tolist() == list(range(20))


def test_black_is_still_but_says_nothing():
    frames = scene(30, seed=1)
    found, described = watch(frames, empty=tuple(range(30)))
    assert (found, described) == ([], 0)


def test_a_short_video_has_no_views_of_scenes():
    for count in range(1, MIN_SECONDS):
        assert watch(scene(count, seed=1)) == ([], 0)
