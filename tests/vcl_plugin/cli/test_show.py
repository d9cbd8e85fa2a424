from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from retrieval.errors import Refused
from vcl_plugin.cli import show as command
from vcl_plugin.model import SMALL, TransVCL, save_transvcl

app = typer.Typer()
app.command()(command.show)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def arrays(tmp_path: Path) -> tuple[Path, Path]:
    draw = np.random.default_rng(2)
    rows = draw.standard_normal((2, 50, 256))
    query, reference = (rows / np.linalg.norm(rows, axis=2, keepdims=True)).astype(np.float32)
    query[10:40] = reference[5:35]
    np.save(tmp_path / "q.npy", query)
    np.save(tmp_path / "r.npy", reference)
    return tmp_path / "q.npy", tmp_path / "r.npy"


def test_a_picture_is_written_and_its_segments_printed(
    arrays: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "truth.json").write_text("[[10, 5, 40, 35]]")
    out = tmp_path / "pair.png"
    result = run(*arrays, "-o", out, "-m", "tn", "--truth", tmp_path / "truth.json", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["picture"] == str(out)
    assert report["segments"][0]["query_start"] == 10
    with Image.open(out) as image:
        assert image.width > 500


def test_weights_add_the_network_s_view(arrays: tuple[Path, Path], tmp_path: Path) -> None:
    model = TransVCL(replace(SMALL, map_size=64, width=0.125, max_frames=60))
    save_transvcl(model, tmp_path / "tiny.safetensors")
    plain, seen = tmp_path / "plain.png", tmp_path / "seen.png"
    run(*arrays, "-o", plain, "-m", "tn")
    result = run(*arrays, "-o", seen, "-m", "tn", "-w", tmp_path / "tiny.safetensors")
    assert result.exit_code == 0, result.output
    with Image.open(plain) as one, Image.open(seen) as other:
        assert other.width > 2 * one.width


def test_the_default_method_shows_what_the_network_sees(
    arrays: tuple[Path, Path], tmp_path: Path
) -> None:
    plain, seen = tmp_path / "plain.png", tmp_path / "seen.png"
    run(*arrays, "-o", plain, "-m", "tn")
    assert run(*arrays, "-o", seen).exit_code == 0
    with Image.open(plain) as one, Image.open(seen) as other:
        assert other.width > 2 * one.width


def test_a_picture_of_unknown_kind_is_refused(arrays: tuple[Path, Path], tmp_path: Path) -> None:
    result = run(*arrays, "-o", tmp_path / "pair.doc", "-m", "tn")
    assert isinstance(result.exception, Refused)


def test_truth_that_is_no_list_of_boxes_is_refused(
    arrays: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "truth.json").write_text("[[1, 2]]")
    result = run(*arrays, "-o", tmp_path / "x.png", "-m", "tn", "--truth", tmp_path / "truth.json")
    assert isinstance(result.exception, Refused)
