"""The golden network, built once: reading its 10 million random weights takes a second."""

import pytest
import torch
from golden_weights import golden_state_dict

from vcl_plugin.model import PAPER, SMALL, TransVCL


@pytest.fixture(scope="session")
def golden_model():
    model = TransVCL(PAPER)
    model.load_state_dict(golden_state_dict(), strict=True)
    return model.eval()


@pytest.fixture(scope="session")
def low_model():
    model = TransVCL(PAPER)
    model.load_state_dict(golden_state_dict(is_low=True), strict=True)
    return model.eval()


@pytest.fixture
def small_model():
    torch.manual_seed(0)
    return TransVCL(SMALL)
