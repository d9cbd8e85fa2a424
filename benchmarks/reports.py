"""How fast the SQL reports answer at a million segments and a hundred thousand claims.

Run: python benchmarks/reports.py [--segments 1000000] [--plans]

The rows are generated inside the embedded PostgreSQL, of the shape that settlement writes: uploads
with one claim and with two, and conflicts between references. Every report is read as `vcl report`
reads it (first 1000 rows), warm, beside a plain count of the same million segments as the yardstick
of this machine. `--plans` adds what the server does for each.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, text

from retrieval.database import connect, migrate, transaction
from retrieval.services import ensure_services, stop_services
from retrieval.settings import Settings
from retrieval.site.metrics import MEASURES, SiteCollector
from vcl_plugin.claims.claims import list_claims
from vcl_plugin.claims.policies import Policy, Rule
from vcl_plugin.claims.rehearsal import rehearse_policy
from vcl_plugin.reports.metrics import MEASURES as PLUGIN_MEASURES
from vcl_plugin.reports.reports import REPORTS, compose_query, read_report

EVERY_MEASURE = (*MEASURES, *PLUGIN_MEASURES)

FILL = """
INSERT INTO owners (name) SELECT 'owner ' || n FROM generate_series(1, 200) AS n;
INSERT INTO assets (owner_id, title) SELECT 1 + n % 200, 'asset ' || n
    FROM generate_series(1, 5000) AS n;
INSERT INTO asset_owners (asset_id, owner_id, territory, share)
    SELECT id, owner_id, 'WW', 100 FROM assets;
INSERT INTO videos (id, title, duration, status, is_reference)
    SELECT 'r' || n, 'reference ' || n, 600, 'ready', true FROM generate_series(1, 10000) AS n;
INSERT INTO reference_videos (video_id, asset_id)
    SELECT 'r' || n, 1 + (n - 1) % 5000 FROM generate_series(1, 10000) AS n;
INSERT INTO videos (id, title, duration, status)
    SELECT 'u' || n, 'upload ' || n, 900, 'ready' FROM generate_series(1, :claims) AS n;
-- One content of ten was uploaded by three people.
INSERT INTO uploads (query_id, uploader)
    SELECT 'u' || n, 'uploader ' || (n + k) % 3000 FROM generate_series(1, :claims) AS n
    CROSS JOIN generate_series(0, CASE WHEN n % 10 = 0 THEN 2 ELSE 0 END) AS k;
INSERT INTO searches (id, query_id, status, pairs_total, created_at, finished_at)
    SELECT 's' || n, 'u' || n, 'done', 20, now() - n * interval '1 minute',
           now() - n * interval '1 minute' + (1 + n % 30) * interval '1 second'
    FROM generate_series(1, :claims) AS n;
-- Of four claims two are on one upload, of one owner; in every other such upload they meet in time.
CREATE TEMPORARY TABLE planned ON COMMIT DROP AS
    SELECT n, 'u' || (n - (n % 4) / 3) AS upload, 1 + (n + (n % 4) / 3 * 199) % 5000 AS asset,
           (ARRAY[0, 0, 0, 300, 0, 0, 0, 15])[1 + n % 8] AS later
    FROM generate_series(1, :claims) AS n;
INSERT INTO pairs (query_id, reference_id, model, settings_digest, fingerprint, status, reason)
    SELECT upload, 'r' || (asset + n % 2 * 5000), 'm', 'd', 'f',
           CASE WHEN n % 500 = 0 THEN 'quarantined' ELSE 'done' END,
           CASE WHEN n % 500 = 0 THEN 'attempts_exhausted' END
    FROM planned ORDER BY n;
INSERT INTO runs (pair_id, localizer, worker, seconds) SELECT id, 'm', 'w', 0.1 FROM pairs
    ORDER BY id;
INSERT INTO claims (asset_id, query_id, status, created_at)
    SELECT asset, upload,
           (ARRAY['potential', 'active', 'active', 'disputed', 'upheld', 'released'])[1 + n % 6],
           now() - n * interval '1 minute'
    FROM planned ORDER BY n;
INSERT INTO claim_events (claim_id, at, actor, to_status)
    SELECT id, created_at, 'engine', 'potential' FROM claims ORDER BY id;
-- A fresh database counts from one, so a claim's pair and run have its number.
INSERT INTO segments (run_id, claim_id, query_id, reference_id, query_span, reference_span, score,
                      is_reversed, speed, held, created_at)
    SELECT runs.id, CASE WHEN k <> 9 THEN claims.id END, pairs.query_id, pairs.reference_id,
           numrange(later + 30 * k, later + 30 * k + 20 + k), numrange(20 * k, 20 * k + 20 + k),
           0.3 + 0.07 * k, k = 3, CASE k WHEN 4 THEN 1.5 WHEN 5 THEN 0.5 ELSE 1 END,
           CASE WHEN k = 9 THEN 'shared_footage' END, claims.created_at
    FROM planned
    JOIN pairs ON pairs.id = planned.n
    JOIN runs ON runs.pair_id = pairs.id
    JOIN claims ON claims.id = planned.n
    CROSS JOIN generate_series(0, :each - 1) AS k;
