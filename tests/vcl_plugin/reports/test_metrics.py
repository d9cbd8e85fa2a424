"""The plugin's measures: pace and latency come from the runs, so they survive every worker."""

from __future__ import annotations

from sqlalchemy import text

from retrieval.database import connect, transaction
from tests.vcl_plugin.world import METHOD, add_reference, add_upload, record, segment
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.reports.metrics import MEASURES

SQL = {measure.name: measure.sql for measure in MEASURES}


def test_pace_latency_and_claims_are_read_from_the_tables(database: str) -> None:
    with transaction(connect(database)) as connection:
        for number in range(12):
            name = f"film {number}"
            add_reference(connection, name, "Ana")
            add_upload(connection, f"upload {number}")
            record(connection, f"upload {number}", name, segment(0, 10))
            settle_claims(connection, f"upload {number}")
        connection.execute(text("UPDATE runs SET seconds = id"))
        connection.execute(
            text("UPDATE runs SET created_at = now() - interval '1 h', seconds = 900 WHERE id > 11")
        )

        def read(name: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in connection.execute(text(SQL[name]))]

        assert read("vcl_runs") == [(12,)]
        assert [round(float(pace), 3) for (pace,) in read("vcl_pairs_per_second")] == [0.183]
        assert read("vcl_localize_seconds") == [
            (METHOD.model, "0.5", 6.0),
            (METHOD.model, "0.95", 10.5),
            (METHOD.model, "0.99", 10.9),
        ]
        assert read("vcl_claims") == [("potential", 12)]


def test_a_site_that_compared_nothing_is_measured_too(database: str) -> None:
    with transaction(connect(database)) as connection:
        found = {name: connection.execute(text(sql)).all() for name, sql in SQL.items()}
    assert [tuple(row) for row in found["vcl_runs"]] == [(0,)]
    assert found["vcl_localize_seconds"] == []
