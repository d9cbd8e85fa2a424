"""Sessions of ONNX Runtime: a graph, and what computes it.

In: a graph on disk, threads, and a device as `VCL_DEVICE` names it. Out: an open session, or
`BadSetting` where the device that was asked for cannot be had.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retrieval.errors import BadSetting

CUDA = "CUDAExecutionProvider"


def open_session(graph: Path, threads: int, device: str = "auto") -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Workers are many on one machine and say so: threads of each on every core cost 10 % more.
    spoken = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = threads or (int(spoken) if spoken.isdecimal() else 0)
    options.inter_op_num_threads = 1
    # Spinning threads would take the core that the decoder child needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    providers = choose_providers(device, onnxruntime.get_available_providers())
    if len(providers) > 1:
        # CUDA and cuDNN as pip installs them; a machine that has its own keeps them.
        onnxruntime.preload_dlls()
    session = onnxruntime.InferenceSession(str(graph), options, providers=providers)
    # ONNX Runtime goes on with the CPU where the card, its driver or a library is missing.
    if device.startswith("cuda") and CUDA not in session.get_providers():
        raise BadSetting(
            f"device is {device!r}, but ONNX Runtime cannot use that card; see `nvidia-smi`, "
            "install the driver or the extra `gpu`, or use cpu or auto"
        )
    return session


def choose_providers(device: str, available: Sequence[str]) -> list[Any]:
    """What ONNX Runtime computes with, best first. "auto" takes a card if its package is there."""
    wanted, _, number = device.partition(":")
    if wanted == "cpu" or (wanted == "auto" and CUDA not in available):
        return ["CPUExecutionProvider"]
    if CUDA not in available:
        raise BadSetting(
            f"device is {device!r}, but this ONNX Runtime knows no CUDA ({', '.join(available)}); "
            "install the extra `gpu`, or use cpu or auto"
        )
    return [(CUDA, {"device_id": int(number or 0)}), "CPUExecutionProvider"]


def knows_cuda() -> bool:
    import onnxruntime

    return CUDA in onnxruntime.get_available_providers()
