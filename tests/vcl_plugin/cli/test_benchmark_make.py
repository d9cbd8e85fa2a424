from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from vcl_plugin.cli import benchmark as command
from vcl_plugin.evaluation.benchmark import Order

app = typer.Typer()
app.add_typer(command.app, name="benchmark")


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command asked for; building itself is tested beside `evaluation`."""
    asked: list[dict[str, Any]] = []

    def record(
        order: Order, out: Path, bank: Path, descriptor: str | None, processes: int, on_views: Any
    ) -> dict[str, Any]:
        asked.append({"order": order, "out": out, "bank": bank, "processes": processes})
        on_views(3, 7)
        return {"kinds": {"copy": 2, "cards": 1}, "views": 7, "descriptor": "lite0-1"}

    monkeypatch.setattr(command, "make_benchmark", record)
    return asked


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["benchmark", "make", *[str(each) for each in arguments]])


MATERIAL = ("--geometry", "a.json", "--geometry", "b.json", "--images", "i", "--videos", "v")


def test_options_become_an_order(orders: list[dict[str, Any]], tmp_path: Path) -> None:
    result = run(
        tmp_path, *MATERIAL, "--seed", 5, "--split", "val", "--copies", 2, "--negatives", 1,
        "--max-frames", 90, "--bank", tmp_path / "bank", "-j", 2,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert orders == [
        {
            "order": Order(
                (Path("a.json"), Path("b.json")), Path("i"), Path("v"), 5, "val", 2, 1, 90
            ),
            "out": tmp_path,
            "bank": tmp_path / "bank",
            "processes": 2,
        }
    ]
    assert "2 copy, 1 cards; 7 frames of lite0-1" in " ".join(result.stdout.split())


def test_json_is_the_recipe(orders: list[dict[str, Any]], tmp_path: Path) -> None:
    recipe = json.loads(run(tmp_path, *MATERIAL, "--json").stdout)
    assert recipe["views"] == 7
    assert orders[0]["order"].split == "test"


def test_a_split_that_is_none_is_wrong_usage(orders: list[dict[str, Any]], tmp_path: Path) -> None:
    assert run(tmp_path, *MATERIAL, "--split", "all").exit_code == 2
    assert orders == []


def test_the_material_must_be_named(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 2
