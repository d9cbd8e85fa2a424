"""Descriptors: unit vectors that a copy keeps, made the same way everywhere, swappable by name."""

from __future__ import annotations

import argparse
import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.numpy import load_file, save_file

from retrieval.describe import isc
from retrieval.describe.descriptors import load_descriptor
from retrieval.describe.fitting.edits import EDITS
from retrieval.describe.lite0 import (
    SHIPPED_WEIGHTS,
    Lite0Descriptor,
    build_graph,
    find_backbone,
    read_backbone,
)
from retrieval.describe.parts import best_over_views, embed_parts, propose_parts
from retrieval.describe.pictures import flag_low_information
from retrieval.describe.sessions import choose_providers, open_session
from retrieval.describe.views import ViewKind, number_runs
from retrieval.errors import BadDescriptors, BadSetting, MissingWeights, UnknownPlugin
from retrieval.records import Fingerprint
from vcl_plugin.demo.scenery import SCENES


def paint_scenes(count: int, seed: int = 5, size: tuple[int, int] = (200, 150)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([SCENES[number % len(SCENES)](rng, size) for number in range(count)])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def descriptor(cache: Path) -> Lite0Descriptor:
    return Lite0Descriptor(threads=1, cache_dir=cache)


@pytest.fixture(scope="module")
def scenes() -> np.ndarray:
    return paint_scenes(12)


def test_descriptors_are_256_numbers_of_unit_length(
    descriptor: Lite0Descriptor, scenes: np.ndarray
) -> None:
    vectors = descriptor.embed(scenes)
    assert vectors.shape == (12, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (224, 224), (640, 361)])
def test_frames_of_any_size_are_described(
    descriptor: Lite0Descriptor, size: tuple[int, int]
) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (2, *size, 3), dtype=np.uint8)
    assert np.isfinite(descriptor.embed(frames)).all()


def test_no_frames_give_no_descriptors(descriptor: Lite0Descriptor) -> None:
    assert descriptor.embed(np.zeros((0, 20, 20, 3), np.uint8)).shape == (0, 256)


def test_the_network_says_the_same_of_few_and_of_many_pictures(
    descriptor: Lite0Descriptor, scenes: np.ndarray
) -> None:
    frames = np.stack(
        [np.asarray(Image.fromarray(each).resize(descriptor.frame_size)) for each in scenes]
    )
    (at_once,) = descriptor._session.run(None, {"pictures": frames})
    assert np.array_equal(descriptor.embed(frames), at_once)


def test_a_frame_does_not_depend_on_its_neighbours(
    descriptor: Lite0Descriptor, scenes: np.ndarray
) -> None:
    many = np.concatenate([scenes, scenes[::-1]])
    together = descriptor.embed(many)
    alone = np.concatenate([descriptor.embed(many[number : number + 1]) for number in range(24)])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("wrong", [np.zeros((2, 8, 8, 3)), np.zeros((8, 8, 3), np.uint8)])
def test_what_is_no_frame_is_refused(descriptor: Lite0Descriptor, wrong: np.ndarray) -> None:
    with pytest.raises(BadDescriptors, match="uint8 of shape"):
        descriptor.embed(wrong)


@pytest.mark.parametrize(
    "edit", ["mirror", "crop", "letterbox", "grey", "compress", "caption", "sticker"]
)
def test_an_edited_copy_is_nearest_to_its_original(
    edit: str, descriptor: Lite0Descriptor, scenes: np.ndarray
) -> None:
    rng = np.random.default_rng(1)
    pictures = [Image.fromarray(scene) for scene in scenes]
    edited = [
        EDITS[edit](picture, 0.45, rng, pictures[number - 1]).resize((200, 150))
        for number, picture in enumerate(pictures)
    ]
    copies = descriptor.embed(np.stack([np.asarray(each) for each in edited]))
    nearest = (copies @ descriptor.embed(scenes).T).argmax(axis=1)
    assert (nearest == np.arange(12)).mean() > 0.9


