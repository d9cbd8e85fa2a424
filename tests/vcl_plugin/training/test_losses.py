"""Assignment and losses: the right cells answer, and unknown labels teach nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.vcl_plugin.training.planted_pairs import plant
from vcl_plugin.model import SMALL, TransVCL
from vcl_plugin.model.detector import anchor_grid
from vcl_plugin.training.assignment import assign_cells, box_ious
from vcl_plugin.training.batches import collate
from vcl_plugin.training.losses import TokenQueue, boxes_in_pixels, measure_loss
from vcl_plugin.training.recipe import Loss

CONFIG = replace(SMALL, map_size=64)
GRID = anchor_grid(CONFIG)


def run(pairs, choices=None, queue=None, seed=0):
    torch.manual_seed(seed)
    model = TransVCL(CONFIG).train()
    batch = collate(pairs)
    output = model(batch.query, batch.reference, batch.query_mask, batch.reference_mask)
    terms = measure_loss(output, pairs, model.grid, 64, choices or Loss(), queue)
    return model, output, terms


def perfect_prediction(truth: torch.Tensor) -> torch.Tensor:
    """Every cell predicts the first true box."""
    return truth[:1].expand(len(GRID), 4)


def test_cells_near_the_centre_answer_for_a_box():
    truth = torch.tensor([[32.0, 32.0, 40.0, 40.0]])
    logits = torch.zeros(len(GRID))
    found = assign_cells(perfect_prediction(truth), logits, logits, truth, GRID, 1.5)
    assert len(found.cells) == 10  # ten overlaps of 1 sum up to ten cells
    assert torch.allclose(found.ious, torch.ones(10))
    centres = (GRID[found.cells, :2] + 0.5) * GRID[found.cells, 2:]
    assert ((centres - 32).abs() <= 1.5 * GRID[found.cells, 2:]).all()


def test_poor_predictions_leave_a_box_one_cell():
    truth = torch.tensor([[32.0, 32.0, 40.0, 40.0]])
    tiny = torch.cat([(GRID[:, :2] + 0.5) * GRID[:, 2:], torch.full((len(GRID), 2), 2.0)], dim=1)
    logits = torch.zeros(len(GRID))
    found = assign_cells(tiny, logits, logits, truth, GRID, 2.5)
    assert len(found.cells) == 1


def test_cell_wanted_by_two_boxes_goes_to_the_better_fit():
    truth = torch.tensor([[32.0, 32.0, 40.0, 40.0], [32.0, 32.0, 20.0, 20.0]])
    logits = torch.zeros(len(GRID))
    found = assign_cells(perfect_prediction(truth), logits, logits, truth, GRID, 1.5)
    assert len(found.cells) == len(found.cells.unique())
    assert (found.boxes == 0).sum() > 0


def test_box_beyond_every_cell_is_answered_by_none():
    truth = torch.tensor([[900.0, 900.0, 1.0, 1.0]])
    logits = torch.zeros(len(GRID))
    assert len(assign_cells(perfect_prediction(truth), logits, logits, truth, GRID, 2.5).cells) == 0


def test_ious_of_known_boxes():
    boxes = torch.tensor([[1.0, 1.0, 2.0, 2.0], [2.0, 1.0, 2.0, 2.0]])
    expected = torch.tensor([[1.0, 1 / 3], [1 / 3, 1.0]])
    assert torch.allclose(box_ious(boxes, boxes), expected)


def test_boxes_become_pixels_with_the_reference_along_x():
    pair = replace(plant(0, n=32, m=64), boxes=np.array([[8, 32, 16, 64]], np.float32))
    assert boxes_in_pixels(pair, pair.boxes, 64).tolist() == [[48.0, 24.0, 32.0, 16.0]]


def test_loss_reaches_every_parameter():
    pairs = [plant(1), plant(2), plant(3, is_copy=False)]
    model, _, terms = run(pairs, queue=TokenQueue(8, 256))
    terms.total.backward()
    silent = [name for name, each in model.named_parameters() if each.grad is None]
    assert silent == []
    assert all(float(each.detach()) > 0 for each in terms)


def test_pair_without_boxes_teaches_the_video_level_alone():
    pair = replace(plant(1), boxes=None)
    _, _, terms = run([pair, pair])
    assert terms.box.item() == terms.objectness.item() == terms.classes.item() == 0
    assert terms.video.item() > 0


def test_pair_of_which_nothing_is_known_teaches_nothing():
    pair = replace(plant(1), boxes=None, is_copy=None)
    _, _, terms = run([pair, pair], queue=TokenQueue(8, 256))
    assert terms.total.item() == 0


def test_negative_pair_has_objectness_and_no_box_term():
    _, _, terms = run([plant(1, is_copy=False)] * 2)
    assert terms.box.item() == 0
    assert terms.objectness.item() > 0


def test_cells_of_a_doubtful_box_teach_no_objectness():
    negative = plant(1, is_copy=False)
    n, m = len(negative.query), len(negative.reference)
    whole = np.array([[0, 0, n, m]], np.float32)
    _, _, silent = run([replace(negative, doubtful=whole)] * 2)
    assert silent.objectness.item() == 0
    _, _, full = run([negative] * 2)
    _, _, some = run([replace(negative, doubtful=whole / 2)] * 2)
    assert 0 < some.objectness.item() < full.objectness.item()


def test_a_sure_box_teaches_even_inside_a_doubtful_one():
    pair = plant(1)
    whole = np.array([[0, 0, len(pair.query), len(pair.reference)]], np.float32)
    _, _, terms = run([replace(pair, doubtful=whole)] * 2)
    assert terms.objectness.item() > 0


def test_weight_scales_a_negative_pair():
    negative = plant(1, is_copy=False)
    _, _, full = run([negative, negative])
    _, _, half = run([replace(negative, weight=0.5)] * 2)
    assert half.objectness.item() == pytest.approx(0.5 * full.objectness.item(), rel=1e-5)
    assert half.video.item() == pytest.approx(0.5 * full.video.item(), rel=1e-5)


@pytest.mark.parametrize("is_taught", [False, True])
def test_weight_of_copies_changes_every_term_by_that_weight(is_taught):
    pairs = [replace(plant(n), is_taught=is_taught) for n in (1, 2)]
    _, _, full = run(pairs)
    _, _, half = run([replace(each, weight=0.5) for each in pairs])
    assert full.box.item() > 0
    for name in ("box", "objectness", "classes", "video"):
        expected = 0.5 * getattr(full, name).item()
        assert getattr(half, name).item() == pytest.approx(expected, rel=1e-5)


def test_taught_pairs_are_divided_by_their_own_cells_as_in_the_release():
    marked, taught = plant(1), plant(2)
    weight = 0.5
    _, output, both = run([marked, replace(taught, weight=weight, is_taught=True)])

    def measure(place, pair):
        row = type(output)(
            *(
                each[place : place + 1] if each is not None and len(each) == 2 else each
                for each in output
            )
        )
        return measure_loss(row, [pair], GRID, 64, Loss())

    alone, other = measure(0, marked), measure(1, taught)
    for name in ("box", "objectness", "classes"):
        expected = getattr(alone, name).item() + weight * getattr(other, name).item()
        assert getattr(both, name).item() == pytest.approx(expected, rel=1e-5)


def test_release_sums_the_video_term_over_the_batch():
    pairs = [plant(1), plant(2), plant(4), plant(5)]
    _, _, mean = run(pairs)
    _, _, summed = run(pairs, Loss(video_reduction="sum"))
    assert summed.video.item() == pytest.approx(4 * mean.video.item(), rel=1e-5)


def test_queue_forgets_the_oldest_tokens_and_survives_a_save():
    queue = TokenQueue(3, 256)
    pairs = [plant(1), plant(2)]
    run(pairs, queue=queue)
    run(pairs, queue=queue, seed=1)
    assert (queue.filled, queue.next) == (3, 1)
    other = TokenQueue(3, 256)
    other.load(queue.state())
    assert torch.equal(other.tokens, queue.tokens)
    assert other.next == 1
