"""A password in an address is shown nowhere: not by a command, not in an error, not in a log."""

from __future__ import annotations

import contextlib
import logging
import sys
from pathlib import Path

import pytest

from vcl_plugin.cli import main

DATABASES = {
    "nobody there": "postgresql://ana:s3cret@127.0.0.1:1/vcl",
    "a port that is none": "postgresql://ana:s3cret@127.0.0.1:port/vcl",
    "half an address": "postgresql://ana:s3cret@[::1/vcl",
    "an option nobody knows": "postgresql://ana:s3cret@127.0.0.1:1/vcl?some+option=s3cret",
    "a password in an option": "postgresql://127.0.0.1:1/vcl?user=ana&password=s3cret",
    "a password with signs": "postgresql://ana:s3cret%ZZ/#@127.0.0.1:1/vcl",
}
BROKERS = {
    "nobody there": "redis://:s3cret@127.0.0.1:1/0",
    "a port that is none": "redis://:s3cret@127.0.0.1:port/0",
    "no socket there": "redis+socket:///nowhere/v.sock?password=s3cret",
}
COMMANDS = (["config"], ["config", "--json"], ["status"], ["status", "--json"], ["asset", "list"])


def everything_said(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr(sys, "argv", ["vcl", *arguments])
    with contextlib.suppress(SystemExit):
        main()
    out, err = capfd.readouterr()
    return out + err


@pytest.mark.parametrize("name", DATABASES)
def test_the_password_of_the_database_is_never_shown(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("VCL_HOME", str(tmp_path))
    monkeypatch.setenv("VCL_SERVICE_TIMEOUT", "1")
    monkeypatch.setenv("VCL_BROKER_URL", BROKERS["nobody there"])
    monkeypatch.setenv("VCL_DATABASE_URL", DATABASES[name])
    for command in COMMANDS:
        said = everything_said(command, monkeypatch, capfd)
        assert said
        assert "s3cret" not in said
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("name", BROKERS)
def test_the_password_of_the_broker_is_never_shown(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("VCL_HOME", str(tmp_path))
    monkeypatch.setenv("VCL_SERVICE_TIMEOUT", "1")
    monkeypatch.setenv("VCL_DATABASE_URL", DATABASES["nobody there"])
    monkeypatch.setenv("VCL_BROKER_URL", BROKERS[name])
    for command in (["config"], ["status"]):
        said = everything_said(command, monkeypatch, capfd)
        assert said
        assert "s3cret" not in said
    assert "s3cret" not in caplog.text
