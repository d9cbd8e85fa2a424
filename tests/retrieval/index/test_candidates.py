"""The references that hold the likeliest copies, best first, and never the query itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.describe.views import ViewKind, number_runs
from retrieval.index.candidates import DEPTH, propose_pairs
from retrieval.index.local import VideoIndex
from retrieval.index.pooling import MeanPooler, pool_query
from retrieval.plugins import Pooled
from retrieval.store import StoredDescriptors
from tests.retrieval.index.test_local import DIMENSION, pooled
from tests.retrieval.test_store import unit_rows


@given(st.integers(0, 12), st.integers(1, 15), st.floats(-1, 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_candidates_are_ranked_by_score_and_cut_at_the_wanted_number(
    count: int, top_k: int, min_score: float, is_reference: bool
):
    index = VideoIndex("key", DIMENSION)
    query = pooled(77, 3)
    for number in range(count):
        index.add(f"r{number}", pooled(number, 1 + number % 3))
    if is_reference:
        index.add("q", query)
    pairs = propose_pairs(index, "q", query, top_k, min_score)
    everyone = propose_pairs(index, "q", query, 100, -1.0)
    assert {pair.reference_id for pair in everyone} == {f"r{number}" for number in range(count)}
    assert pairs == [pair for pair in everyone if pair.score >= min_score][:top_k]
    assert [pair.rank for pair in pairs] == list(range(1, len(pairs) + 1))
    assert [pair.score for pair in pairs] == sorted((pair.score for pair in pairs), reverse=True)
    assert all(pair.query_id == "q" for pair in pairs)


def test_of_two_references_the_one_with_the_nearer_vector_is_first():
    index = VideoIndex("key", DIMENSION)
    query = pooled(1, 1)
    for name, share in (("near", 0.9), ("far", 0.6)):
        mixed = share * query.vectors + (1 - share) * pooled(5, 1).vectors
        mixed /= np.linalg.norm(mixed)
        index.add(name, Pooled(mixed.astype(np.float32), query.spans))
    assert [each.reference_id for each in propose_pairs(index, "q", query, 2)] == ["near", "far"]


def test_references_of_equal_score_are_ordered_by_name():
    index = VideoIndex("key", DIMENSION)
    for name in ("c", "a", "b"):
        index.add(name, pooled(1))
    names = [pair.reference_id for pair in propose_pairs(index, "q", pooled(1), 3)]
    assert names == ["a", "b", "c"]


def test_a_long_reference_does_not_crowd_out_the_others():
    index = VideoIndex("key", DIMENSION)
    query = pooled(1, 1)
    near = np.repeat(query.vectors, 40 * DEPTH, axis=0)
    index.add("long", Pooled(near, np.zeros((len(near), 2), np.float32)))
    for number in range(5):
        index.add(f"r{number}", pooled(number + 10))
    pairs = propose_pairs(index, "q", query, top_k=3, min_score=-1.0)
    assert len(pairs) == 3
    assert pairs[0].reference_id == "long"


def test_a_query_that_is_a_reference_with_many_windows_still_finds_the_others():
    index = VideoIndex("key", DIMENSION)
    query = pooled(1, 1)
    own = np.repeat(query.vectors, 40 * DEPTH, axis=0)
    index.add("q", Pooled(own, np.zeros((len(own), 2), np.float32)))
    index.add("other", pooled(2))
    [pair] = propose_pairs(index, "q", query, top_k=1, min_score=-1.0)
    assert pair.reference_id == "other"


def test_a_short_copy_in_a_long_reference_is_found_through_its_stretch():
    pooler = MeanPooler()
    index = VideoIndex("key")
    copied = unit_rows(1, seed=1).repeat(5, axis=0) + 0.3 * unit_rows(5, seed=8)
    long = unit_rows(600, seed=2)
    long[300:305] = copied
    index.add("long", pooler.pool(long))
    for number in range(40):
        index.add(f"r{number}", pooler.pool(unit_rows(600, seed=100 + number)))
    assert propose_pairs(index, "q", pooler.pool(copied), 1)[0].reference_id == "long"


def stretch(vector: np.ndarray, start: float, weight: float = 1.0) -> Pooled:
    spans = np.array([[start, start + 4]], np.float32)
    return Pooled(vector[None], spans, np.array([weight], np.float32))


def joined(*stretches: Pooled) -> Pooled:
    return Pooled(
        np.concatenate([each.vectors for each in stretches]),
        np.concatenate([each.spans for each in stretches]),
        np.concatenate([each.weights for each in stretches]),
    )


def turned(vector: np.ndarray, seed: int, alike: float) -> np.ndarray:
    """A unit vector whose inner product with `vector` is `alike`."""
    other = unit_rows(1, seed)[0]
    other = other - (other @ vector) * vector
    other /= np.linalg.norm(other)
    return (alike * vector + np.sqrt(1 - alike**2) * other).astype(np.float32)


def test_footage_that_everybody_shows_accuses_nobody():
    ident, scene = unit_rows(2, seed=1)
    index = VideoIndex("key")
    for number in range(250):
        own = unit_rows(1, seed=100 + number)[0]
        index.add(f"r{number}", joined(stretch(ident, 0), stretch(own, 4)))
    index.add("copied", stretch(turned(scene, seed=3, alike=0.6), 0))
    query = joined(stretch(ident, 0), stretch(scene, 4))
    first = propose_pairs(index, "q", query, 20)[0]
    assert first.reference_id == "copied", "though the ident matches 250 others perfectly"


def test_a_stretch_that_says_little_votes_little():
    card, scene = unit_rows(2, seed=1)
    index = VideoIndex("key")
    index.add("card", stretch(card, 0))
    index.add("copied", stretch(turned(scene, seed=3, alike=0.6), 0))
    loud = joined(stretch(card, 0), stretch(scene, 4))
    quiet = joined(stretch(card, 0, weight=0.05), stretch(scene, 4))
    assert propose_pairs(index, "q", loud, 1)[0].reference_id == "card"
    assert propose_pairs(index, "q", quiet, 1)[0].reference_id == "copied"


def test_votes_that_agree_in_time_count_more_than_those_that_do_not():
    scenes = unit_rows(4, seed=1)
    shown = [turned(scene, seed=9 + number, alike=0.7) for number, scene in enumerate(scenes)]
    index = VideoIndex("key")
    times = {"aligned": (30, 34, 38, 42), "mixed": (90, 30, 200, 150)}
    for name, starts in times.items():
        index.add(name, joined(*(stretch(v, at) for v, at in zip(shown, starts, strict=True))))
    query = joined(*(stretch(scene, 4 * number) for number, scene in enumerate(scenes)))
    aligned, mixed = propose_pairs(index, "q", query, 2)
    assert (aligned.reference_id, mixed.reference_id) == ("aligned", "mixed")
    assert aligned.score > 1.1 * mixed.score


def test_a_score_hardly_depends_on_how_much_else_is_in_the_index():
    copied = unit_rows(8, seed=1)
    pooler, scores = MeanPooler(), []
    for others in (0, 60):
        index = VideoIndex("key")
        index.add("r", pooler.pool(copied))
        for number in range(others):
            # Unrelated footage of a real descriptor is not at right angles: it shares a direction.
            rows = unit_rows(40, seed=10 + number) + 0.9 * unit_rows(1, seed=2)
            index.add(f"o{number}", pooler.pool(rows))
        [best] = propose_pairs(index, "q", pooler.pool(copied), 1)
        assert best.reference_id == "r"
        scores.append(best.score)
    assert abs(scores[0] - scores[1]) < 0.35


def test_a_film_shown_small_is_a_candidate_through_its_part():
    pooler, index = MeanPooler(), VideoIndex("key")
    films = [unit_rows(60, seed=number) for number in range(30)]
    for number, film in enumerate(films):
        index.add(f"r{number}", pooler.pool(film))
    whole = unit_rows(40, seed=99)
    parts = number_runs(ViewKind.PART, [(range(10, 26), films[17][20:36])])
    query = StoredDescriptors(whole, np.zeros(40, bool), None, parts)
    best = propose_pairs(index, "q", pool_query(pooler, query), 1)[0]
    assert best.reference_id == "r17"
    assert best.score > 2 * propose_pairs(index, "q", pooler.pool(whole), 1)[0].score
