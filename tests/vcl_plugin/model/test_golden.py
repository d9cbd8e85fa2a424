"""The authors' numbers: outputs of their release on known weights and inputs, in float64."""

import json

import numpy as np
import pytest
import torch
from golden_weights import GOLDEN, golden_pair, golden_shapes, golden_state_dict, padded

from vcl_plugin.localize.boxes import nms

OUTPUTS = np.load(GOLDEN / "transvcl_outputs.npz")
CASES = json.loads(str(OUTPUTS["meta"]))
WHOLE = [name for name, facts in CASES.items() if "variant" not in facts]
LOW = [name for name, facts in CASES.items() if "variant" in facts]


def pair_of(case):
    return golden_pair(*(CASES[case][key] for key in ("tag", "n", "m")))


def strided(similarity):
    n, m = similarity.shape
    return similarity[:: -(-n // 24), :: -(-m // 24)]


def assert_close(found, expected, tolerance):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=tolerance)


def run(model, case, padding=0):
    query, reference = pair_of(case)
    q, q_mask = padded(query, max(len(query), padding))
    r, r_mask = padded(reference, max(len(reference), padding))
    with torch.inference_mode():
        return model(q, r, q_mask, r_mask)


def test_the_golden_weights_are_those_of_the_fingerprint():
    prints = json.loads((GOLDEN / "transvcl_weights.json").read_text())
    entries = golden_state_dict()
    assert set(entries) == set(prints)
    for name, (*first, total) in prints.items():
        values = entries[name].double().flatten()
        assert_close(values[:4][: len(first)], first[: len(values)], 1e-6)
        assert float(values.sum()) == pytest.approx(total, abs=1e-3)


def test_the_golden_inputs_are_those_of_the_fingerprint():
    prints = json.loads((GOLDEN / "transvcl_inputs.json").read_text())
    for key, facts in prints.items():
        tag, size = key.split(":")
        query, reference = golden_pair(tag, *map(int, size.split("x")))
        assert_close(query[0, :4], facts["q0"], 1e-7)
        assert_close(reference[-1, :4], facts["r_last"], 1e-7)
        assert query.astype(float).sum() == pytest.approx(facts["qsum"], abs=1e-4)


def test_our_entries_are_those_of_the_release(golden_model):
    ours = {name: tuple(value.shape) for name, value in golden_model.state_dict().items()}
    assert ours == golden_shapes()
    assert sum(value.numel() for value in golden_model.parameters()) == 10_382_803


@pytest.mark.parametrize("case", WHOLE)
def test_a_pair_gives_the_released_numbers(golden_model, case):
    output = run(golden_model, case)
    similarity, boxes = output.similarity[0].numpy(), output.boxes[0].numpy()
    expected = OUTPUTS[f"{case}/decoded_f64"]
    assert float(output.video_logit) == pytest.approx(
        float(OUTPUTS[f"{case}/global_logit_f64"][0]), abs=1e-4
    )
    assert_close(strided(similarity), OUTPUTS[f"{case}/sim_slice"], 1e-4)
    assert similarity.max() == pytest.approx(OUTPUTS[f"{case}/sim_sums"][2], abs=1e-4)
    assert_close(boxes[:, :4], expected[:, :4], 0.1)
    assert_close(boxes[:, 4:], expected[:, 4:], 1e-3)


def test_enhanced_frames_are_the_released_ones(golden_model):
    query, reference = pair_of("b_300x220")
    with torch.inference_mode():
        q, q_mask = padded(query, len(query))
        r, r_mask = padded(reference, len(reference))
        enhanced = golden_model.feat_encoding(q, r, q_mask, r_mask)
    assert_close(enhanced.query[0, 0], OUTPUTS["b_300x220/cls_q"], 1e-4)
    assert_close(enhanced.reference[0, 0], OUTPUTS["b_300x220/cls_r"], 1e-4)
    assert_close(enhanced.query[0, 1:][::13, ::8], OUTPUTS["b_300x220/enc_q_slice"], 1e-4)
    assert_close(enhanced.reference[0, 1:][::10, ::8], OUTPUTS["b_300x220/enc_r_slice"], 1e-4)


def test_the_padded_batch_gives_the_released_numbers(golden_model):
    cases = ["d_batch3.0", "d_batch3.1", "d_batch3.2"]
    pairs = [pair_of(case) for case in cases]
    q, q_mask = (torch.cat(each) for each in zip(*(padded(q) for q, _ in pairs), strict=True))
    r, r_mask = (torch.cat(each) for each in zip(*(padded(r) for _, r in pairs), strict=True))
    with torch.inference_mode():
        output = golden_model(q, r, q_mask, r_mask)
    for i, case in enumerate(cases):
        expected = OUTPUTS[f"{case}/decoded_f64"]
        logit = float(OUTPUTS[f"{case}/global_logit_f64"][0])
        assert float(output.video_logit[i]) == pytest.approx(logit, abs=1e-4)
        assert_close(strided(output.similarity[i].numpy()), OUTPUTS[f"{case}/sim_slice"], 1e-4)
        assert_close(output.boxes[i, :, :4], expected[:, :4], 0.1)
        assert_close(output.boxes[i, :, 4:], expected[:, 4:], 1e-3)


@pytest.mark.parametrize("case", LOW)
@pytest.mark.parametrize("padding", [0, 1200])
def test_padding_counts_in_the_softmax_as_it_was_trained(low_model, case, padding):
    output = run(low_model, case, padding)
    similarity = output.similarity[0].double().numpy() * 1e6
    expected = OUTPUTS[f"{case}/sim_scaled_slice"]
    np.testing.assert_allclose(strided(similarity), expected, rtol=1e-4)
    assert float(output.video_logit) == pytest.approx(
        float(OUTPUTS[f"{case}/global_logit"][0]), abs=1e-4
    )


@pytest.mark.parametrize("case", WHOLE)
def test_suppression_of_the_stored_boxes_is_exact(case):
    rows = OUTPUTS[f"{case}/decoded"]
    corners = np.concatenate(
        [rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1
    )
    score = rows[:, 4] * rows[:, 5]
    chosen = np.flatnonzero(score >= 0.1)
    kept = chosen[nms(corners[chosen], score[chosen], 0.3)]
    expected = OUTPUTS[f"{case}/nms"]
    assert len(kept) == len(expected)
    assert_close(corners[kept], expected[:, :4], 1e-4)
    assert_close(rows[kept, 4:], expected[:, 4:6], 0)
