"""Two videos are compared by those of their views that suit each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from retrieval import pairing
from retrieval.arrays import unit
from retrieval.describe.views import NO_VIEWS, ViewKind, Views, join_views, number_runs
from retrieval.pairing import localize_views, match_rows
from retrieval.records import Segment, Span
from retrieval.store import StoredDescriptors
from tests.retrieval.test_store import unit_rows


def still_rows(count: int, seed: int, scene: int = 99) -> np.ndarray:
    """Rows of a fixed camera: one scene, and a little that differs from second to second."""
    return unit(unit_rows(1, seed=scene) + 0.3 * unit_rows(count, seed=seed))


def stored(whole: np.ndarray, views: Views = NO_VIEWS) -> StoredDescriptors:
    return StoredDescriptors(whole, np.zeros(len(whole), bool), None, views)


def part_of(*runs: np.ndarray, first: int) -> Views:
    frames = (range(first, first + len(rows)) for rows in runs)
    return number_runs(ViewKind.PART, zip(frames, runs, strict=True))


def seen(
    whole: np.ndarray, mirrored: np.ndarray, middle: np.ndarray, first: int = 0
) -> StoredDescriptors:
    frames = range(first, first + len(mirrored))
    kinds = {ViewKind.MIRRORED: mirrored, ViewKind.MIDDLE: middle}
    return stored(
        whole, join_views(number_runs(kind, [(frames, rows)]) for kind, rows in kinds.items())
    )


def edited(rows: np.ndarray, seed: int) -> np.ndarray:
    """What an edit makes of a scene: it moves by more than its seconds differ."""
    return unit(rows + 0.6 * unit_rows(1, seed=seed) + 0.3 * unit_rows(len(rows), seed=seed + 1))


def test_a_part_that_shows_the_reference_stands_in_for_its_frames():
    whole, reference = unit_rows(40, seed=1), unit_rows(60, seed=2)
    query = stored(whole, part_of(reference[20:32], first=10))
    rows, _ = match_rows(query, stored(reference))
    assert np.array_equal(rows[10:22], reference[20:32])
    assert np.array_equal(rows[:10], whole[:10])
    assert np.array_equal(rows[22:], whole[22:])
    assert np.array_equal(query.descriptors, unit_rows(40, seed=1)), "the stored rows stay"


def test_only_the_seconds_that_show_the_reference_are_taken_from_a_long_part():
    whole, reference = unit_rows(60, seed=1), unit_rows(60, seed=2)
    inner = unit_rows(50, seed=3)
    inner[20:30] = reference[5:15]
    rows, _ = match_rows(stored(whole, part_of(inner, first=5)), stored(reference))
    taken = np.flatnonzero((rows != whole).any(axis=1))
    assert set(range(25, 35)) <= set(taken.tolist()) <= set(range(21, 39))


def test_one_lucky_frame_is_no_reason_to_choose_a_part():
    whole, reference = unit_rows(40, seed=1), unit_rows(60, seed=2)
    inner = unit_rows(30, seed=3)
    inner[15] = 0.5 * reference[7] + 0.8 * inner[15]
    query = stored(whole, part_of(inner, first=5))
    assert match_rows(query, stored(reference))[0] is query.descriptors


def test_whole_frames_that_match_as_well_are_kept():
    reference = unit_rows(60, seed=2)
    query = stored(reference[:30].copy(), part_of(reference[:30], first=0))
    assert match_rows(query, stored(reference))[0] is query.descriptors


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_parts_the_better_one_stands_in(order: int):
    whole, reference = unit_rows(30, seed=1), unit_rows(60, seed=2)
    worse = unit(0.5 * reference[20:35] + 0.9 * unit_rows(15, seed=3))
    parts = part_of(*(worse, reference[20:35])[::order], first=5)
    rows, _ = match_rows(stored(whole, parts), stored(reference))
    assert np.array_equal(rows[5:20], reference[20:35])


def test_a_mirrored_scene_is_seen_through_its_mirror_image():
    film = still_rows(40, seed=1)
    flipped = edited(film, seed=50)
    upload = seen(flipped[10:30], film[10:30], edited(flipped[10:30], seed=60))
    reference = seen(film, flipped, edited(film, seed=70))
    rows, others = match_rows(upload, reference)
    assert np.array_equal(rows, film[10:30])
    assert others is reference.descriptors


def test_a_cropped_scene_is_compared_with_the_middle_of_the_reference():
    film = still_rows(40, seed=1)
    middle = edited(film, seed=70)
    upload = seen(middle[5:25], edited(middle[5:25], seed=50), edited(middle[5:25], seed=60))
    reference = seen(film, edited(film, seed=50), middle)
    rows, others = match_rows(upload, reference)
    assert rows is upload.descriptors
    assert np.array_equal(others, middle)
    assert np.array_equal(reference.descriptors, still_rows(40, seed=1)), "the stored rows stay"


def test_a_smaller_crop_is_compared_with_something_between_middle_and_whole():
    film = still_rows(40, seed=1)
    middle = edited(film, seed=70)
    crop = unit(film + middle)
    upload = seen(crop[5:25], edited(crop[5:25], seed=50), edited(crop[5:25], seed=60))
    _, others = match_rows(upload, seen(film, edited(film, seed=50), middle))
    assert np.allclose(others, crop, atol=1e-6)


def test_a_plain_copy_and_footage_of_another_scene_are_compared_as_they_are():
    film = still_rows(40, seed=1)
    reference = seen(film, edited(film, seed=50), edited(film, seed=70))
    other = still_rows(20, seed=4, scene=98)
    for rows in (film[10:30], other):
        upload = seen(rows, edited(rows, seed=50), edited(rows, seed=70))
        assert match_rows(upload, reference)[0] is upload.descriptors
        assert match_rows(upload, reference)[1] is reference.descriptors


def test_only_the_scene_that_is_mirrored_is_seen_otherwise():
    film, filler = still_rows(40, seed=1), unit_rows(15, seed=8)
    flipped = edited(film, seed=50)
    whole = np.concatenate([filler, flipped[10:30], filler])
    upload = seen(whole, film[10:30], edited(flipped[10:30], seed=60), first=15)
    rows, _ = match_rows(upload, seen(film, flipped, edited(film, seed=70)))
    assert np.array_equal(rows, np.concatenate([filler, film[10:30], filler]))


@pytest.mark.parametrize("filler", [0, 3, 11])
def test_a_crop_is_seen_even_where_the_query_does_not_stand_still(filler: int):
    film = still_rows(40, seed=1)
    middle = edited(film, seed=70)
    around = unit_rows(filler, seed=8)
    upload = stored(np.concatenate([around, middle[:24], around]))
    rows, others = match_rows(upload, seen(film, edited(film, seed=50), middle))
    assert rows is upload.descriptors
    assert np.array_equal(others, middle)


def test_a_mirrored_scene_is_seen_even_where_the_reference_does_not_stand_still():
    film = still_rows(40, seed=1)
    flipped = edited(film, seed=50)
    upload = seen(flipped[10:30], film[10:30], edited(flipped[10:30], seed=60))
    rows, others = match_rows(upload, stored(film))
    assert np.array_equal(rows, film[10:30])
    assert np.array_equal(others, film)


def test_an_edit_that_hides_even_the_scene_is_undone():
    film = still_rows(40, seed=1)
    middle = still_rows(40, seed=2, scene=97)
    upload = seen(middle[5:25], edited(middle[5:25], seed=50), edited(middle[5:25], seed=60))
    _, others = match_rows(upload, seen(film, edited(film, seed=50), middle))
    assert np.array_equal(others, middle)


def test_where_a_part_shows_the_reference_no_other_view_is_chosen():
    film, shelf = still_rows(40, seed=1), still_rows(30, seed=5, scene=98)
    scene = seen(shelf, edited(shelf, seed=50), edited(shelf, seed=60))
    upload = stored(shelf, join_views([part_of(film[5:25], first=5), scene.views]))
    rows, _ = match_rows(upload, seen(film, edited(film, seed=50), edited(film, seed=70)))
    assert np.array_equal(rows[5:25], film[5:25])
    assert np.array_equal(rows[:5], shelf[:5])


class DiagonalLocalizer:
    """Finds rows that are equal; counts how it was asked."""

    name, fingerprint = "diagonal", "diagonal-1"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def localize(self, query: np.ndarray, reference: np.ndarray) -> list[Segment]:
        return self.localize_many(query, [reference])[0]

    def localize_many(
        self, query: np.ndarray, references: Sequence[np.ndarray]
    ) -> list[list[Segment]]:
        self.asked.append(len(references))
        found = []
        for reference in references:
            rows = np.flatnonzero((query @ reference.T).max(axis=1) > 0.99)
            spans = Span(float(rows[0]), float(rows[-1] + 1)) if len(rows) else None
            found.append([Segment(spans, spans, 1.0)] if spans else [])
        return found


def test_each_reference_is_compared_through_the_views_that_suit_it():
    whole, inside, other = unit_rows(30, seed=1), unit_rows(40, seed=2), unit_rows(40, seed=4)
    query = stored(whole, part_of(inside[10:20], first=8))
    localizer = DiagonalLocalizer()
    found = localize_views(localizer, query, [stored(each) for each in (other, inside, whole)])
    assert [[each.query for each in segments] for segments in found] == [
        [],
        [Span(8, 18)],
        [Span(0, 30)],
    ]
    assert sorted(localizer.asked) == [1, 2], "references without a part stay one batch"


def test_references_of_which_only_they_are_seen_otherwise_stay_in_the_batch():
    film = still_rows(40, seed=1)
    middle = edited(film, seed=70)
    upload = seen(middle[5:25], edited(middle[5:25], seed=50), edited(middle[5:25], seed=60))
    reference = seen(film, edited(film, seed=50), middle)
    localizer = DiagonalLocalizer()
    [found, nothing] = localize_views(localizer, upload, [reference, stored(unit_rows(9, seed=3))])
    assert [each.query for each in found] == [Span(0, 20)]
    assert nothing == []
    assert localizer.asked == [2]


def test_a_talk_of_many_scenes_alike_is_held_against_few_of_them(monkeypatch):
    """Two cameras, cut to and fro: every second scene could be the same as every second other."""
    shots, seconds = 40, 10
    cameras = unit_rows(2, seed=1)[np.arange(shots * seconds) // seconds % 2]
    film = unit(cameras + 0.1 * unit_rows(shots * seconds, seed=2))
    runs = [(range(at, at + seconds), film[at : at + seconds]) for at in range(0, 400, seconds)]
    kinds = ViewKind.MIRRORED, ViewKind.MIDDLE
    video = stored(film, join_views(number_runs(kind, runs) for kind in kinds))
    compared = []
    match = pairing._match_scenes
    monkeypatch.setattr(
        pairing, "_match_scenes", lambda *scenes: compared.append(1) or match(*scenes)
    )
    rows, others = match_rows(video, video)
    assert rows is film
    assert others is film
    assert shots <= len(compared) <= 2 * shots * pairing.PARTNERS
