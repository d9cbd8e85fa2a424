"""Metrics are what the tables, the broker and the disk say at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import text

from retrieval.database import connect, migrate, transaction
from retrieval.index import snapshots
from retrieval.services import Endpoints
from retrieval.settings import Settings
from retrieval.site.metrics import MEASURES, SiteCollector
from retrieval.work import changes
from retrieval.work.messages import Queue

Labels = tuple[tuple[str, str], ...]

ROWS = """
INSERT INTO videos (id, title, status, reason, sent_at) VALUES
    ('a', 'a', 'ready', NULL, NULL), ('b', 'b', 'ready', NULL, NULL),
    ('c', 'c', 'failed', 'not_video', NULL), ('d', 'd', 'failed', 'not_video', NULL),
    ('e', 'e', 'failed', 'too_large', NULL), ('f', 'f', 'waiting', NULL, now() - interval '90 s');
INSERT INTO searches (id, query_id, status, reason, created_at) VALUES
    ('done', 'a', 'done', NULL, now() - interval '9 h'),
    ('open', 'a', 'localizing', NULL, now() - interval '300 s'),
    ('part', 'a', 'incomplete', NULL, now() - interval '9 h'),
    ('lost', 'a', 'failed', 'empty_index', now() - interval '9 h');
INSERT INTO pairs (query_id, reference_id, model, settings_digest, fingerprint, status, reason,
                   sent_at, lease_until) VALUES
    ('a', 'b', '1', '', '', 'waiting', NULL, now() - interval '50 s', NULL),
    ('a', 'b', '2', '', '', 'waiting', 'worker_lost', now(), NULL),
    ('a', 'b', '3', '', '', 'running', NULL, now(), now() + interval '50 s'),
    ('a', 'b', '4', '', '', 'running', NULL, now(), now() - interval '50 s'),
    ('a', 'b', '5', '', '', 'done', NULL, NULL, NULL),
    ('a', 'b', '6', '', '', 'quarantined', 'attempts_exhausted', NULL, NULL);
