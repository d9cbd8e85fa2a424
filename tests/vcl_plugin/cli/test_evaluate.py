from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from retrieval.errors import NotFound
from vcl_plugin.cli import evaluate as command
from vcl_plugin.evaluation.folder import LabelledPair, write_folder

app = typer.Typer()
app.command()(command.evaluate)
NUMBERS = {"recall", "precision", "f_score", "frr", "far", "video_f_score", "pairs", "seconds"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(4)
    rows = draw.standard_normal((3, 50, 256))
    query, copied, other = (rows / np.linalg.norm(rows, axis=2, keepdims=True)).astype(np.float32)
    query[5:35] = copied[10:40]
    write_folder(
        tmp_path,
        {"q-1": query, "r/1": copied, "r/2": other},
        [
            LabelledPair("q-1", "r/1", ((5, 10, 35, 40),), "news"),
            LabelledPair("q-1", "r/2", ()),
        ],
    )
    return tmp_path


def test_json_of_one_method_holds_the_promised_numbers(folder: Path) -> None:
    result = run(folder, "--method", "tn", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) >= NUMBERS | {"by_topic", "by_copy_share"}
    assert report["f_score"] == pytest.approx(1, abs=1e-5)
    assert report["pairs"] == 2


def test_json_of_several_methods_is_keyed_by_method(folder: Path) -> None:
    report = json.loads(run(folder, "--methods", "hv,dp", "--json").stdout)
    assert set(report["methods"]) == {"hv", "dp"}
    assert all(set(each) >= NUMBERS for each in report["methods"].values())
    lead = report["lead"]
    assert (lead["of"], set(lead["over"])) == ("hv", {"dp"})
    assert lead["over"]["dp"]["low"] <= lead["over"]["dp"]["f_score"] <= lead["over"]["dp"]["high"]


def test_the_table_has_a_row_a_method(folder: Path) -> None:
    output = run(folder, "--methods", "tn,dtw").stdout
    assert [line.split()[0] for line in output.splitlines() if line.startswith((" tn", " dtw"))][
        :2
    ] == ["tn", "dtw"]
    assert "80-100%" in output or "60-80%" in output


def test_one_method_is_needed(folder: Path) -> None:
    assert run(folder).exit_code == 2
    assert run(folder, "--method", "tn", "--methods", "all").exit_code == 2


def test_missing_descriptors_are_reported_on_stderr(folder: Path) -> None:
    (folder / "features" / "r%2F2.npy").unlink()
    result = run(folder, "--method", "tn", "--json")
    assert "evaluated 1 of 2 pairs" in " ".join(result.stderr.split())
    assert json.loads(result.stdout)["pairs_missing"] == 1


def test_a_folder_that_is_none_is_an_error_of_ours(tmp_path: Path) -> None:
    assert isinstance(run(tmp_path, "--method", "tn").exception, NotFound)


def test_answers_are_kept_for_the_next_run_unless_told_not_to(folder: Path) -> None:
    run(folder, "--method", "tn")
    (journal,) = (folder / "results").iterdir()
    assert len(journal.read_text().splitlines()) == 2
    run(folder, "--method", "tn")
    assert len(journal.read_text().splitlines()) == 2
    before = journal.stat().st_ino, journal.read_text()
    run(folder, "--method", "tn", "--restart")
    assert len(journal.read_text().splitlines()) == 2
    assert (journal.stat().st_ino, journal.read_text()) != before


def test_parameters_reach_the_method(folder: Path) -> None:
    report = json.loads(run(folder, "-m", "tn", "-p", "min_length=45", "--json").stdout)
    assert report["frr"] == 1
    assert run(folder, "-m", "tn", "-p", "min_length").exit_code == 2


def test_parameters_of_several_methods_may_be_named(folder: Path) -> None:
    said = run(folder, "--methods", "tn,hv", "-p", "tn.min_length=45", "--json").stdout
    report = json.loads(said)["methods"]
    assert (report["tn"]["frr"], report["hv"]["frr"]) == (1, 0)
    assert run(folder, "--methods", "tn,hv", "-p", "dtw.min_length=45").exit_code == 2


def test_tuning_prints_its_best_setting_first(folder: Path) -> None:
    result = run(folder, "-m", "hv", "-p", "min_length=45", "--tune", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["best"]["f_score"] > 0.99
    assert found["best"] == found["trials"][0]


def test_weights_of_several_methods_are_named(folder: Path) -> None:
    assert run(folder, "--methods", "tn,hv", "--weights", "x.safetensors").exit_code == 2
    assert command._weights_of("b", ["a", "b"], ["a=one=1", "b=two"]) == "two"
    assert command._weights_of("a", ["a", "b"], ["a=one=1", "b=two"]) == "one=1"
    assert command._weights_of("a", ["a"], ["odd=name.pth"]) == "odd=name.pth"
