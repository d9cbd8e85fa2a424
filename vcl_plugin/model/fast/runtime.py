"""What runs the folded detector, or its pyramid: torch, ONNX Runtime or OpenVINO.

In: a module that takes pictures, and a device. Out: an object with `run(pictures) -> tensors`.
On CUDA torch runs it in half precision; on a CPU the fastest that is installed does
(`benchmarks/localize.py --runtimes` compares them).
"""

from __future__ import annotations

import importlib.util
import io
import warnings
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from retrieval.errors import BadSetting
from vcl_plugin.model.fast.pieces import cut_graph

# Fastest first, as measured: OpenVINO needs 14 to 18 % more here, torch 37 to 60 %.
RUNTIMES = ("onnxruntime", "openvino", "torch")


class Runtime(Protocol):
    name: str

    def run(self, pictures: Tensor) -> list[Tensor]:
        """The module's outputs for (batch, channels, size, size)."""
        ...


def installed_runtimes() -> list[str]:
    """Those that can be imported here, fastest first."""
    return [name for name in RUNTIMES if importlib.util.find_spec(name) is not None]


def open_runtime(
    module: nn.Module, shape: tuple[int, int, int], device: torch.device, name: str = "auto"
) -> Runtime:
    """The module ready to run on pictures of `shape` (channels, size, size).

    "auto" is torch on CUDA, else the fastest that is installed.
    """
    if name not in ("auto", *RUNTIMES):
        raise BadSetting(f"runtime {name!r} is unknown; use auto, {', '.join(RUNTIMES)}")
    if name == "auto":
        name = "torch" if device.type == "cuda" else installed_runtimes()[0]
    if name == "torch":
        return TorchRuntime(module, device)
    if device.type != "cpu":
        raise BadSetting(f"runtime {name} runs on the CPU only; use torch on {device}")
    if name not in installed_runtimes():
        raise BadSetting(f"runtime {name} is not installed; `pip install {name}` or use auto")
    content = export_onnx(module, shape)
    return OpenVINORuntime(content) if name == "openvino" else OnnxRuntime(content)


class TorchRuntime:
    name = "torch"

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.device = device
        self.dtype = torch.float16 if device.type == "cuda" else torch.float32
        self.module = module.eval().to(device=device, dtype=self.dtype)
        for weight in self.module.parameters():
            if weight.dim() == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)

    def run(self, pictures: Tensor) -> list[Tensor]:
        placed = pictures.to(device=self.device, dtype=self.dtype)
        with torch.inference_mode():
            outputs = self.module(placed.contiguous(memory_format=torch.channels_last))
        return [outputs] if isinstance(outputs, Tensor) else list(outputs)


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
        self.pieces = [
            (piece, onnxruntime.InferenceSession(piece.content, options, providers=providers))
            for piece in cut_graph(content)
        ]

    def run(self, pictures: Tensor) -> list[Tensor]:
        values = {"picture": np.ascontiguousarray(pictures.numpy())}
        for piece, session in self.pieces:
            feed = {name: values[name] for name in piece.reads}
            values.update(zip(piece.writes, session.run(piece.writes, feed), strict=True))
            if piece.then is not None:
                values[piece.then.writes] = piece.then(values[piece.then.reads])
        names = sorted(name for name in values if name.startswith("output"))
        return [torch.from_numpy(values[name]) for name in names]


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

    def run(self, pictures: Tensor) -> list[Tensor]:
        outputs = self.request.infer([np.ascontiguousarray(pictures.numpy())], share_inputs=True)
        return [torch.from_numpy(each.copy()) for each in outputs.values()]


def export_onnx(module: nn.Module, shape: tuple[int, int, int]) -> bytes:
    """The module as ONNX, its batch axis free."""
    sample = torch.zeros(1, *shape)
    with torch.inference_mode():
        # How many outputs there are, a small picture tells as well.
        outputs = module.eval().cpu()(sample[..., :64, :64])
    count = 1 if isinstance(outputs, Tensor) else len(outputs)
    names = ["picture", *(f"output{i}" for i in range(count))]
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The tracing exporter is announced as old; the new one takes ten times as long here.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (sample,),
            buffer,  # type: ignore[arg-type]  # a buffer works, the annotation forgot it
            input_names=names[:1],
            output_names=names[1:],
            dynamic_axes={name: {0: "batch"} for name in names},
            dynamo=False,
        )
    return buffer.getvalue()
