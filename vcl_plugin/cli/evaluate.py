"""`vcl evaluate`: a method, or all of them, judged on a benchmark folder.

In: a folder of VCSL's layout. Out: the numbers of the paper's tables, on stdout.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from retrieval.errors import MissingWeights
from retrieval.plugins import localizer_names
from vcl_plugin.cli.output import print_json, print_table, progress, stderr
from vcl_plugin.evaluation.folder import Folder
from vcl_plugin.evaluation.leads import Lead, measure_lead
from vcl_plugin.evaluation.runner import Method, Report, journal_path
from vcl_plugin.evaluation.runner import evaluate as run
from vcl_plugin.evaluation.tuning import Trial
from vcl_plugin.evaluation.tuning import tune as search_parameters

ORDER = ("hv", "tn", "dp", "dtw", "spd", "transvcl")  # as in the paper's Table 1


def evaluate(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder with features/, pairs.csv, labels.json, topics.json."
        ),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "--method", "-m", help="hv, tn, dp, dtw, spd, transvcl, or any other installed."
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Several, separated by commas, or `all`: one row each.")
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option("--weights", "-w", help="Weights file; METHOD=FILE when there are several."),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", "-p", help="NAME=VALUE, or METHOD.NAME=VALUE of one; may be repeated."
        ),
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Search the method's parameters; DIR is for validation.")
    ] = False,
    processes: Annotated[
        int, typer.Option("--processes", "-j", min=1, help="Processes to work in.")
    ] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--restart", help="Keep the answers of an earlier run (DIR/results), or not."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a method on labelled pairs: segment precision, recall and F, and video-level errors."""
    names = _choose_methods(method, methods)
    chosen = [
        Method(
            name,
            _weights_of(name, names, weights or []),
            _parameters_of(name, names, parameter or []),
        )
        for name in names
    ]
    folder = Folder(directory)
    if tune:
        if len(chosen) > 1:
            raise typer.BadParameter("--tune takes one --method at a time")
        _print_trials(_tune(folder, chosen[0], processes), as_json)
        return
    reports: list[Report] = []
    left_out: dict[str, str] = {}
    for each in chosen:
        try:
            reports.append(_run(folder, each, processes, resume))
        except MissingWeights as reason:
            # In a table of all methods one without weights is a gap, not the end.
            if len(chosen) == 1:
                raise
            left_out[each.name] = str(reason)
    if not reports:
        raise MissingWeights("; ".join(left_out.values()))
    _print_reports(reports, left_out, is_single=len(chosen) == 1, as_json=as_json)


def _choose_methods(method: str | None, methods: str | None) -> list[str]:
    if (method is None) == (methods is None):
        raise typer.BadParameter("give either --method or --methods")
    if method is not None:
        return [method]
    installed = localizer_names()
    if methods == "all":
        return sorted(installed, key=lambda name: (_place(name), name))
    return [name.strip() for name in str(methods).split(",") if name.strip()]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _weights_of(name: str, names: Sequence[str], given: Sequence[str]) -> str | None:
    """The weights meant for a method: `METHOD=FILE`, or a bare FILE when there is one method."""
    for each in given:
        head, _, tail = each.partition("=")
        if tail and head in names:
            if head == name:
                return tail
        elif len(names) > 1:
            raise typer.BadParameter(f"--weights {each}: write METHOD=FILE, methods are {names}")
        else:
            return each
    return None


