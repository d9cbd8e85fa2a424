"""The benchmark of descriptors: what it asks, what it counts, and how sure it calls itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval.describe.fitting.material import Source
from vcl_plugin.demo.scenery import SCENES

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MAKER = """
EDITS = ("mirror", "turn")

def edit_picture(picture, kind, rng, other):
    turned = picture.rotate(rng.uniform(3, 8))
    return turned if kind == "turn" else picture.transpose(0)
"""


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def paint(count: int) -> list[Source]:
    rng = np.random.default_rng(3)
    pictures = [SCENES[number % len(SCENES)](rng, (120, 90)) for number in range(count)]
    return [
        Source.from_picture(f"p{number}", 0.0, Image.fromarray(picture), is_film=False)
        for number, picture in enumerate(pictures)
    ]


def test_micro_ap_is_the_mean_precision_at_the_right_ones_of_one_ranking() -> None:
    from judging import Judged

    scores = np.array([[0.9, 0.1], [0.8, 0.5]], np.float32)
    truth = np.array([[True, False], [False, True]])
    judged = Judged.of(np.array([True, False]), scores, truth)
    assert judged.recall() == 0.5
    # In order .9 right, .8 wrong, .5 right, .1 wrong.
    assert judged.micro_average_precision() == pytest.approx((1 + 2 / 3) / 2)
    twice_the_second = np.array([1.0, 2.0])
    assert judged.recall(twice_the_second) == pytest.approx(1 / 3)


def test_an_interval_holds_the_difference_and_is_empty_for_equals() -> None:
    from judging import Judged, compare

    rng = np.random.default_rng(0)
    truth = np.eye(60, dtype=bool)
    good = truth * 0.5 + rng.random((60, 60)).astype(np.float32)
    poor = truth * 0.2 + rng.random((60, 60)).astype(np.float32)
    old, new = (
        Judged.of(each.argmax(axis=1) == np.arange(60), each, truth) for each in (poor, good)
    )
    names = [f"film {number // 3}" for number in range(60)]
    recall, precision = compare(old, new, names)
    for each in (recall, precision):
        assert each.low < each.value < each.high
    nothing, _ = compare(old, old, names)
    assert (nothing.low, nothing.value, nothing.high) == (0, 0, 0)


def test_a_maker_gives_each_original_the_same_pictures_in_any_order(tmp_path: Path) -> None:
    from edited_pictures import MakersEdits

    (tmp_path / "maker.py").write_text(MAKER)
    editor, sources = MakersEdits(tmp_path / "maker.py", seed=1), paint(3)
    first = [editor.edit(sources, owner) for owner in (0, 1, 2)]
    again = [editor.edit(sources, owner) for owner in (2, 1, 0)][::-1]
    for one, other in zip(first, again, strict=True):
        assert [each.kind for each in one] == ["mirror", "turn"]
        assert [each.picture.tobytes() for each in one] == [e.picture.tobytes() for e in other]
        assert all(each.other != each.owner for each in one)


def test_a_file_that_edits_nothing_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    from edited_pictures import MakersEdits

    (tmp_path / "empty.py").write_text("")
    with pytest.raises(SystemExit, match="has no EDITS and no edit_picture"):
        MakersEdits(tmp_path / "empty.py", seed=1)


def test_a_prepared_folder_is_judged_and_a_second_run_reads_what_was_kept(tmp_path: Path) -> None:
    for number, source in enumerate(paint(6)):
        for folder, picture in (
            ("originals", source.picture),
            ("edited/mirror", source.picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
            ("edited/dark", source.picture.point(lambda value: value // 2)),
        ):
            path = tmp_path / "pictures" / folder / f"p{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path, quality=95)
    command = [sys.executable, str(BENCHMARKS / "descriptors.py")]
    command += ["--prepared", str(tmp_path / "pictures"), "--keep", str(tmp_path / "kept")]
    stub = tmp_path / "stub"  # PDQ is an extra, and not what is tested here
    stub.mkdir()
    (stub / "pdqhash.py").write_text(
        "import numpy as np\n"
        "def compute(picture):\n"
        "    return (picture[::14, ::14, 0] > 90).ravel()[:256], 100\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{stub}:{BENCHMARKS.parent}"}
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "6 originals and 0 distractors, 6 edited: 12 pictures, 2 edits" in runs[0].stdout
    table = [line.split() for line in runs[0].stdout.splitlines()]
    assert next(row for row in table if row[:1] == ["mirror"])[5] == "1.000"
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 1
