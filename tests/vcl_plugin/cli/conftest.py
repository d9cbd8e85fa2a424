"""The command line in this process: what it prints, what it complains, how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from vcl_plugin.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def vcl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs the command in this process, as its console script would."""

    def run(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["vcl", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Said(code, out, " ".join(err.split()))  # however wide the terminal is

    return run
