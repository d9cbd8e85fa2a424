"""The study of what each part is worth: its arms differ as they say, and a run done is kept."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.vcl_plugin.training.test_run import make_folder
from vcl_plugin.evaluation.folder import Folder

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def ablation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ablation", BENCHMARKS / "ablation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ablation"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recipes(ablation: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    out = tmp_path_factory.mktemp("study")
    folder = make_folder(out / "pairs", count=4)
    teacher = ablation.run_folder(out, "teacher", 0)
    teacher.mkdir()
    (teacher / "last.safetensors").touch()
    study = ablation.Study.read(BENCHMARKS / "ablation.toml")
    more = [f'data.folders=["{folder}"]']
    return {arm.name: study.recipe_of(arm, 0, out, more) for arm in study.arms}


def test_arms_are_those_of_the_paper(recipes):
    parts = {
        name: (
            recipe.network.attention != "none",
            recipe.network.attention != "none" and recipe.network.encoding_scale > 0,
            recipe.loss.video > 0,
        )
        for name, recipe in recipes.items()
    }
    assert parts["basic"] == (False, False, False)
    assert recipes["basic"].network.detector_input == "cosine"
    assert parts["attention"] == (True, False, False)
    assert parts["video"] == (True, False, True)
    assert parts["encoding"] == (True, True, False)
    assert parts["full"] == (True, True, True)


@pytest.mark.parametrize(
    "arms",
    [
        ("basic", "attention", "video", "encoding", "full", "changes"),
        ("labelled", "unlabelled", "weak"),
    ],
)
def test_arms_that_are_compared_have_the_same_budget(recipes, arms):
    budgets = {
        (each.loop.steps, each.loop.batch, each.network.map_size, each.data.max_frames)
        for each in (recipes[name] for name in arms)
    }
    assert len(budgets) == 1


def test_arms_with_few_labels_go_on_from_the_teacher_of_their_seed(recipes):
    assert recipes["teacher"].start is None
    for name, supervision in (("labelled", "full"), ("unlabelled", "semi"), ("weak", "weak")):
        assert recipes[name].loop.supervision == supervision
        assert recipes[name].start == recipes[name].pseudo.teacher
        assert recipes[name].start.parent.name == "teacher-0"
        assert recipes[name].data == recipes["teacher"].data


def test_run_that_is_done_is_not_run_again_and_stands_in_the_table(ablation, tmp_path, capsys):
    study = ablation.Study.read(BENCHMARKS / "ablation.toml")
    row = {"f_score": 0.5, "recall": 0.5, "precision": 0.5, "frr": 0.25, "far": 0.0}
    for seed, f_score in ((0, 0.5), (1, 0.7)):
        folder = ablation.run_folder(tmp_path, "full", seed)
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps({**row, "f_score": f_score}))
    kept = ablation.run_arm(None, ablation.run_folder(tmp_path, "full", 1), None)
    assert kept["f_score"] == 0.7
    ablation.print_table(study, tmp_path)
    assert "| full model | 2 | 0.600 ± 0.141 |" in capsys.readouterr().out


def test_pairs_longer_than_those_trained_on_are_left_out_and_named(ablation, tmp_path, capsys):
    class Nothing:
        def localize(self, query, reference):
            return []

    folder = Folder(make_folder(tmp_path / "pairs", count=3))  # 40 and 50 seconds
    assert len(ablation.localize_short(Nothing(), folder, 50)) == 3
    assert "left out" not in capsys.readouterr().err
    assert ablation.localize_short(Nothing(), folder, 45) == []
    said = capsys.readouterr().err
    assert "3 of 3 pairs are left out" in said
    assert all(f"{each.query_id} {each.reference_id}" in said for each in folder.pairs)