def test_the_graph_computes_what_the_network_of_the_weights_computes(scenes: np.ndarray) -> None:
    import onnxruntime
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(find_backbone(), weights_only=True))
    network.eval()
    frames = np.stack(
        [np.asarray(Image.fromarray(scene).resize((224, 224))) for scene in scenes[:2]]
    )
    pictures = (torch.from_numpy(frames).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        maps = network.extract_features(pictures)
        pooled = maps.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)
        expected = torch.nn.functional.normalize(pooled).numpy()
    session = onnxruntime.InferenceSession(build_graph(read_backbone(find_backbone()), None))
    features = session.run(None, {"pictures": frames})[0]
    assert features.shape == (2, 1952)
    np.testing.assert_allclose(features[:, :1280], expected, atol=1e-5)


def test_the_fingerprint_changes_with_weights_size_and_pooling(
    descriptor: Lite0Descriptor, tmp_path: Path
) -> None:
    weights = load_file(SHIPPED_WEIGHTS)
    weights["bias"] = weights["bias"] + 0.25
    save_file(weights, tmp_path / "head.safetensors")
    keys = {
        descriptor.fingerprint.key,
        Lite0Descriptor(side=224, cache_dir=tmp_path, threads=1).fingerprint.key,
        Lite0Descriptor(power=4.0, cache_dir=tmp_path, threads=1).fingerprint.key,
        Lite0Descriptor(
            weights=tmp_path / "head.safetensors", cache_dir=tmp_path, threads=1
        ).fingerprint.key,
    }
    assert len(keys) == 4


def test_a_warm_cache_needs_no_torch(descriptor: Lite0Descriptor, cache: Path) -> None:
    program = (
        "import sys; from retrieval.describe.lite0 import Lite0Descriptor;"
        f"Lite0Descriptor(cache_dir={str(cache)!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_processes_that_meet_a_cold_cache_agree(tmp_path: Path) -> None:
    program = (
        "import numpy as np; from retrieval.describe.lite0 import Lite0Descriptor;"
        f"d = Lite0Descriptor(cache_dir={str(tmp_path)!r}, threads=1);"
        "print(d.embed(np.full((1, 9, 9, 3), 90, np.uint8))[0, :4].tolist())"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)
    ]
    answers = {each.communicate()[0] for each in started}
    assert len(answers) == 1
    assert all(each.returncode == 0 for each in started)
    assert [path.suffix for path in tmp_path.iterdir()] == [".onnx"]


def test_the_setting_names_the_descriptor(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("VCL_HOME", str(tmp_path))
    monkeypatch.setenv("VCL_DESCRIPTOR", "isc")
    with pytest.raises(MissingWeights) as caught:
        load_descriptor()
    assert "isc_ft_v107.pth.tar" in str(caught.value)
    assert str(tmp_path / "weights") in str(caught.value)


def test_an_unknown_descriptor_lists_the_known() -> None:
    with pytest.raises(UnknownPlugin, match="isc, lite0, sscd"):
        load_descriptor("sift")


def test_a_head_that_is_no_weights_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "head.safetensors").write_bytes(b"not weights")
    with pytest.raises(MissingWeights, match="safetensors"):
        Lite0Descriptor(weights=tmp_path / "head.safetensors", cache_dir=tmp_path)
    with pytest.raises(MissingWeights, match=r"none\.safetensors does not exist"):
        Lite0Descriptor(weights=tmp_path / "none.safetensors", cache_dir=tmp_path)


def test_lite0_too_is_refused_by_a_wrong_checksum(tmp_path: Path) -> None:
    digest = hashlib.sha256(SHIPPED_WEIGHTS.read_bytes()).hexdigest()
    with pytest.raises(MissingWeights, match=f"has the SHA-256 {digest}, not 0000"):
        load_descriptor("lite0", weights=SHIPPED_WEIGHTS, sha256="0" * 64)
    with pytest.raises(MissingWeights, match="needs its SHA-256"):
        load_descriptor("lite0", weights="http://127.0.0.1:1/lite0.safetensors")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    for name, shape, message in (
        ("weight", (256, 512), r"weight is \(256, 512\), lite0 has \(256, 1952\)"),
        ("layer4", (3,), r"layer4 is .* lite0 has no such array"),
    ):
        wrong = {name: np.zeros(shape, np.float32)}
        shipped = load_file(SHIPPED_WEIGHTS)
        save_file({**shipped, **wrong}, tmp_path / "other.safetensors")
        with pytest.raises(MissingWeights, match=message):
            Lite0Descriptor(weights=tmp_path / "other.safetensors", cache_dir=tmp_path)


