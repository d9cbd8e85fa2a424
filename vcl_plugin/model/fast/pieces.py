"""A graph in pieces: between them stand the convolutions that Winograd computes faster.

In: a network as ONNX. Out: its pieces in the order they run, each with the names of what it reads
and writes, and with the convolution that comes after it. A graph without any is one piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vcl_plugin.model.fast.winograd import HAS_NNPACK, convolve

# Narrower or smaller ones lose to their transforms, and less work to the way out and back in.
_MIN_CHANNELS, _MIN_CELLS, _MIN_WORK = 64, 40 * 40, 128 * 128 * 40 * 40


@dataclass(frozen=True, slots=True)
class Convolution:
    """3x3, of stride 1, from one named value to another."""

    reads: str
    writes: str
    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return convolve(torch.from_numpy(x), self.weight, self.bias).numpy()


@dataclass(frozen=True, slots=True)
class Piece:
    content: bytes  # as ONNX
    reads: list[str]
    writes: list[str]
    then: Convolution | None  # None after the last piece


def cut_graph(content: bytes) -> list[Piece]:
    import onnx
    from onnx.utils import Extractor

    # A piece must know the shapes of what it reads: they decide ONNX Runtime's layouts.
    extractor = Extractor(onnx.shape_inference.infer_shapes(onnx.load_from_string(content)))
    graph = extractor.model.graph
    weights = {each.name: each for each in graph.initializer}
    shapes = {each.name: _shape(each) for each in (*graph.value_info, *graph.output)}
    stretches: list[list[Any]] = [[]]
    convolutions: list[Convolution | None] = []
    for node in graph.node:
        if HAS_NNPACK and _pays(node, weights, shapes):
            weight, bias = (onnx.numpy_helper.to_array(weights[name]) for name in node.input[1:])
            tensors = torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy())
            convolutions.append(Convolution(node.input[0], node.output[0], *tensors))
            stretches.append([])  # never stays empty: a SiLU follows each convolution
        else:
            stretches[-1].append(node)
    convolutions.append(None)

    pieces: list[Piece] = []
    wanted = {each.name for each in graph.output}  # by whatever comes later; so, from the end
    for nodes, then in zip(reversed(stretches), reversed(convolutions), strict=True):
        if then is not None:
            wanted.add(then.reads)
        made = {name for node in nodes for name in node.output}
        needed = {name for node in nodes for name in node.input if name} - made - weights.keys()
        reads, writes = sorted(needed), sorted(wanted & made)
        piece = extractor.extract_model(reads, writes).SerializeToString()
        pieces.append(Piece(piece, reads, writes, then))
        wanted |= needed
    return pieces[::-1]


def _pays(node: Any, weights: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> bool:
    if node.op_type != "Conv" or len(node.input) < 3:
        return False
    outputs, inputs, *kernel = weights[node.input[1]].dims
    strides = next(list(each.ints) for each in node.attribute if each.name == "strides")
    if kernel != [3, 3] or strides != [1, 1]:
        return False
    cells = shapes[node.output[0]][2] * shapes[node.output[0]][3]
    is_wide = min(inputs, outputs) >= _MIN_CHANNELS and cells >= _MIN_CELLS
    return is_wide and inputs * outputs * cells >= _MIN_WORK


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(each.dim_value for each in value.type.tensor_type.shape.dim)
