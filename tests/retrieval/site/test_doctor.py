"""The doctor finds what is wrong with an installation, says what to do, and starts nothing."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from retrieval.database import connect, migrate, transaction
from retrieval.records import Fingerprint
from retrieval.services import Endpoints
from retrieval.settings import Settings
from retrieval.site import doctor
from retrieval.site.doctor import Finding, examine
from retrieval.work import catalogue


@pytest.fixture
def site(database: str, services: Endpoints, tmp_path: Path) -> dict[str, Any]:
    """Arguments of settings that are well, but for the workers; to be spoilt one at a time."""
    return {
        **{"home": tmp_path, "database_url": database, "broker_url": services.broker_url},
        "localizer": "tn",
    }


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.3)


@pytest.fixture(autouse=True)
def known_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own tests load it for real; here it would be built anew for each home."""

    class Known:
        fingerprint = Fingerprint("known", "1", 256, 1.0, "none")

    monkeypatch.setattr(doctor, "load_descriptor", lambda name: Known())


def look(**arguments: Any) -> dict[str, Finding]:
    return {finding.part: finding for finding in examine(Settings(**arguments))}


def test_a_site_without_workers_lacks_nothing_else(site: dict[str, Any]) -> None:
    found = look(**site)
    ill = {part: finding.advice for part, finding in found.items() if not finding.is_well}
    assert ill == {"workers": "start one with `vcl worker`"}
    assert found["schema"].found.startswith("revision 0")
    assert "PostgreSQL" in found["database"].found
    assert found["localizer"].found.startswith("tn, tn-")


def test_servers_that_are_not_there_are_named_with_the_setting_and_no_password(
    site: dict[str, Any],
) -> None:
    found = look(
        **site
        | {
            "database_url": "postgresql://ana:s3cret@127.0.0.1:1/vcl",
            "broker_url": "redis://:s3cret@127.0.0.1:1/0",
        }
    )
    assert "correct VCL_DATABASE_URL" in found["database"].advice
    assert "correct VCL_BROKER_URL" in found["broker"].advice
    assert "s3cret" not in str(found)
    assert "workers" not in found


def test_a_home_never_used_is_told_to_be_started_and_stays_as_it_is(tmp_path: Path) -> None:
    found = look(home=tmp_path / "new", localizer="tn")
    assert found["database"].advice == "start it with `vcl up`"
    assert not (tmp_path / "new").exists()


def test_an_unmigrated_database_is_told_in_a_sentence(site: dict[str, Any], database: str) -> None:
    migrate(database, "base")
    found = look(**site)
    assert "vcl migrate" in found["schema"].advice
    assert found["workers"].advice == "start one with `vcl worker`"


def test_a_schema_behind_names_the_command(site: dict[str, Any], database: str) -> None:
    migrate(database, "0001")
    assert look(**site)["schema"].advice == "run `vcl migrate`"


@pytest.mark.parametrize(
    ("setting", "value", "part", "advice"),
    [
        ("localizer", "magic", "localizer", "installed:"),
        ("weights", "/gone.safetensors", "localizer", "see `vcl config`"),
        ("index_url", "milvus://ana:s3cret@127.0.0.1:1", "index", "VCL_INDEX_URL"),
        ("device", "cuda:7", "device", "set VCL_DEVICE to auto"),
        ("media_roots", "/gone/folder", "media roots", "correct VCL_MEDIA_ROOTS"),
        ("home", "/dev/null/home", "home", "set VCL_HOME to another folder"),
    ],
)
def test_a_setting_that_leads_nowhere_is_found(
    site: dict[str, Any], setting: str, value: str, part: str, advice: str
) -> None:
    found = look(**site | {setting: value})[part]
    assert not found.is_well
    assert advice in found.advice


def test_a_full_disk_is_found(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100 << 30, 99 << 30, 1 << 30))
    found = look(**site)["disk"]
    assert found.found == "1.0 GB free of 100.0"
    assert "make room" in found.advice