def test_a_device_chooses_what_computes() -> None:
    both = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    card = [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"]
    assert choose_providers("cuda:1", both) == card
    assert choose_providers("cpu", both) == ["CPUExecutionProvider"]
    assert choose_providers("auto", both[2:]) == ["CPUExecutionProvider"]
    assert choose_providers("auto", both)[0] == ("CUDAExecutionProvider", {"device_id": 0})
    with pytest.raises(BadSetting, match="knows no CUDA"):
        choose_providers("cuda", both[2:])


def test_a_card_that_cannot_be_used_is_told_and_auto_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ONNX Runtime for CUDA is installed and the driver is missing: it takes the CPU."""
    import onnxruntime

    class WithoutCard:
        def __init__(self, *arguments: Any, **options: Any) -> None: ...

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", WithoutCard)
    with pytest.raises(BadSetting, match="cannot use that card"):
        open_session(tmp_path / "graph.onnx", 1, "cuda:0")
    assert isinstance(open_session(tmp_path / "graph.onnx", 1, "auto"), WithoutCard)


def test_the_setting_of_the_device_reaches_the_network(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setenv("VCL_DEVICE", "cuda:0")
    with pytest.raises(BadSetting, match="device is 'cuda:0', but this ONNX Runtime knows no CUDA"):
        Lite0Descriptor(cache_dir=cache)


class Wide:
    """A descriptor of somebody's package that gives 512 numbers."""

    name = "wide"
    frame_size = (8, 8)
    fingerprint = Fingerprint("wide", "none", 512, 1.0, "none")

    def embed(self, frames: np.ndarray) -> np.ndarray:
        return np.zeros((len(frames), 512), np.float32)


class Narrow(Wide):
    name = "narrow"
    fingerprint = Fingerprint("narrow", "none", 256, 1.0, "none")


def test_a_package_brings_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint(name, f"{__name__}:{name.title()}", "retrieval.descriptors")
        for name in ("wide", "narrow")
    ]
    monkeypatch.setattr("retrieval.plugins.entry_points", lambda group: points)
    assert load_descriptor("narrow").name == "narrow"
    with pytest.raises(BadSetting, match=r"gives 512 numbers a frame.* take 256"):
        load_descriptor("wide")


def test_the_descriptor_of_the_docs_is_found_once_it_is_installed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/extend.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (project,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "colours.py").write_text(code)
    (source / "pyproject.toml").write_text(project)
    install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", *install, "--target", str(target), str(source)], check=True
    )
    script = (
        "import numpy as np; from retrieval import load_descriptor; found = load_descriptor();"
        "rows = found.embed(np.random.default_rng(0).integers(0, 255, (3, 48, 80, 3), np.uint8));"
        "print(found.name, rows.shape, rows.dtype, np.linalg.norm(rows, axis=1).round(3).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(target), "VCL_DESCRIPTOR": "colours"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "colours (3, 256) float32 [1.0, 1.0, 1.0]"


TINY_STAGES = (
    isc.Stage("plain", 2, 1, 1, 8),
    isc.Stage("fused", 2, 2, 4, 8),
    isc.Stage("depthwise", 2, 2, 4, 16),
)


@pytest.fixture
def isc_file(tmp_path: Path, monkeypatch: Any) -> Path:
    """A stand-in with the structure of the authors' file and a network of three stages."""
    monkeypatch.setattr(isc, "STAGES", TINY_STAGES)
    monkeypatch.setattr(isc, "STEM", 8)
    torch.manual_seed(0)
    state = isc.IscNetwork(TINY_STAGES, 8).state_dict()
    path = tmp_path / "isc.pth.tar"
    content = {
        "arch": "tf_efficientnetv2_m_in21ft1k",
        "args": argparse.Namespace(input_size=64),
        "state_dict": {f"module.{name}": tensor for name, tensor in state.items()},
    }
    torch.save(content, path)
    return path


def test_isc_loads_its_authors_file(isc_file: Path, scenes: np.ndarray) -> None:
    digest = hashlib.sha256(isc_file.read_bytes()).hexdigest()
    loaded = load_descriptor("isc", weights=isc_file, sha256=digest, device="cpu")
    vectors = loaded.embed(scenes[:3])
    assert loaded.frame_size == (64, 64)
    assert vectors.shape == (3, 256)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert loaded.fingerprint.name == "isc"


def test_isc_has_the_parameters_of_efficientnet_v2_m() -> None:
    with torch.device("meta"):
        network = isc.IscNetwork(isc.STAGES, isc.STEM)
    names = dict(network.named_parameters())
    assert names["backbone.blocks.5.17.se.conv_reduce.weight"].shape == (76, 1824, 1, 1)
    assert names["backbone.blocks.1.0.conv_exp.weight"].shape == (96, 24, 3, 3)
    assert names["fc.weight"].shape == (256, 512)
    backbone = sum(each.numel() for name, each in names.items() if name.startswith("backbone"))
    # 54 139 356 with the 1280-wide head and the classifier of 1000, which are cut off here.
    assert backbone == 54_139_356 - (512 * 1280 + 2 * 1280) - (1280 * 1000 + 1000)


def test_a_file_of_another_network_is_refused(isc_file: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(isc, "STEM", 16)
    with pytest.raises(MissingWeights, match="not an ISC network"):
        load_descriptor("isc", weights=isc_file, device="cpu")
    isc_file.write_bytes(b"noise")
    with pytest.raises(MissingWeights, match="not a checkpoint"):
        load_descriptor("isc", weights=isc_file, device="cpu")


def test_a_wrong_checksum_is_refused(isc_file: Path) -> None:
    with pytest.raises(MissingWeights, match="SHA-256"):
        load_descriptor("isc", weights=isc_file, sha256="0" * 64, device="cpu")


def test_an_address_needs_a_checksum_and_is_fetched_once(
    isc_file: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("VCL_HOME", str(tmp_path / "home"))
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(isc_file.read_bytes())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/isc"
        digest = hashlib.sha256(isc_file.read_bytes()).hexdigest()
        with pytest.raises(MissingWeights, match="needs its SHA-256"):
            load_descriptor("isc", weights=url, device="cpu")
        with pytest.raises(MissingWeights, match="gave a file with SHA-256"):
            load_descriptor("isc", weights=url, sha256="0" * 64, device="cpu")
        for _ in range(2):
            load_descriptor("isc", weights=url, sha256=digest, device="cpu")
        assert asked == ["/isc", "/isc"]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def sscd_file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 7, stride=16),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 512),
    )
    path = tmp_path / "sscd.pt"
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.trace(network, torch.zeros(1, 3, 320, 320)).save(str(path))
    return path


