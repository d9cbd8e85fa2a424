"""Box maths: suppression, clamping, tiling, and pieces of one copy joined across tile borders."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcl_plugin.localize.boxes import (
    as_boxes,
    box_areas,
    clamp_boxes,
    intersection_matrix,
    iou_matrix,
    nms,
    stitch_boxes,
    tile_starts,
)


@st.composite
def scored_boxes(draw, size=12):
    count = draw(st.integers(0, size))
    number = st.floats(0, 100, width=32)
    rows = []
    for _ in range(count):
        q, r, dq, dr = (draw(number) for _ in range(4))
        rows.append([q, r, q + dq, r + dr])
    scores = draw(st.lists(st.floats(0, 1, width=32), min_size=count, max_size=count))
    return as_boxes(rows), np.asarray(scores)


def test_iou_of_half_shifted_squares_is_a_third():
    assert iou_matrix([[0, 0, 2, 2]], [[1, 0, 3, 2]])[0, 0] == pytest.approx(1 / 3)


def test_iou_of_empty_boxes_is_zero_instead_of_nan():
    assert iou_matrix([[1, 1, 1, 1]], [[1, 1, 1, 1]])[0, 0] == 0


def test_intersection_of_touching_boxes_is_nothing():
    assert intersection_matrix([[0, 0, 2, 2]], [[2, 0, 4, 2]])[0, 0] == 0


def test_no_boxes_are_a_fine_input():
    assert len(nms([], [], 0.3)) == 0
    assert iou_matrix([], [[0, 0, 1, 1]]).shape == (0, 1)
    assert box_areas([]).shape == (0,)


def test_rows_of_three_numbers_are_refused():
    with pytest.raises(ValueError, match="rows of four numbers"):
        as_boxes([[1, 2, 3]])


def test_nms_refuses_scores_that_do_not_match():
    with pytest.raises(ValueError, match="2 boxes came with 1 scores"):
        nms([[0, 0, 1, 1], [0, 0, 1, 1]], [0.5], 0.3)


@given(scored_boxes(), st.floats(0, 1))
def test_kept_boxes_overlap_no_more_than_the_threshold(given_boxes, threshold):
    boxes, scores = given_boxes
    kept = nms(boxes, scores, threshold)
    overlap = iou_matrix(boxes[kept], boxes[kept])
    np.fill_diagonal(overlap, 0)
    assert (overlap <= threshold + 1e-9).all()
    assert (np.diff(scores[kept]) <= 0).all()


@given(scored_boxes(), st.floats(0, 1))
def test_every_dropped_box_overlaps_a_better_kept_one(given_boxes, threshold):
    boxes, scores = given_boxes
    kept = nms(boxes, scores, threshold)
    dropped = np.setdiff1d(np.arange(len(boxes)), kept)
    overlap = iou_matrix(boxes, boxes)
    for index in dropped:
        rivals = kept[scores[kept] >= scores[index]]
        assert (overlap[index, rivals] >= threshold - 1e-9).any()


@given(scored_boxes(), st.randoms(use_true_random=False))
def test_suppression_does_not_depend_on_the_order_of_distinct_scores(given_boxes, random):
    boxes, _ = given_boxes
    scores = np.linspace(0.1, 0.9, len(boxes))
    order = np.arange(len(boxes))
    random.shuffle(order)
    assert (order[nms(boxes[order], scores[order], 0.3)] == nms(boxes, scores, 0.3)).all()


@given(scored_boxes(), st.floats(1, 200), st.floats(1, 200))
def test_clamped_boxes_lie_inside_both_videos(given_boxes, query_end, reference_end):
    clamped, kept = clamp_boxes(given_boxes[0] - 30, query_end, reference_end)
    assert len(clamped) == len(kept)
    assert (clamped >= 0).all()
    assert (clamped[:, [0, 2]] <= query_end).all()
    assert (clamped[:, [1, 3]] <= reference_end).all()
    assert (clamped[:, :2] < clamped[:, 2:]).all()


@given(st.integers(1, 40_000), st.integers(2, 1500), st.data())
def test_tiles_cover_the_video_and_share_the_overlap(frames, tile, data):
    overlap = data.draw(st.integers(0, tile // 2))
    starts = tile_starts(frames, tile, overlap)
    assert starts[0] == 0
    assert starts[-1] == max(0, frames - tile)
    assert all(b - a <= tile - overlap for a, b in pairwise(starts))


def test_a_tile_cannot_be_all_overlap():
    with pytest.raises(ValueError, match="below the tile"):
        tile_starts(100, 10, 10)


TILES = {"left": [0, 0, 1200, 1200], "right": [1000, 1000, 2200, 2200]}
EXTENT = (2200, 2200)


def stitch(pieces):
    boxes = [piece for piece, _ in pieces]
    tiles = [TILES[name] for _, name in pieces]
    joined, scores = stitch_boxes(boxes, np.linspace(0.5, 0.6, len(boxes)), tiles, EXTENT)
    return sorted(map(tuple, joined.tolist())), scores


def test_two_pieces_of_one_forward_copy_become_one():
    joined, scores = stitch(
        [([1100, 1110, 1200, 1200], "left"), ([1101, 1110, 1290, 1302], "right")]
    )
    assert joined == [(1100, 1110, 1290, 1302)]
    assert scores.tolist() == [pytest.approx(0.6)]


def test_two_pieces_of_one_reversed_copy_become_one():
    left, right = [900, 1000, 1200, 1200], [1000, 967, 1250, 1134]
    tiles = [[0, 0, 1200, 1200], [1000, 0, 2200, 1200]]
    joined, _ = stitch_boxes([left, right], [0.5, 0.6], tiles, EXTENT)
    assert len(joined) == 1


def test_pieces_of_different_diagonals_stay_two():
    joined, _ = stitch([([1100, 300, 1200, 400], "left"), ([1100, 1100, 1290, 1290], "right")])
    assert len(joined) == 2


def test_neighbours_within_one_tile_are_never_joined():
    joined, _ = stitch([([1000, 1000, 1100, 1100], "left"), ([1100, 1100, 1198, 1198], "left")])
    assert len(joined) == 2


def test_boxes_no_border_cut_are_never_joined():
    joined, _ = stitch([([900, 900, 1050, 1050], "left"), ([1050, 1050, 1190, 1190], "right")])
    assert len(joined) == 2


def test_a_fragment_inside_a_whole_detection_is_absorbed():
    joined, _ = stitch([([1050, 1050, 1200, 1200], "left"), ([1050, 1050, 1500, 1500], "right")])
    assert joined == [(1050, 1050, 1500, 1500)]


def test_three_tiles_in_a_row_give_one_segment():
    tiles = [[0, 0, 1200, 1200], [1000, 1000, 2200, 2200], [2000, 2000, 3200, 3200]]
    boxes = [[700, 690, 1200, 1200], [1000, 1000, 2200, 2200], [2000, 2000, 2500, 2510]]
    joined, _ = stitch_boxes(boxes, [0.3, 0.9, 0.4], tiles, (3200, 3200))
    assert joined.tolist() == [[700, 690, 2500, 2510]]