"""


@pytest.fixture
def site(database: str, services: Endpoints, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database_url=database, broker_url=services.broker_url)


def scrape(settings: Settings) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in SiteCollector(settings).collect()
        for sample in family.samples
    }


def of_stage(stage: str, **labels: str) -> Labels:
    return tuple(sorted({"stage": stage, **labels}.items()))


def test_rows_are_counted_by_stage_state_and_reason(site: Settings) -> None:
    with transaction(connect(site.database_url)) as connection:
        connection.execute(text(ROWS))
    found = scrape(site)
    assert found["vcl_waiting", of_stage("ingest")] == 1
    assert found["vcl_waiting", of_stage("localize")] == 2
    assert found["vcl_running", of_stage("localize")] == 2
    assert found["vcl_silent_leases", of_stage("localize")] == 1
    assert found["vcl_quarantined_pairs", ()] == 1
    assert found["vcl_open_searches", ()] == 1
    assert found["vcl_incomplete_searches", ()] == 1
    failures = {labels: value for (name, labels), value in found.items() if name == "vcl_failures"}
    assert failures == {
        of_stage("ingest", reason="not_video"): 2,
        of_stage("ingest", reason="too_large"): 1,
        of_stage("search", reason="empty_index"): 1,
        of_stage("localize", reason="attempts_exhausted"): 1,
    }
    assert found["vcl_retrying", of_stage("localize", reason="worker_lost")] == 1


def test_ages_are_those_of_the_oldest_that_waits(site: Settings) -> None:
    with transaction(connect(site.database_url)) as connection:
        connection.execute(text(ROWS))
    found = scrape(site)
    assert 90 <= found["vcl_oldest_waiting_seconds", of_stage("ingest")] < 290
    assert 50 <= found["vcl_oldest_waiting_seconds", of_stage("localize")] < 250
    assert 300 <= found["vcl_oldest_open_search_seconds", ()] < 500
    assert found["vcl_oldest_waiting_seconds", of_stage("search")] == 0


def test_an_idle_site_has_every_number_at_zero(site: Settings) -> None:
    """A series that vanishes when it is zero cannot be compared with anything."""
    found = scrape(site)
    for stage in ("ingest", "search", "localize"):
        for name in ("vcl_waiting", "vcl_running", "vcl_oldest_waiting_seconds"):
            assert found[name, of_stage(stage)] == 0
    assert found["vcl_quarantined_pairs", ()] == 0
    assert found["vcl_disk_free_bytes", ()] > 0


@pytest.mark.parametrize("measure", MEASURES, ids=lambda each: each.name)
def test_no_measure_of_the_engine_reads_a_table_of_the_plugin(measure) -> None:
    for table in ("runs", "segments", "claims", "assets", "owners"):
        assert table not in measure.sql.split()


def test_the_queues_are_celerys_and_their_messages_are_counted(
    site: Settings, celery_app: Celery
) -> None:
    assert {queue.name for queue in celery_app.conf.task_queues} == set(Queue)
    before = scrape(site)["vcl_queue_messages", (("queue", "search"),)]
    for _ in range(3):
        celery_app.send_task("retrieval.rescan", kwargs={"reference_id": "nobody"})
    assert scrape(site)["vcl_queue_messages", (("queue", "search"),)] == before + 3


def test_an_index_is_as_old_as_its_snapshot_and_behind_by_what_the_log_holds_since(
    site: Settings,
) -> None:
    key = "references.lite0-abc.mean-8-4"
    with transaction(connect(site.database_url)) as connection:
        for collection in ("references", "references", "uploads", "references", "references"):
            connection.execute(
                text("""
                INSERT INTO index_changes (video_id, fingerprint, collection, action)
                VALUES ('v', 'lite0-abc', :collection, 'add')"""),
                {"collection": collection},
            )
        log = changes.read_changes(connection, "references", "lite0-abc", since=0)
    made_at = datetime.now(UTC) - timedelta(hours=1)
    with snapshots.new_snapshot(site.index_dir, key, log[1].seq) as folder:
        facts = {
            **{"key": key, "dimension": 256, "seq": log[1].seq, "stamp": log[1].stamp},
            **{"kind": "exact", "videos": 2, "vectors": 9, "made_at": made_at.isoformat()},
            **{"trained_on": 0, "trained_recall": 0.0, "probes": 0},
            **{"self_test": {}, "unreadable": {}},
        }
        snapshots.write_facts(folder, snapshots.SnapshotFacts(**facts))
    (site.index_dir / "broken.current.json").write_text("no json")
    found = scrape(site)
    assert found["vcl_index_changes_behind", (("index", key),)] == 2
    assert 3600 <= found["vcl_index_age_seconds", (("index", key),)] < 3900


def test_a_part_that_is_down_is_told_and_the_rest_still_measured(
    site: Settings, database: str, tmp_path: Path
) -> None:
    migrate(database, "0005")
    found = scrape(site)
    assert found["vcl_up", (("service", "database"),)] == 1
    assert found["vcl_up", (("service", "schema"),)] == 0
    nobody = Settings(
        home=tmp_path,
        database_url="postgresql://ana:s3cret@127.0.0.1:1/vcl",
        broker_url="redis://127.0.0.1:1/0",
    )
    down = scrape(nobody)
    for service in ("database", "broker", "schema"):
        assert down["vcl_up", (("service", service),)] == 0
    assert down["vcl_disk_free_bytes", ()] > 0
    assert not [name for name, _ in down if name == "vcl_waiting"]


def test_prometheus_can_read_it(site: Settings) -> None:
    registry = CollectorRegistry()
    registry.register(SiteCollector(site))
    lines = generate_latest(registry).decode().splitlines()
    assert "# TYPE vcl_waiting gauge" in lines
    assert 'vcl_waiting{stage="localize"} 0.0' in lines


@pytest.fixture(autouse=True)
def leave_no_messages(celery_app: Celery) -> Iterator[None]:
    yield
    celery_app.control.purge()