@pytest.mark.filterwarnings("ignore:.torch.jit.load.:DeprecationWarning")
def test_sscd_is_reduced_to_256_numbers(sscd_file: Path, scenes: np.ndarray) -> None:
    loaded = load_descriptor("sscd", weights=sscd_file, device="cpu")
    vectors = loaded.embed(scenes)
    assert vectors.shape == (12, 256)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.load.:DeprecationWarning")
def test_sscd_takes_a_stored_projection_of_its_width(sscd_file: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((256, 512)).astype(np.float32)
    save_file({"weight": matrix}, tmp_path / "good.safetensors")
    save_file({"weight": matrix[:, :100].copy()}, tmp_path / "narrow.safetensors")
    plain = load_descriptor("sscd", weights=sscd_file, device="cpu")
    fitted = load_descriptor(
        "sscd", weights=sscd_file, projection=tmp_path / "good.safetensors", device="cpu"
    )
    assert plain.fingerprint.key != fitted.fingerprint.key
    with pytest.raises(MissingWeights, match="must be"):
        load_descriptor(
            "sscd", weights=sscd_file, projection=tmp_path / "narrow.safetensors", device="cpu"
        )


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
def test_a_torchscript_file_of_another_network_is_refused(tmp_path: Path) -> None:
    narrow = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 7, stride=16), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    of_text = torch.nn.Linear(16, 512)
    for network, example, message in (
        (narrow, torch.zeros(1, 3, 320, 320), r"gives \(1, 8\) .* sscd needs \(1, 256\) or more"),
        (of_text, torch.zeros(1, 16), "takes no picture of 320x320"),
    ):
        torch.jit.trace(network, example).save(str(tmp_path / "other.pt"))
        with pytest.raises(MissingWeights, match=message):
            load_descriptor("sscd", weights=tmp_path / "other.pt", device="cpu")


