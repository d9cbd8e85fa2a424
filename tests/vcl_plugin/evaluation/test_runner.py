from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from retrieval.errors import NotFound, Refused, UnknownPlugin
from vcl_plugin.evaluation.folder import Folder, LabelledPair, write_folder
from vcl_plugin.evaluation.runner import Method, evaluate, journal_path
from vcl_plugin.evaluation.tuning import tune


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Four queries against two references; the first two queries copy the first reference."""
    draw = np.random.default_rng(1)
    arrays = {f"r{i}": unit(draw.standard_normal((60, 256))) for i in range(2)}
    for number in range(4):
        query = unit(draw.standard_normal((40, 256)))
        if number < 2:
            query[10:30] = arrays["r0"][20:40]
        arrays[f"q{number}"] = query
    pairs = [
        LabelledPair(
            f"q{q}",
            f"r{r}",
            ((10, 20, 30, 40),) if q < 2 and r == 0 else (),
            "news" if q == 0 else "",
        )
        for q in range(4)
        for r in range(2)
    ]
    write_folder(tmp_path, arrays, pairs)
    return Folder(tmp_path)


def test_planted_copies_give_a_perfect_report(folder: Folder) -> None:
    report = evaluate(folder, Method("tn")).as_dict()
    assert report["f_score"] == pytest.approx(1, abs=1e-5)
    assert (report["frr"], report["far"], report["video_f_score"]) == (0, 0, 1)
    assert (report["pairs"], report["pairs_total"], report["pairs_missing"]) == (8, 8, 0)
    assert list(report["by_topic"]) == ["news"]
    assert list(report["by_copy_share"]) == ["40-60%"]
    assert report["by_copy_share"]["40-60%"]["pairs"] == 2
    assert report["seconds"] > 0
    json.dumps(report)


def test_kinds_of_made_up_pairs_are_told_apart(folder: Folder) -> None:
    details = {f"q{q}-r1": {"kind": "cards"} for q in range(4)}
    (folder.path / "details.json").write_text(json.dumps(details))
    report = evaluate(Folder(folder.path), Method("tn")).as_dict()
    assert list(report["by_kind"]) == ["cards"]
    assert report["by_kind"]["cards"]["pairs"] == 4
    assert report["by_kind"]["cards"]["far"] == 0


def test_several_processes_say_what_one_says(folder: Folder) -> None:
    one, two = evaluate(folder, Method("dtw")), evaluate(folder, Method("dtw"), processes=2)
    assert one.pairs == two.pairs


def test_missing_descriptors_are_counted_and_named(folder: Folder) -> None:
    folder.feature_path("q1").unlink()
    np.save(folder.feature_path("r1"), np.full((5, 256), np.nan, np.float32))
    report = evaluate(folder, Method("tn"))
    assert len(report.pairs) == 3
    assert report.total == 8
    facts = report.as_dict()
    assert facts["pairs_missing"] == 5
    assert any("q1" in problem for problem in facts["problems"])
    assert any("nan" in problem for problem in facts["problems"])


def test_a_folder_in_which_nothing_can_be_read_is_an_error(folder: Folder) -> None:
    for path in (folder.path / "features").iterdir():
        path.unlink()
    with pytest.raises(NotFound, match="no pair"):
        evaluate(folder, Method("tn"))


class Interrupted(Exception):
    pass


def test_an_interrupted_run_goes_on_where_it_stopped(folder: Folder) -> None:
    journal = journal_path(folder, Method("tn"))
    seen = 0

    def stop_after_three_queries(count: int) -> None:
        nonlocal seen
        seen += count
        if seen >= 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        evaluate(folder, Method("tn"), journal=journal, on_pair=stop_after_three_queries)
    with journal.open("a") as file:
        file.write('{"query_id": "q3", "refer')  # a line cut off by the interruption
    counts: list[int] = []
    report = evaluate(folder, Method("tn"), journal=journal, on_pair=counts.append)
    assert counts[0] == 6
    assert report.pairs == evaluate(folder, Method("tn")).pairs


def test_an_answer_about_other_descriptors_is_not_reused(folder: Folder) -> None:
    journal = journal_path(folder, Method("tn"))
    evaluate(folder, Method("tn"), journal=journal)
    stranger = unit(np.random.default_rng(9).standard_normal((41, 256)))
    np.save(folder.feature_path("q0"), stranger)
    report = evaluate(folder, Method("tn"), journal=journal)
    assert report.summary.frr == 0.5


def test_each_parameter_set_has_a_journal_of_its_own(folder: Folder) -> None:
    plain = journal_path(folder, Method("tn"))
    assert journal_path(folder, Method("tn", parameters={"top_k": 3})) != plain


def test_an_unknown_method_is_refused_by_name(folder: Folder) -> None:
    with pytest.raises(UnknownPlugin, match="'xyz'"):
        evaluate(folder, Method("xyz"))


def test_tuning_leaves_a_bad_setting_for_a_better_one(folder: Folder) -> None:
    bad = Method("tn", parameters={"min_length": 30})
    trials = tune(folder, bad, grid={"min_length": (30, 4), "top_k": (3,)})
    assert trials[0].parameters["min_length"] == 4
    assert trials[0].summary.f_score > 0.99
    assert trials[-1].summary.f_score == 0


def test_a_method_without_parameters_cannot_be_tuned(folder: Folder) -> None:
    with pytest.raises(Refused, match="tune"):
        tune(folder, Method("tn"), grid={})