-- Footage that each reference shares with one of another owner.
INSERT INTO segments (run_id, query_id, reference_id, query_span, reference_span, score,
                      is_reversed, speed, held)
    SELECT n, 'r' || n, 'r' || (1 + n % 10000), numrange(10, 30), numrange(40, 60), 0.9, false, 1,
           'reference'
    FROM generate_series(1, least(10000, :claims)) AS n;
UPDATE claims SET query_spans = found.spans, segments = found.segments, score = found.score,
       seconds = covered_seconds(found.spans), last_found_at = claims.created_at
    FROM (SELECT claim_id, range_agg(query_span) AS spans, count(*) AS segments,
                 max(score) AS score
          FROM segments WHERE claim_id IS NOT NULL GROUP BY claim_id) AS found
    WHERE found.claim_id = claims.id;
UPDATE claims SET meets_another = true
    WHERE EXISTS (SELECT 1 FROM claims AS other
                  WHERE other.query_id = claims.query_id AND other.id <> claims.id
                    AND other.query_spans && claims.query_spans);
INSERT INTO claim_uploads (claim_id, upload_id)
    SELECT claims.id, uploads.id FROM claims JOIN uploads USING (query_id);
UPDATE claims SET upload_id = named.first, uploads = named.uploads
    FROM (SELECT claim_id, min(upload_id) AS first, count(*) AS uploads
          FROM claim_uploads GROUP BY claim_id) AS named
    WHERE named.claim_id = claims.id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--plans", action="store_true", help="print the plan of each report")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        settings = Settings(home=Path(folder) / "home")
        database = connect(ensure_services(settings).database_url)
        try:
            migrate(database.url.render_as_string(hide_password=False))
            with transaction(database) as connection:
                for statement in FILL.split(";\n"):
                    values = {"claims": arguments.segments // 10, "each": 10}
                    wanted = {key: value for key, value in values.items() if f":{key}" in statement}
                    connection.execute(text(statement), wanted)
            with database.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.execute(text("VACUUM ANALYZE"))
            with transaction(database) as connection:
                report(connection, arguments.plans)
            url = database.url.render_as_string(hide_password=False)
            site = SiteCollector(Settings(home=settings.home, database_url=url), EVERY_MEASURE)
            print(f"{'scrape of the metrics':32} {_time(lambda: list(site.collect())):7.1f} ms")
            database.dispose()
        finally:
            stop_services(settings)


def report(connection: Connection, plans: bool) -> None:
    count = text("SELECT count(*) FROM segments")
    print(f"{connection.execute(count).scalar():,} segments")
    yardstick = _time(lambda: connection.execute(count).scalar())
    print(f"{'count of all segments':32} {yardstick:7.1f} ms")
    for name in REPORTS:
        taken = _time(partial(read_report, connection, name, limit=1000))
        print(f"{name:32} {taken:7.1f} ms   {taken / yardstick:5.2f} of the count")
        if plans:
            print(_explain(connection, name))
    taken = _time(lambda: list_claims(connection, status="potential", limit=100))
    print(f"{'list of 100 open claims':32} {taken:7.1f} ms")
    policy = Policy("strict", (Rule("block", min_seconds=60),))
    taken = _time(lambda: rehearse_policy(connection, policy, owner="owner 7"))
    print(f"{'policy dry-run for an owner':32} {taken:7.1f} ms")


def _explain(connection: Connection, name: str) -> str:
    """The plan's nodes and the rows that each gave, without what differs from run to run."""
    query, _ = compose_query(connection, name, limit=1000)
    options = "ANALYZE, COSTS OFF, TIMING OFF, BUFFERS OFF, SUMMARY OFF"
    lines = connection.execute(text(f"EXPLAIN ({options}) {query}")).scalars()
    node = re.compile(r"^( *)(?:->  )?(.+?) \(actual rows=([\d.]+) loops=(\d+)\)")
    shape = []
    for found in filter(None, map(node.match, lines)):
        depth = (len(found[1]) + 4) // 6
        shape.append(f"    {'  ' * depth}{found[2]}: {float(found[3]) * int(found[4]):,.0f} rows")
    return "\n".join(shape)


def _time(work: Callable[[], object]) -> float:
    """Milliseconds, the median of five after one that warms up."""
    times = []
    for _ in range(6):
        started = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