@pytest.mark.filterwarnings("ignore:.torch.jit.load.:DeprecationWarning")
def test_a_projection_that_is_no_weights_file_is_refused(sscd_file: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.safetensors").write_bytes(b"not weights")
    with pytest.raises(MissingWeights, match="holds no projection"):
        load_descriptor(
            "sscd", weights=sscd_file, projection=tmp_path / "junk.safetensors", device="cpu"
        )


def title_card(words: int = 3) -> np.ndarray:
    card = Image.new("RGB", (320, 180), (20, 20, 60))
    draw = ImageDraw.Draw(card)
    for line in range(words):
        draw.text((110, 60 + 20 * line), "THE FILM", fill=(240, 240, 240), font_size=14)
    return np.asarray(card)


def colour_bars() -> np.ndarray:
    colours = [
        (191, 191, 191),
        (191, 191, 0),
        (0, 191, 191),
        (0, 191, 0),
        (191, 0, 191),
        (191, 0, 0),
        (0, 0, 191),
    ]
    return np.repeat(np.array(colours, np.uint8)[None], 180, axis=0).repeat(45, axis=1)


def test_frames_without_information_are_flagged() -> None:
    noise = np.random.default_rng(0).normal(0, 2, (180, 320, 3))
    black, red = np.zeros((180, 320, 3), np.uint8), np.full((180, 320, 3), (180, 0, 0), np.uint8)
    dirty = np.clip(30 + noise, 0, 255).astype(np.uint8)
    for frame in (black, red, dirty, title_card(), colour_bars()):
        assert flag_low_information(frame[None]).tolist() == [True]


def test_pictures_are_not_flagged(scenes: np.ndarray) -> None:
    assert not flag_low_information(scenes).any()
    assert flag_low_information(scenes[:0]).shape == (0,)


def test_a_picture_in_a_picture_is_found_and_looked_at(
    descriptor: Lite0Descriptor, scenes: np.ndarray
) -> None:
    whole = scenes[4].copy()
    whole[40:130, 90:190] = np.asarray(Image.fromarray(scenes[7]).resize((100, 90)))
    best = propose_parts(whole)[0]
    np.testing.assert_allclose(best, (90 / 200, 40 / 150, 190 / 200, 130 / 150), atol=0.03)
    row, reference = descriptor.embed(whole[None]), descriptor.embed(scenes)
    best = best_over_views(row, embed_parts(descriptor, whole[None]), reference)
    assert best[0].argmax() in (4, 7)
    assert best[0, 7] > (row @ reference.T)[0, 7] + 0.1


def test_both_halves_of_most_split_screens_are_looked_at(scenes: np.ndarray) -> None:
    found = []
    for left, right in zip(scenes, np.roll(scenes, 5, axis=0), strict=True):
        split = np.concatenate([left[:, :100], right[:, 100:]], axis=1)
        parts = propose_parts(split)[:3]
        found.append(
            any(part[0] == 0 and abs(part[2] - 0.5) < 0.03 for part in parts)
            and any(abs(part[0] - 0.5) < 0.03 and part[2] == 1 for part in parts)
        )
    assert np.mean(found) >= 0.6


def test_a_plain_picture_has_no_view(descriptor: Lite0Descriptor) -> None:
    ramp = np.linspace(0, 255, 160, dtype=np.uint8)
    plain = np.broadcast_to(ramp[None, :, None], (120, 160, 3)).copy()
    assert len(embed_parts(descriptor, plain[None])) == 0


def test_the_best_view_of_each_picture_counts() -> None:
    axes = np.eye(256, dtype=np.float32)
    views = number_runs(ViewKind.PART, [([0], axes[2:3])])
    best = best_over_views(axes[[0, 1]], views, axes[[2, 1]])
    assert best.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_still_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny file that shows one picture for hours would otherwise keep a worker for as long."""
    descriptor = load_descriptor("lite0")
    rng = np.random.default_rng(5)
    first, second = rng.integers(0, 255, (2, *descriptor.frame_size, 3), np.uint8)
    frames = np.stack([first, first, first, second, second, first])
    seen: list[int] = []
    session = descriptor._session  # type: ignore[attr-defined]

    class Watched:
        def run(self, names: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            seen.append(len(inputs["pictures"]))
            return session.run(names, inputs)

    monkeypatch.setattr(descriptor, "_session", Watched())
    found = descriptor.embed(frames)
    assert sum(seen) == 3
    alone = np.concatenate([descriptor.embed(frame[None]) for frame in frames])
    assert np.allclose(found, alone, atol=1e-5)
    assert descriptor.embed(frames[:0]).shape == (0, 256)
