"""Commands for who runs a site: doctor, metrics, status."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from retrieval.services.place import has_workers
from retrieval.site import doctor
from tests.retrieval.test_services import open_home
from tests.vcl_plugin.cli.conftest import Said

Vcl = Callable[..., Said]
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "operate.md"
DOCUMENT = PAGE.read_text(encoding="utf-8")


@pytest.mark.usefixtures("site_environment")
def test_metrics_are_printed_once_as_text_or_json(vcl: Vcl) -> None:
    said = vcl("metrics")
    assert (said.code, said.err) == (0, "")
    assert 'vcl_up{service="database"} 1.0' in said.out
    samples = json.loads(vcl("metrics", "--json").out)
    assert {"name": "vcl_runs_total", "labels": {}, "value": 0.0} in samples


@pytest.mark.usefixtures("site_environment")
def test_every_metric_is_in_the_document_and_nothing_else(vcl: Vcl) -> None:
    printed = set(re.findall(r"^# TYPE (\w+)", vcl("metrics").out, flags=re.MULTILINE))
    documented = set(re.findall(r"^\| `(vcl_\w+)", DOCUMENT, flags=re.MULTILINE))
    assert documented == printed


@pytest.mark.usefixtures("site_environment")
def test_metrics_are_served_until_the_command_is_stopped() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "vcl_plugin.cli", "metrics", "--port", "0"],
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        address = re.search(r"http://\S+/metrics", said)
        assert address is not None, said
        with urllib.request.urlopen(address[0], timeout=120) as answer:
            page = answer.read().decode()
        assert 'vcl_waiting{stage="localize"} 0.0' in page
    finally:
        server.terminate()
        server.wait(timeout=120)
        assert server.stderr is not None
        server.stderr.close()


def test_a_port_that_is_taken_is_a_sentence(
    vcl: Vcl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VCL_HOME", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = vcl("metrics", "--port", port)
    assert (said.code, said.out) == (1, "")
    assert f"127.0.0.1:{port}" in said.err


@pytest.mark.usefixtures("site_environment")
def test_the_doctor_says_what_to_do_and_ends_with_one(
    vcl: Vcl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.3)
    monkeypatch.setenv("VCL_LOCALIZER", "tn")
    monkeypatch.setenv("VCL_DESCRIPTOR", "magic")
    said = vcl("doctor")
    assert said.code == 1
    assert "✗ workers      none answers" in said.out
    assert "→ start one with `vcl worker`" in said.out
    assert "✓ localizer" in said.out
    assert "2 of" in said.err
    found = {each["part"]: each for each in json.loads(vcl("doctor", "--json").out)}
    assert found["descriptor"]["is_well"] is False
    assert "no descriptor is called 'magic'" in found["descriptor"]["found"]
    documented = set(re.findall(r"^\| (\w[\w ]+) \| ", DOCUMENT, flags=re.MULTILINE))
    assert set(found) | {"media roots"} <= documented


@pytest.mark.usefixtures("site_environment")
def test_a_worker_that_does_not_see_the_store_does_not_start(
    vcl: Vcl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = tmp_path / "home" / "store"
    assert str(store) in vcl("store").out
    (store / "store.id").rename(store / "aside")
    monkeypatch.setenv("VCL_SERVICE_TIMEOUT", "1")
    for command in (["worker"], ["store"]):
        said = vcl(*command)
        assert said.code == 1
        assert "is not the store of this database" in said.err
    assert json.loads(vcl("store", "--adopt", "--json").out)["store"] == str(store)
    assert (store / "store.id").read_text() == (store / "aside").read_text()


@pytest.mark.usefixtures("site_environment")
def test_status_is_watched_until_it_is_interrupted(
    vcl: Vcl, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    said = vcl("status", "--watch", "--interval", "0.5", "--json")
    assert (said.code, looks) == (0, [0.5] * 3)
    states = [json.loads(line) for line in said.out.splitlines()]
    assert len(states) == 3
    assert states[0]["counts"]["pairs_per_second"] == 0
    assert states[0] == json.loads(vcl("status", "--json").out)
    looks.clear()
    drawn = vcl("status", "--watch")
    assert drawn.code == 0
    assert "pairs waiting" in drawn.out


def test_down_under_a_running_worker_does_not_say_stopped_of_servers_that_come_back(
    vcl: Vcl, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_home() as home:
        monkeypatch.setenv("VCL_HOME", str(home))
        monkeypatch.setenv("VCL_LOCALIZER", "tn")
        assert vcl("up").code == 0
        running = json.loads(vcl("status", "--json").out)["services"]
        worker = subprocess.Popen([sys.executable, "-m", "vcl_plugin.cli", "worker", "-c", "1"])
        try:
            deadline = time.monotonic() + 60
            while not has_workers(home) and time.monotonic() < deadline:
                time.sleep(0.1)
            said = vcl("down")
            assert (said.code, said.out) == (1, "")
            assert "stop it first" in said.err
            assert json.loads(vcl("status", "--json").out)["services"] == running
        finally:
            worker.terminate()
            worker.wait(timeout=60)
        assert vcl("down").out == "stopped postgres, valkey\n"
