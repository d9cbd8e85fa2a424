"""What a newcomer tries first, and the sentence that leads on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.text import Text

from retrieval.database import connect, transaction
from tests.vcl_plugin.cli.conftest import Said
from tests.vcl_plugin.cli.test_commands import COMMANDS
from tests.vcl_plugin.world import add_reference, add_upload

Vcl = Callable[..., Said]


@pytest.mark.usefixtures("site_environment")
def test_an_address_is_told_to_be_downloaded(vcl: Vcl, database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "studio")
    said = vcl("search", "https://example.org/film.mp4")
    assert said.code == 1
    assert "is an address; download the video and name the file" in " ".join(said.out.split())
    said = vcl("reference", "add", "https://example.org/film.mp4", "-a", "1", "--json")
    message = json.loads(said.out)[0]["message"]
    assert message.startswith("https://example.org/film.mp4 is an address")


@pytest.mark.usefixtures("site_environment")
def test_a_list_of_videos_is_not_registered_as_a_video(
    vcl: Vcl, database: str, tmp_path: Path
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "studio")
    (tmp_path / "list.csv").write_text("film.mp4\n")
    said = vcl("reference", "add", tmp_path / "list.csv", "-a", "1", "--json")
    assert said.code == 1
    assert "is a list and no video" in json.loads(said.out)[0]["message"]
    assert len(json.loads(vcl("reference", "list", "--json").out)) == 1


@pytest.mark.usefixtures("site_environment")
def test_a_rescan_of_what_is_no_reference_says_so(vcl: Vcl, database: str) -> None:
    with transaction(connect(database)) as connection:
        add_upload(connection, "copy")
    said = vcl("rescan", "nobody")
    assert "(not_registered)" in said.err
    assert "`vcl reference list`" in said.err
    assert "is an upload; name a reference" in vcl("rescan", "copy").err


@pytest.mark.usefixtures("site_environment")
def test_a_queue_that_does_not_exist_is_refused_before_anything_starts(vcl: Vcl) -> None:
    said = vcl("worker", "-Q", "search,nonsense")
    assert (said.code, said.out) == (1, "")
    assert "there is no queue 'nonsense'; there are search,localize,ingest" in said.err


def test_a_missing_matplotlib_is_told_before_the_work(
    vcl: Vcl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as where it is not installed
    said = vcl("show", "/gone.npy", "/gone.npy", "-o", "a.png")
    assert said.code == 1
    assert "(missing_matplotlib)" in said.err


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_help_loses_what_stands_in_brackets(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    said = [command.help, *(getattr(each, "help", None) for each in command.params)]
    for each in filter(None, said):
        assert Text.from_markup(each).plain == each
