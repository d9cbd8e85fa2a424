"""Recipes: read, overridden, and refused at once when they cannot work."""

from pathlib import Path

import pytest

from retrieval.errors import BadSetting, NotFound
from vcl_plugin.training.recipe import Recipe, read_recipe

RECIPES = Path(__file__).parents[3] / "vcl_plugin" / "training" / "recipes"


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_recipe_reads_numbers_paths_and_sections(tmp_path):
    (tmp_path / "pairs").mkdir()
    path = write(
        tmp_path,
        f'name = "x"\n[data]\nfolders = "{tmp_path}/pairs"\n[loop]\nrate = 1\nsteps = 7\n'
        "[model]\nmap_size = 64\n",
    )
    recipe = read_recipe(path)
    assert recipe.data.folders == (tmp_path / "pairs",)
    assert recipe.loop.rate == 1.0
    assert isinstance(recipe.loop.rate, float)
    assert recipe.network.map_size == 64
    assert recipe.network.feature_scale == 16.0  # the rest is the preset


def test_override_wins_over_the_file(tmp_path):
    path = write(tmp_path, f'[data]\nfolders = ["{tmp_path}"]\n[loop]\nsteps = 7\n')
    recipe = read_recipe(path, ["loop.steps=9", "name=other", "augment.noise=0.5"])
    assert (recipe.loop.steps, recipe.name, recipe.augment.noise) == (9, "other", 0.5)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[data]\nfolders = ['/nowhere/at/all']", "/nowhere/at/all"),
        ("[data]\nweak_folders = ['/nowhere/weak']\nfolders = ['.']", "data.weak_folders"),
        ("start = '/nowhere/weights'\n[data]\nfolders = ['.']", "start"),
    ],
)
def test_missing_folder_is_named_before_anything_starts(tmp_path, text, word):
    with pytest.raises(NotFound, match=word):
        read_recipe(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[loop]\nstepz = 1", "loop.stepz"),
        ("[loop]\nsteps = 'many'", "loop.steps"),
        ("[loop]\noptimizer = 'adam'", "adamw"),
        ("[augment]\nswap = 1.5", "augment.swap"),
        ("[model]\nmap_size = 65", "map_size 65"),
        ("preset = 'huge'", "huge"),
        ("[loop]\nsupervision = 'semi'", "label_fraction"),
        ("[data]\nlabel_fraction = 0.1\ngeometry = ['.']\nfolders = []", "data.images"),
        ("[data]\nfolders = []", "no data"),
        ("[data]\nfolders = ['.']\nnegatives = ['black', 'twins']", "twins.*name some of"),
        ("[data]\nfolders = ['.']\nnegatives = []", "name some of unrelated"),
    ],
)
def test_impossible_choice_is_refused_with_its_name(tmp_path, monkeypatch, text, word):
    monkeypatch.chdir(tmp_path)
    if "folders" not in text:
        text = text + "\n[data]\nfolders = ['.']"
    with pytest.raises(BadSetting, match=word):
        read_recipe(write(tmp_path, text))


def test_shipped_recipes_are_understood(tmp_path, monkeypatch):
    for name in ("labels/a.json", "labels/b.json", "images/x", "videos/x", "val/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    found = sorted(RECIPES.glob("*.toml"))
    assert found
    for path in found:
        recipe = read_recipe(
            path,
            [
                'data.geometry=["labels/a.json"]',
                "data.images=images",
                "data.videos=videos",
                "data.bank=bank",
                "validation.folder=val",
            ],
        )
        assert isinstance(recipe, Recipe)