def test_both_kinds_of_faiss_at_once_are_found(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package != "onnxruntime-gpu")
    found = look(**site)["packages"]
    assert found.found == "faiss-cpu and faiss-gpu are both here"
    assert "uninstall both" in found.advice


def test_both_kinds_of_onnx_runtime_at_once_are_found(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_is_installed", lambda package: package != "faiss-gpu")
    found = look(**site)["packages"]
    assert found.found == "onnxruntime and onnxruntime-gpu are both here"
    assert "uninstall both" in found.advice


def test_a_card_on_which_nothing_is_described_is_found(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda number: "Card 9000")
    found = look(**site)["device"]
    assert found.found.startswith("Card 9000, but ONNX Runtime knows no CUDA")
    assert "`.[gpu]` instead of `.[cpu]`" in found.advice
    assert look(**site | {"device": "cpu"})["device"].is_well


@pytest.mark.parametrize(
    ("part", "loader", "advice"),
    [
        ("localizer", "load_localizer", "set VCL_WEIGHTS to weights that learnt from it"),
        ("pooler", "load_pooler", "set VCL_POOLER to mean"),
    ],
)
def test_weights_that_learnt_from_another_descriptor_are_found(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch, part: str, loader: str, advice: str
) -> None:
    class Learnt:
        name, fingerprint, descriptor = "reader", "reader-1", "lite0-older"

    monkeypatch.setattr(doctor, loader, lambda name, **arguments: Learnt())
    found = look(**site)[part]
    key = Fingerprint("known", "1", 256, 1.0, "none").key
    assert found.found.endswith(f"learnt from lite0-older, but videos are described by {key}")
    assert found.advice.startswith(advice)
    Learnt.descriptor = key
    assert look(**site)[part].is_well


class Answering:
    """A Celery app whose workers answer that they serve certain queues."""

    def __init__(self, answers: dict[str, list[dict[str, str]]] | None) -> None:
        self.answers = answers

    def __call__(self, name: str, broker: str) -> Answering:
        return self

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None: ...

    @property
    def control(self) -> Answering:
        return self

    def inspect(self, timeout: float) -> Answering:
        return self

    def active_queues(self) -> dict[str, list[dict[str, str]]] | None:
        return self.answers


def test_a_queue_that_no_worker_serves_is_found(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = [{"name": name} for name in ("ingest", "search", "maintenance")]
    monkeypatch.setattr(doctor, "Celery", Answering({"vcl-1@host": served}))
    found = look(**site)["workers"]
    assert found.found == "vcl-1@host; none serves localize"
    assert found.advice == "start one with `vcl worker --queues localize`"


def test_workers_that_serve_every_queue_are_well(
    site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = [{"name": name} for name in ("ingest", "search", "localize", "maintenance")]
    monkeypatch.setattr(doctor, "Celery", Answering({"b@host": served, "a@host": []}))
    assert look(**site)["workers"] == Finding("workers", "a@host, b@host")


def test_a_busy_worker_that_cannot_answer_is_known_by_its_lease(
    site: dict[str, Any], database: str
) -> None:
    with transaction(connect(database)) as connection:
        connection.execute(
            text("""
            INSERT INTO videos (id, title, status, leased_by, lease_until)
            VALUES ('v', 'v', 'running', 'host:7:abc', now() + interval '1 h')""")
        )
    assert look(**site)["workers"] == Finding("workers", "busy: host:7")


def test_references_that_searches_do_not_see_are_found(site: dict[str, Any], database: str) -> None:
    assert look(**site)["references"].is_well
    with transaction(connect(database)) as connection:
        video = catalogue.register_file(connection, Path("/films/a.mp4"), "a" * 64, None)
        catalogue.record_descriptors(connection, video, "older-1", "/store/a", 9, 256)
        catalogue.make_reference(connection, video)
    found = look(**site)["references"]
    assert found.found.startswith("searches do not see 1")
    assert found.advice == "run `vcl ingest --redescribe`"
