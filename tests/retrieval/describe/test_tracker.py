"""A film shown small is described for itself, and stands in for the frame where it matches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from retrieval.describe import tracker as tracker_module
from retrieval.describe.tracker import PartTracker, choose_views, split_tracks
from retrieval.store import NO_PARTS, Parts, StoredDescriptors
from tests.retrieval.test_engine import CoarseDescriptor
from tests.retrieval.test_store import unit_rows

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


def watch(frames: np.ndarray, batch: int = 4) -> tuple[Parts, int]:
    descriptor = CountingDescriptor()
    tracker = PartTracker(descriptor)
    for start in range(0, len(frames), batch):
        tracker.watch(frames[start : start + batch])
    return tracker.finish(), descriptor.described


@pytest.mark.parametrize("batch", [1, 4, 50])
def test_a_film_inside_a_frame_is_one_track_however_the_frames_come(batch: int):
    frames, inner = framed(20)
    parts, _ = watch(frames, batch)
    found = split_tracks(parts)
    alike = [
        (CoarseDescriptor().embed(resized(inner))[t.frames] * t.vectors).sum(axis=1).min()
        for t in found
    ]
    best = found[int(np.argmax(alike))]
    assert max(alike) > 0.95
    assert best.frames.tolist() == list(range(best.frames[0], best.frames[0] + len(best)))
    assert len(best) >= 18


def resized(frames: np.ndarray) -> np.ndarray:
    from retrieval.describe.pictures import squash

    return np.stack([squash(frame, (16, 16)) for frame in frames])


def test_plain_frames_are_looked_at_and_nothing_more_is_described():
    parts, described = watch(smooth_frames(30, seed=5))
    assert len(parts) == 0
    assert described == 0


def test_an_edge_that_is_gone_at_the_next_look_is_not_described():
    frames = smooth_frames(20, seed=5)
    frames[8] = framed(1)[0][0]
    parts, described = watch(frames)
    assert (len(parts), described) == (0, 0)


def test_a_frame_hidden_for_a_moment_is_still_the_same_one():
    frames, _ = framed(24)
    frames[10:12] = smooth_frames(2, seed=9)
    found = split_tracks(watch(frames)[0])
    assert max(len(track) for track in found) >= 22


def test_two_halves_of_a_screen_are_tracks_of_their_own():
    frames = smooth_frames(12, seed=3)
    frames[:, :, 64:] = smooth_frames(12, seed=4, low=170, high=250)[:, :, 64:]
    found = split_tracks(watch(frames)[0])
    assert len(found) >= 2
    assert parts_of(found, 0) != parts_of(found, 1)


def test_a_clear_frame_takes_the_place_of_the_least_clear_edge(monkeypatch: pytest.MonkeyPatch):
    shelves = [(0.0, 0.0, 0.3, 0.3), (0.3, 0.3, 0.6, 0.6), (0.7, 0.0, 1.0, 0.3)]
    inset = (0.1, 0.6, 0.5, 1.0)
    looks = [shelves] * 4 + [[inset, *shelves]] * 4
    monkeypatch.setattr(tracker_module, "propose_parts", lambda frame: looks[frame[0, 0, 0] // 2])
    descriptor = CountingDescriptor()
    tracker = PartTracker(descriptor)
    numbers = np.arange(16, dtype=np.uint8)[:, None, None, None]
    tracker.watch(np.broadcast_to(numbers, (16, 32, 32, 3)))
    boxes = [track.box for track in tracker.open]
    assert inset in boxes
    assert shelves[2] not in boxes
    lengths = {len(each) for each in split_tracks(tracker.finish())}
    assert lengths == {15, 8, 7}, "what gave way keeps the seconds it was followed for"


def parts_of(found: Sequence[Parts], number: int) -> list[float]:
    return [round(float(each), 3) for each in found[number].vectors[0]]


def stored(whole: np.ndarray, parts: Parts = NO_PARTS) -> StoredDescriptors:
    return StoredDescriptors(whole, np.zeros(len(whole), bool), None, parts)


def part_of(rows: np.ndarray, first: int, track: int = 0) -> Parts:
    frames = np.arange(first, first + len(rows), dtype=np.int32)
    return Parts(rows, frames, np.full(len(rows), track, np.int32))


def test_a_part_that_shows_the_reference_stands_in_for_its_frames():
    whole, reference = unit_rows(40, seed=1), unit_rows(60, seed=2)
    query = stored(whole, part_of(reference[20:32], first=10))
    rows = choose_views(query, reference)
    assert np.array_equal(rows[10:22], reference[20:32])
    assert np.array_equal(rows[:10], whole[:10])
    assert np.array_equal(rows[22:], whole[22:])
    assert np.array_equal(query.descriptors, unit_rows(40, seed=1)), "the stored rows stay"


def test_only_the_seconds_that_show_the_reference_are_taken_from_a_long_part():
    whole, reference = unit_rows(60, seed=1), unit_rows(60, seed=2)
    inner = unit_rows(50, seed=3)
    inner[20:30] = reference[5:15]
    rows = choose_views(stored(whole, part_of(inner, first=5)), reference)
    taken = np.flatnonzero((rows != whole).any(axis=1))
    assert set(range(25, 35)) <= set(taken.tolist()) <= set(range(21, 39))


def test_one_lucky_frame_is_no_reason_to_look_through_a_part():
    whole, reference = unit_rows(40, seed=1), unit_rows(60, seed=2)
    inner = unit_rows(30, seed=3)
    inner[15] = 0.5 * reference[7] + 0.8 * inner[15]
    query = stored(whole, part_of(inner, first=5))
    assert choose_views(query, reference) is query.descriptors


def test_whole_frames_that_match_as_well_are_kept():
    reference = unit_rows(60, seed=2)
    query = stored(reference[:30].copy(), part_of(reference[:30], first=0))
    assert choose_views(query, reference) is query.descriptors


def test_of_two_parts_the_better_one_stands_in():
    whole, reference = unit_rows(30, seed=1), unit_rows(60, seed=2)
    worse = 0.5 * reference[20:35] + 0.9 * unit_rows(15, seed=3)
    worse = (worse / np.linalg.norm(worse, axis=1, keepdims=True)).astype(np.float32)
    one, two = part_of(worse, 5), part_of(reference[20:35], 5, track=1)
    parts = Parts(*(np.concatenate(each) for each in zip(_fields(one), _fields(two), strict=True)))
    assert np.array_equal(choose_views(stored(whole, parts), reference)[5:20], reference[20:35])


def _fields(parts: Parts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return parts.vectors, parts.frames, parts.tracks
