"""What runs the folded detector: torch, ONNX Runtime or OpenVINO.

In: a `FoldedDetector` and a device. Out: an object with `run(pictures) -> raw rows`.
Called by `frozen`. On CUDA torch runs it in half precision; on a CPU the fastest that is installed
does: OpenVINO, then ONNX Runtime (measured by `benchmarks/localize.py`).
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from retrieval.errors import BadSetting
from vcl_plugin.model.config import TransVCLConfig
from vcl_plugin.model.folded import FoldedDetector

RUNTIMES = ("openvino", "onnxruntime", "torch")


class Runtime(Protocol):
    name: str

    def run(self, pictures: Tensor) -> Tensor:
        """(batch, channels, size, size) to (batch, anchors, 6)."""
        ...


def installed_runtimes() -> list[str]:
    """Those that can be imported here, fastest first."""
    return [name for name in RUNTIMES if importlib.util.find_spec(name) is not None]


def open_runtime(
    detector: FoldedDetector, config: TransVCLConfig, device: torch.device, name: str = "auto"
) -> Runtime:
    """The detector ready to run; "auto" is torch on CUDA, else the fastest that is installed."""
    if name not in ("auto", *RUNTIMES):
        raise BadSetting(f"runtime {name!r} is unknown; use auto, {', '.join(RUNTIMES)}")
    if name == "auto":
        name = "torch" if device.type == "cuda" else installed_runtimes()[0]
    if name == "torch":
        return TorchRuntime(detector, device)
    if device.type != "cpu":
        raise BadSetting(f"runtime {name} runs on the CPU only; use torch on {device}")
    if name not in installed_runtimes():
        raise BadSetting(f"runtime {name} is not installed; `pip install {name}` or use auto")
    content = export_onnx(detector, config)
    return OpenVINORuntime(content) if name == "openvino" else OnnxRuntime(content)


class TorchRuntime:
    name = "torch"

    def __init__(self, detector: FoldedDetector, device: torch.device) -> None:
        self.device = device
        self.dtype = torch.float16 if device.type == "cuda" else torch.float32
        self.detector = detector.eval().to(device=device, dtype=self.dtype)
        for weight in self.detector.parameters():
            if weight.dim() == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)

    def run(self, pictures: Tensor) -> Tensor:
        placed = pictures.to(device=self.device, dtype=self.dtype)
        with torch.inference_mode():
            raw: Tensor = self.detector(placed.contiguous(memory_format=torch.channels_last))
        return raw


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        # Without it idle threads spin, which starves the other workers of the machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(content, options, providers=providers)

    def run(self, pictures: Tensor) -> Tensor:
        feed = {"picture": np.ascontiguousarray(pictures.numpy())}
        return torch.from_numpy(self.session.run(None, feed)[0])


class OpenVINORuntime:
    name = "openvino"

    def __init__(self, content: bytes) -> None:
        import openvino

        properties = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "NUM_STREAMS": 1,
            # Without it OpenVINO may choose bf16 where the processor has it: other numbers.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = openvino.Core()
        self.compiled = core.compile_model(core.read_model(content), "CPU", properties)
        self.request = self.compiled.create_infer_request()

    def run(self, pictures: Tensor) -> Tensor:
        outputs = self.request.infer([np.ascontiguousarray(pictures.numpy())], share_inputs=True)
        return torch.from_numpy(outputs[0].copy())


def export_onnx(detector: FoldedDetector, config: TransVCLConfig) -> bytes:
    """The detector as ONNX, its batch axis free."""
    size = config.map_size
    sample = torch.zeros(1, detector.channels, size, size)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The tracing exporter is announced as old; the new one takes ten times as long here.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            detector.eval().cpu(),
            (sample,),
            buffer,  # type: ignore[arg-type]  # a buffer works, the annotation forgot it
            input_names=["picture"],
            output_names=["raw"],
            dynamic_axes={"picture": {0: "batch"}, "raw": {0: "batch"}},
            dynamo=False,
        )
    return buffer.getvalue()