def _parameters_of(method: str, methods: Sequence[str], given: Sequence[str]) -> dict[str, Any]:
    """The parameters meant for a method: `METHOD.NAME=VALUE`, or `NAME=VALUE` for all of them."""
    parameters = {}
    for each in given:
        name, separator, text = each.partition("=")
        if not separator:
            raise typer.BadParameter(f"--parameter {each}: write NAME=VALUE")
        head, dot, tail = name.partition(".")
        if dot and head not in methods:
            raise typer.BadParameter(f"--parameter {each}: {head} is none of {', '.join(methods)}")
        if dot and head != method:
            continue
        try:
            parameters[tail or name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            parameters[tail or name] = text
    return parameters


def _run(folder: Folder, method: Method, processes: int, resume: bool) -> Report:
    journal: Path | None = journal_path(folder, method)
    if not _is_writable(folder.path):
        stderr.print(f"{folder.path} is read-only: an interrupted run will start from nothing")
        journal = None
    elif journal and not resume:
        journal.unlink(missing_ok=True)
    with progress() as bar:
        task = bar.add_task(f"{method.name}: localizing", total=len(folder.pairs))
        report = run(folder, method, processes, journal, lambda count: bar.advance(task, count))
    if report.problems:
        stderr.print(
            f"evaluated {len(report.pairs)} of {report.total} pairs; "
            f"{len(report.problems)} files are missing or unreadable, the first: "
            f"{report.problems[0]}",
            markup=False,
        )
    return report


def _is_writable(path: Path) -> bool:
    results = path / "results"
    return os.access(results if results.exists() else path, os.W_OK)


def _tune(folder: Folder, method: Method, processes: int) -> list[Trial]:
    with progress() as bar:
        # How many rounds it takes is known at the end; two are usual.
        guess = 2 * sum(map(len, getattr(type(method.load()), "GRID", {}).values())) or 1
        task = bar.add_task(f"{method.name}: tuning", total=guess)

        def show(trial: Trial) -> None:
            bar.update(task, advance=1, description=f"{method.name}: {trial.summary.f_score:.4f}")

        return search_parameters(folder, method, processes=processes, on_trial=show)


def _print_trials(trials: Sequence[Trial], as_json: bool) -> None:
    if as_json:
        rows = [{"parameters": dict(t.parameters), **t.summary.as_dict()} for t in trials]
        print_json({"best": rows[0], "trials": rows})
        return
    print_table(
        ["recall", "precision", "f_score", "parameters"],
        [
            [*_percent(t.summary, "recall", "precision", "f_score"), _spell(t.parameters)]
            for t in trials[:20]
        ],
        f"{len(trials)} settings tried, best first",
    )


def _spell(parameters: Mapping[str, Any]) -> str:
    return " ".join(f"-p {name}={value}" for name, value in parameters.items()) or "(defaults)"


def _percent(summary: Any, *names: str) -> list[str]:
    return [f"{100 * getattr(summary, name):.2f}" for name in names]


def _print_reports(
    reports: Sequence[Report], left_out: Mapping[str, str], is_single: bool, as_json: bool
) -> None:
    first, leads = _measure_leads(reports)
    if as_json:
        rows = {report.method: report.as_dict() for report in reports}
        over = {name: lead.as_dict() for name, lead in leads.items()}
        several = {"methods": rows, "left_out": dict(left_out), "lead": {"of": first, "over": over}}
        print_json(reports[0].as_dict() if is_single else several)
        return
    _print_overall(reports)
    if leads:
        print_table(
            [f"{first} over", "F", "from", "to"],
            [
                [name, *(f"{100 * each:+.2f}" for each in (lead.f_score, lead.low, lead.high))]
                for name, lead in leads.items()
            ],
            "lead in F, and where 95 % of a paired bootstrap lie: percent",
        )
    _print_groups("F by topic", "by_topic", "f_score", reports)
    _print_groups("F by copied share", "by_copy_share", "f_score", reports)
    _print_groups("F by length of the shortest copy", "by_length", "f_score", reports)
    _print_groups("F by speed", "by_speed", "f_score", reports)
    _print_groups("FAR by what makes a pair hard", "by_kind", "far", reports)
    for name, reason in left_out.items():
        stderr.print(f"{name} is left out: {reason}", markup=False)


def _measure_leads(reports: Sequence[Report]) -> tuple[str, dict[str, Lead]]:
    """The lead of `transvcl`, or of the first method where it takes no part, over all others."""
    first = next((each for each in reports if each.method == "transvcl"), reports[0])
    others = [each for each in reports if each is not first]
    return first.method, {each.method: measure_lead(first.pairs, each.pairs) for each in others}


def _print_overall(reports: Sequence[Report]) -> None:
    rows = []
    for report in reports:
        facts = report.as_dict()
        rates = ("recall", "precision", "f_score", "frr", "far", "video_f_score")
        rows.append(
            [
                report.method,
                *_percent(report.summary, *rates),
                f"{100 * facts['average_precision']:.2f}",
                f"{len(report.pairs)} of {report.total}",
                f"{1000 * report.seconds / max(len(report.pairs), 1):.1f}",
            ]
        )
    columns = ["method", "recall", "precision", "F", "FRR", "FAR", "video F", "AP", "pairs", "ms"]
    print_table(columns, rows, "segments (VCSL), video level, average precision (VSC2022): percent")


def _print_groups(title: str, key: str, rate: str, reports: Sequence[Report]) -> None:
    facts = {report.method: report.as_dict()[key] for report in reports}
    groups = sorted({group for each in facts.values() for group in each})
    if rate == "far":
        groups = [group for group in groups if group != "copy"]
    if not groups:
        return
    rows = [
        [name, *[f"{100 * each[g][rate]:.2f}" if g in each else "" for g in groups]]
        for name, each in facts.items()
    ]
    counts = next(iter(facts.values()))
    columns = ["method", *[f"{g} ({counts[g]['pairs']})" if g in counts else g for g in groups]]
    print_table(columns, rows, title)
