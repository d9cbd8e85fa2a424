"""Metrics for Prometheus, read from PostgreSQL, the broker and the disk at the moment of a scrape.

In: settings, and measures (SQL that gives labels and a value). Out: metric families.
No process counts for itself, so none that dies takes a number along.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import kombu
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from retrieval.database import check_schema, connect, transaction
from retrieval.errors import RetrievalError
from retrieval.index.snapshots import saved_indexes
from retrieval.records import PairStatus, SearchStatus, VideoStatus
from retrieval.services import service_status
from retrieval.settings import Settings
from retrieval.work.changes import count_changes
from retrieval.work.leases import Table
from retrieval.work.messages import Queue

log = logging.getLogger(__name__)

# Stage, table, and what its failed rows are called.
STAGES = (
    ("ingest", Table.VIDEOS, VideoStatus.FAILED),
    ("search", Table.SEARCHES, SearchStatus.FAILED),
    ("localize", Table.PAIRS, PairStatus.QUARANTINED),
)


@dataclass(frozen=True)
class Measure:
    """One metric: a statement whose last column is the value and whose others are the labels."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    sql: str
    kind: Literal["gauge", "counter"] = "gauge"


def _each_stage(select: str) -> str:
    """The statement once a stage. Statuses stand in it as constants: so partial indexes serve it,
    and it costs the same however many rows are done."""
    return " UNION ALL ".join(
        select.format(stage=stage, table=table, failed=failed) for stage, table, failed in STAGES
    )


MEASURES = (
    Measure(
        "vcl_waiting",
        "rows that wait for a worker: videos to describe, searches to plan, pairs to compare",
        ("stage",),
        _each_stage("SELECT '{stage}', count(*) FROM {table} WHERE status = 'waiting'"),
    ),
    Measure(
        "vcl_running",
        "rows that a worker holds",
        ("stage",),
        _each_stage("SELECT '{stage}', count(*) FROM {table} WHERE status = 'running'"),
    ),
    Measure(
        "vcl_silent_leases",
        "rows held by a worker that gave no sign of life in time; the sweep frees them",
        ("stage",),
        _each_stage(
            "SELECT '{stage}', count(*) FROM {table} "
            "WHERE status = 'running' AND lease_until < now()"
        ),
    ),
    Measure(
        "vcl_oldest_waiting_seconds",
        "age of the message whose row has waited longest, 0 when nothing waits",
        ("stage",),
        _each_stage(
            "SELECT '{stage}', coalesce(extract(epoch FROM now() - "
            "min(coalesce(sent_at, created_at))), 0) FROM {table} WHERE status = 'waiting'"
        ),
    ),
    Measure(
        "vcl_open_searches",
        "searches that are not at their end",
        (),
        "SELECT count(*) FROM searches WHERE status IN ('waiting', 'running', 'localizing')",
    ),
    Measure(
        "vcl_oldest_open_search_seconds",
        "since when the oldest open search was asked for, 0 when none is open",
        (),
        "SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0) FROM searches "
        "WHERE status IN ('waiting', 'running', 'localizing')",
    ),
    Measure(
        "vcl_incomplete_searches",
        "searches at their end of which something could not be compared",
        (),
        "SELECT count(*) FROM searches WHERE status = 'incomplete'",
    ),
    Measure(
        "vcl_quarantined_pairs",
        "pairs given up after their last attempt",
        (),
        f"SELECT count(*) FROM {Table.PAIRS} WHERE status = 'quarantined'",
    ),
    Measure(
        "vcl_failures",
        "rows given up, by the reason that stands in them",
        ("stage", "reason"),
        _each_stage(
            "SELECT '{stage}', reason, count(*) FROM {table} WHERE status = '{failed}' GROUP BY 2"
        ),
    ),
    Measure(
        "vcl_retrying",
        "rows that wait for another attempt, by the reason why the last one failed",
        ("stage", "reason"),
        _each_stage(
            "SELECT '{stage}', reason, count(*) FROM {table} "
            "WHERE status = 'waiting' AND reason IS NOT NULL GROUP BY 2"
        ),
    ),
)


