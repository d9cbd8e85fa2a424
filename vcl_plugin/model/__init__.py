"""TransVCL: the paper's figure, one block a file.

encoder (with attention) → similarity → detector, put together in transvcl; checkpoint reads and
writes weights; frozen is the same network made fast for inference.
"""

from vcl_plugin.model.checkpoint import (
    fingerprint_weights,
    load_transvcl,
    read_facts,
    save_transvcl,
)
from vcl_plugin.model.config import PAPER, PRESETS, SMALL, TransVCLConfig
from vcl_plugin.model.transvcl import TransVCL, TransVCLOutput

__all__ = [
    "PAPER",
    "PRESETS",
    "SMALL",
    "TransVCL",
    "TransVCLConfig",
    "TransVCLOutput",
    "fingerprint_weights",
    "load_transvcl",
    "read_facts",
    "save_transvcl",
]
