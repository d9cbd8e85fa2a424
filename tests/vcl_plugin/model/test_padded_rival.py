"""The benchmark's rival does the released work: its numbers are the golden ones."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_weights import golden_pair
from test_golden import CASES, OUTPUTS, WHOLE

SOURCE = Path(__file__).parents[3] / "benchmarks" / "padded_transvcl.py"


@pytest.fixture(scope="module")
def rival():
    found = importlib.util.spec_from_file_location("padded_transvcl", SOURCE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", WHOLE)
def test_the_padded_rival_gives_the_released_numbers(golden_model, rival, case):
    query, reference = golden_pair(*(CASES[case][key] for key in ("tag", "n", "m")))
    ((logit, boxes),) = rival.run_padded(
        golden_model, torch.from_numpy(query), [torch.from_numpy(reference)]
    )
    # The release's own float32, which lies up to 0.2 pixels from its float64.
    expected = OUTPUTS[f"{case}/decoded"]
    assert logit == pytest.approx(float(OUTPUTS[f"{case}/global_logit_f64"][0]), abs=1e-4)
    np.testing.assert_allclose(boxes[:, :4], expected[:, :4], atol=0.1)
    np.testing.assert_allclose(boxes[:, 4:], expected[:, 4:], atol=1e-3)