class SiteCollector(Collector):
    """Answers a scrape with the state of a site; a part that is down is told, never an error."""

    def __init__(self, settings: Settings, measures: Sequence[Measure] = MEASURES) -> None:
        self.settings = settings
        self.measures = measures

    def collect(self) -> Iterator[Metric]:
        started = time.monotonic()
        database, broker = service_status(self.settings)
        is_up = GaugeMetricFamily(
            "vcl_up", "whether the service answers, and the schema fits", labels=["service"]
        )
        is_up.add_metric(["database"], database.running)
        is_up.add_metric(["broker"], broker.running)
        found: list[Metric] = []
        has_schema = False
        if database.running:
            try:
                found, has_schema = self._read_database(
                    self.settings.database_url or database.where
                )
            except (RetrievalError, SQLAlchemyError) as error:
                log.warning("the database was not measured: %s", error)
        is_up.add_metric(["schema"], has_schema)
        yield is_up
        yield from found
        if broker.running:
            yield _measure_queues(self.settings.broker_url or broker.where)
        yield from _measure_disk(self.settings)
        yield GaugeMetricFamily(
            "vcl_scrape_seconds", "how long this took", value=time.monotonic() - started
        )

    def _read_database(self, url: str) -> tuple[list[Metric], bool]:
        database = connect(url)
        try:
            check_schema(database)
        except RetrievalError as error:
            log.warning("%s", error)
            return [], False
        with transaction(database) as connection:
            found = [_read_measure(connection, measure) for measure in self.measures]
            return [*found, *_measure_index(connection, self.settings.index_dir)], True


def _read_measure(connection: Connection, measure: Measure) -> Metric:
    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
    family = kinds[measure.kind](measure.name, measure.meaning, labels=measure.labels)
    for *labels, value in connection.execute(text(measure.sql)):
        family.add_metric([str(label) for label in labels], float(value))
    return family


def _measure_index(connection: Connection, folder: Path) -> Iterator[Metric]:
    """Age of each saved index, and how much of the log a starting worker would have to replay."""
    age = GaugeMetricFamily(
        "vcl_index_age_seconds", "since when the saved index is as it is", labels=["index"]
    )
    behind = GaugeMetricFamily(
        "vcl_index_changes_behind", "changes of the log since it was saved", labels=["index"]
    )
    for facts in saved_indexes(folder):
        collection, fingerprint, _ = facts.key.split(".", 2)
        changes = count_changes(connection, collection, fingerprint, facts.seq, facts.stamp)
        made_at = datetime.fromisoformat(facts.made_at)
        age.add_metric([facts.key], max(0.0, (datetime.now(UTC) - made_at).total_seconds()))
        behind.add_metric([facts.key], changes)
    yield age
    yield behind


def _measure_queues(url: str) -> Metric:
    family = GaugeMetricFamily(
        "vcl_queue_messages", "messages in the broker that no worker has taken", labels=["queue"]
    )
    with kombu.Connection(url, transport_options={"socket_connect_timeout": 5}) as connection:
        transport = connection.transport
        errors = (*transport.connection_errors, *transport.channel_errors)
        for queue in Queue:
            try:
                declared = connection.default_channel.queue_declare(queue, passive=True)
            except transport.channel_errors:
                family.add_metric([queue], 0)  # an empty list does not exist
            except (*errors, OSError) as error:
                log.warning("the queue %s was not measured: %s", queue, error)
            else:
                family.add_metric([queue], declared.message_count)
    return family


def _measure_disk(settings: Settings) -> Iterator[Metric]:
    home = settings.home
    made = next(each for each in (home, *home.parents) if each.exists())
    yield GaugeMetricFamily(
        "vcl_disk_free_bytes",
        "free on the disk of the home folder",
        value=shutil.disk_usage(made).free,
    )
