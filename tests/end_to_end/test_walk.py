"""The walk of `vcl search FILE --wait` in docs/architecture.md, compared with a trace of one."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from celery import Celery
from typer.testing import CliRunner

from retrieval.process import forget_process
from vcl_plugin.cli import app as vcl
from vcl_plugin.demo.footage import Clip, render_edit, render_reference

ROOT = Path(__file__).parents[2]
MOST_MODULES = 45


@dataclass(frozen=True)
class Step:
    """One line of the walk: a function, called on behalf of the less indented line above it."""

    function: str
    caller: str | None
    repeats: bool  # marked by an asterisk: called for each video, scene, frame or tile
    is_elsewhere: bool  # marked by a dagger: runs in the decoder child


@dataclass
class Trace:
    """Which functions of both packages were entered: how often, in which order, by whom."""

    counts: Counter[str] = field(default_factory=Counter)
    entries: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    generators: set[FrameType] = field(default_factory=set)

    @contextmanager
    def watch(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (name := _name(frame.f_code)) is None:
            return
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            if frame in self.generators:
                return  # it goes on
            self.generators.add(frame)
        self.counts[name] += 1
        callers, outer = set(), frame.f_back
        while outer is not None:
            callers.add(_name(outer.f_code) or "")
            outer = outer.f_back
        self.entries.append((name, frozenset(callers)))


def _name(code: CodeType) -> str | None:
    for package in ("retrieval", "vcl_plugin"):
        if code.co_filename.startswith(str(ROOT / package)):
            module = Path(code.co_filename).relative_to(ROOT).with_suffix("")
            dotted = ".".join(module.parts).removesuffix(".__init__")
            return f"{dotted}.{code.co_qualname}"
    return None


def read_walk() -> list[Step]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- the walk -->\n+```\n(.*?)```", page, re.DOTALL)
    assert block is not None
    steps: list[Step] = []
    callers: list[tuple[int, str]] = []
    for line in block[1].splitlines():
        found = re.match(r"( *)((?:retrieval|vcl_plugin)[\w.]+)([*†]?)(?:  |$)", line)
        if found is None:
            assert re.fullmatch(r"[a-z `._]*:|", line), f"not a step: {line!r}"
            continue
        indent, function = len(found[1]), found[2]
        while callers and callers[-1][0] >= indent:
            callers.pop()
        caller = callers[-1][1] if callers else None
        steps.append(Step(function, caller, found[3] == "*", found[3] == "†"))
        callers.append((indent, function))
    return steps


def module_of(function: str) -> str:
    parts = function.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(parts[:length])
    raise AssertionError(f"{function} is in no module")


def command(*arguments: object) -> str:
    done = CliRunner().invoke(vcl, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def trace(
    site_environment: None, celery_app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Trace:
    """A search that finds a copy, each message worked off where it is sent."""

    def work_off(name: str, kwargs: dict[str, Any], **_: object) -> None:
        celery_app.tasks[name](**kwargs)

    monkeypatch.setattr(celery_app, "send_task", work_off)
    film = render_reference(tmp_path / "film.mp4", seed=1, seconds=24, size=(160, 120))
    upload = render_edit(tmp_path / "upload.mp4", [Clip(film, 4, 20)], size=(160, 120))
    command("asset", "add", "Film", "--owner", "Owner")
    command("reference", "add", film, "--asset", "Film", "--wait")
    forget_process()
    seen = Trace()
    with seen.watch():
        assert "film.mp4" in command("search", upload, "--wait")
    return seen


def test_a_search_goes_the_way_that_the_architecture_draws_and_does_nothing_twice(
    trace: Trace,
) -> None:
    steps = [step for step in read_walk() if not step.is_elsewhere]
    assert [step.function for step in steps if step.function not in trace.counts] == []
    place = 0
    for step in steps:
        entered = next(
            (
                number
                for number, (name, callers) in enumerate(trace.entries[place:], place)
                if name == step.function and (step.caller is None or step.caller in callers)
            ),
            None,
        )
        assert entered is not None, f"{step.function} is not called from {step.caller} after that"
        place = entered + 1
    named = Counter(step.function for step in steps)
    once = {step.function for step in steps} - {step.function for step in steps if step.repeats}
    often = {name: trace.counts[name] for name in once if trace.counts[name] != named[name]}
    assert often == {}


def test_the_way_is_short() -> None:
    assert len({module_of(step.function) for step in read_walk()}) <= MOST_MODULES
