"""Runs: they learn, go on bit for bit after a kill, and keep their best weights."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from retrieval.errors import Refused
from tests.vcl_plugin.training.planted_pairs import PlantedPairs, plant
from vcl_plugin.evaluation.folder import LabelledPair, write_folder
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.model import TransVCL, load_transvcl, read_facts, save_transvcl
from vcl_plugin.training.loop import Trainer
from vcl_plugin.training.recipe import Augment, Data, Loop, Loss, Recipe, Validation
from vcl_plugin.training.run import Run, widen_stem

RECIPE = Recipe(
    model={"map_size": 64},
    augment=Augment(noise=0.02),
    loss=Loss(token_queue=8),
    loop=Loop(steps=6, batch=2, warmup=2, bypass=2),
)


def make_folder(path: Path, count: int = 6) -> Path:
    features, pairs = {}, []
    for number in range(count):
        pair = plant(number, is_copy=number % 3 != 2)
        features[f"q{number}"], features[f"r{number}"] = pair.query, pair.reference
        truth = tuple(tuple(float(side) for side in box) for box in pair.boxes)
        pairs.append(LabelledPair(f"q{number}", f"r{number}", truth))
    write_folder(path, features, pairs)
    return path


def new_trainer() -> Trainer:
    torch.manual_seed(0)
    return Trainer(RECIPE, PlantedPairs(), TransVCL(RECIPE.network))


def test_training_lowers_the_loss():
    recipe = replace(RECIPE, loop=Loop(steps=60, batch=4, warmup=5, bypass=60, rate=2e-3))
    torch.manual_seed(0)
    trainer = Trainer(recipe, PlantedPairs(size=4), TransVCL(recipe.network))
    losses = [float(trainer.advance().total) for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


def test_resumed_trainer_goes_on_bit_for_bit():
    whole = new_trainer()
    for _ in range(5):
        whole.advance()
    first = new_trainer()
    for _ in range(3):
        first.advance()
    second = new_trainer()
    second.load(first.state())
    assert second.step == 3
    for _ in range(2):
        second.advance()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name
    for name, value in whole.average.state_dict().items():
        assert torch.equal(value, second.average.state_dict()[name]), name
    assert torch.equal(whole.queue.tokens, second.queue.tokens)


def test_encoder_stands_still_while_it_is_bypassed():
    trainer = new_trainer()
    before = trainer.model.feat_encoding.layers[0].q_proj.weight.clone()
    trainer.advance()
    trainer.advance()
    assert torch.equal(before, trainer.model.feat_encoding.layers[0].q_proj.weight)
    assert trainer.network().config.attention == "none"
    trainer.advance()
    assert not torch.equal(before, trainer.model.feat_encoding.layers[0].q_proj.weight)
    assert trainer.network().config.attention == "linear"


def test_weights_of_the_phase_without_the_encoder_can_be_gone_on_from(tmp_path):
    trainer = new_trainer()
    trainer.advance()
    first = trainer.network()
    save_transvcl(first, tmp_path / "first.safetensors")
    assert not any("layers" in name for name in first.feat_encoding.state_dict())
    recipe = replace(RECIPE, start=tmp_path / "first.safetensors")
    model = Run(recipe, tmp_path / "run")._first_model()
    assert model.config.attention == "linear"
    assert len(model.feat_encoding.layers) == 2
    stem = "backbone.backbone.stem.conv.conv.weight"
    assert torch.equal(model.state_dict()[stem], first.state_dict()[stem])


def test_weights_of_fewer_channels_go_on_with_the_same_answers(tmp_path):
    torch.manual_seed(0)
    config = replace(RECIPE.network, detector_input="map+sqrt+cosine")
    before = TransVCL(config)
    with torch.no_grad():
        before.train()(*two_videos())  # statistics that are not 0 and 1
    after = TransVCL(RECIPE.network)
    assert after.config.channels == 4
    after.load_state_dict(widen_stem(before, 4))
    with torch.no_grad():
        expected, found = before.eval()(*two_videos()), after.eval()(*two_videos())
    torch.testing.assert_close(found.raw, expected.raw, rtol=1e-4, atol=1e-4)


def two_videos() -> tuple[torch.Tensor, ...]:
    pair = plant(1)
    sides = [torch.from_numpy(each)[None] for each in (pair.query, pair.reference)]
    return *sides, *(torch.ones(each.shape[:2], dtype=torch.bool) for each in sides)


def test_loss_that_is_no_number_stops_the_run():
    trainer = new_trainer()
    with torch.no_grad():
        trainer.model.head.obj_preds[0].bias.fill_(float("nan"))
    with pytest.raises(Refused, match="step 0"):
        trainer.advance()


def folder_recipe(tmp_path: Path) -> Recipe:
    folder = make_folder(tmp_path / "pairs")
    return replace(
        RECIPE, data=Data(folders=(folder,)), validation=Validation(folder=folder, every=3)
    )


def test_killed_run_ends_with_the_weights_of_an_unbroken_one(tmp_path):
    recipe = folder_recipe(tmp_path)
    Run(recipe, tmp_path / "whole").train()

    class Killed(Exception):
        pass

    def kill(trainer: Trainer) -> None:
        raise Killed

    broken = Run(replace(recipe, loop=replace(recipe.loop, checkpoint_seconds=0)), tmp_path / "cut")
    broken._validate = kill  # type: ignore[method-assign]
    with pytest.raises(Killed):
        broken.train()  # dies at step 3; its last checkpoint is of step 2
    again = Run(recipe, tmp_path / "cut")
    again.train()
    one = load_transvcl(tmp_path / "whole" / "last.safetensors").state_dict()
    other = load_transvcl(tmp_path / "cut" / "last.safetensors").state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_run_folder_holds_recipe_log_curves_and_weights(tmp_path):
    recipe = folder_recipe(tmp_path)
    recipe = replace(
        recipe,
        loop=replace(recipe.loop, steps=40, bypass=40, batch=1),
        validation=replace(recipe.validation, every=40, pairs=3),
    )
    seen = []
    best = Run(recipe, tmp_path / "run", seen.append).train()
    facts = read_facts(best)
    assert facts["pairs"] == 40
    assert 0.01 <= facts["min_score"] <= 0.9
    assert facts["validation"]["pairs"] == 6, "all of them, whatever the sample on the way"
    assert facts["descriptor"] is None, "of this folder nobody knows it"
    assert TransVCLLocalizer(best).min_score == facts["min_score"]
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["loop"]["steps"] == 40
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert any("f_score" in row for row in rows)
    assert any("objectness" in row for row in rows)
    assert (tmp_path / "run" / "curves.png").stat().st_size > 1000
    assert seen[-1].step == 40


def test_weights_name_the_descriptor_that_made_the_validation_pairs(tmp_path):
    recipe = folder_recipe(tmp_path)
    assert recipe.validation.folder is not None
    (recipe.validation.folder / "recipe.json").write_text('{"descriptor": "pixels-1"}')
    assert read_facts(Run(recipe, tmp_path / "run").train())["descriptor"] == "pixels-1"


def test_checkpoint_of_another_recipe_is_refused_by_the_field_that_differs(tmp_path):
    recipe = folder_recipe(tmp_path)
    Run(recipe, tmp_path / "run").train()
    other = replace(recipe, loop=replace(recipe.loop, rate=0.5))
    with pytest.raises(Refused, match=r"loop\.rate"):
        Run(other, tmp_path / "run").train()


def test_run_goes_on_where_matplotlib_is_missing(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an import of it then meets
    folder = make_folder(tmp_path / "pairs", count=3)
    recipe = replace(
        RECIPE,
        data=Data(folders=(folder,)),
        loop=replace(RECIPE.loop, steps=40, bypass=40),
        validation=Validation(folder, every=40),
    )
    assert Run(recipe, tmp_path / "run").train().exists()
    assert not (tmp_path / "run" / "curves.png").exists()
    assert caplog.text.count("no curves.png is drawn") == 1
