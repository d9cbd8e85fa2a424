"""TransVCL: the paper's figure, one block a file.

encoder (with attention) → similarity → detector, put together in transvcl; checkpoint reads and
writes weights; frozen is the same network made fast for inference.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcl_plugin.model.config import PAPER, PRESETS, SMALL, TransVCLConfig

if TYPE_CHECKING:
    from vcl_plugin.model.checkpoint import (
        fingerprint_weights,
        load_transvcl,
        read_facts,
        save_transvcl,
    )
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


def __getattr__(name: str) -> Any:
    # On first use: torch takes seconds to import, and a recipe or a command line needs none of it.
    if name not in __all__:
        raise AttributeError(f"module 'vcl_plugin.model' has no attribute {name!r}")
    home = "transvcl" if name.startswith("TransVCL") else "checkpoint"
    return getattr(import_module(f"vcl_plugin.model.{home}"), name)
