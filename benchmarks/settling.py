"""How long recording waits while uploads are settled under a changed policy.

Run: python benchmarks/settling.py [--uploads 100000] [--seconds 600]

Uploads with a claim each are generated inside the embedded PostgreSQL, in the shape that settlement
writes. Then the default policy, which all of them follow, gets new rules, as `vcl policy add` does
it; meanwhile another thread records and settles matches, as a worker does, one after the other, and
measures each, with the search that finds it: in turn of a new upload, and of one that is being
settled and waits for its batch. After `--seconds` the settling is left where it is: how long
recording waits does not depend on how many uploads are left. At the end one upload of 2 000
overlapping segments, found by two comparisons, is settled again.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from retrieval.database import connect, migrate, transaction
from retrieval.records import Candidate, Segment, Span
from retrieval.services import ensure_services, stop_services
from retrieval.settings import Settings
from retrieval.work import catalogue, pairs, searches
from vcl_plugin.claims import rights
from vcl_plugin.claims.changes import note_change, settle_change
from vcl_plugin.claims.policies import Policy, Rule
from vcl_plugin.claims.segments import Outcome, record_segments
from vcl_plugin.claims.settlement import settle_claims

ASSETS = 500
NEW, SETTLED = "a new upload", "an upload that is being settled"

FILL = """
INSERT INTO owners (name) SELECT 'owner ' || n FROM generate_series(1, 50) AS n;
INSERT INTO assets (owner_id, title) SELECT 1 + n % 50, 'asset ' || n
    FROM generate_series(1, :assets) AS n;
INSERT INTO asset_owners (asset_id, owner_id, territory, share)
    SELECT id, owner_id, 'WW', 100 FROM assets;
INSERT INTO videos (id, title, duration, status, is_reference)
    SELECT 'r' || n, 'reference ' || n, 600, 'ready', true FROM generate_series(1, :assets) AS n;
INSERT INTO reference_videos (video_id, asset_id)
    SELECT 'r' || n, n FROM generate_series(1, :assets) AS n;
INSERT INTO videos (id, title, duration, status)
    SELECT 'u' || n, 'upload ' || n, 900, 'ready' FROM generate_series(1, :uploads) AS n;
INSERT INTO uploads (query_id, uploader)
    SELECT 'u' || n, 'uploader ' || n % 1000 FROM generate_series(1, :uploads) AS n;
INSERT INTO pairs (query_id, reference_id, model, settings_digest, fingerprint, status)
    SELECT 'u' || n, 'r' || (1 + n % :assets), 'm', 'd', 'f', 'done'
    FROM generate_series(1, :uploads) AS n ORDER BY n;
INSERT INTO runs (pair_id, localizer, worker, seconds) SELECT id, 'm', 'w', 0.1 FROM pairs
    ORDER BY id;
INSERT INTO claims (asset_id, query_id, status, policy_id)
    SELECT 1 + n % :assets, 'u' || n, 'potential', 1 FROM generate_series(1, :uploads) AS n;
INSERT INTO claim_uploads (claim_id, upload_id)
    SELECT claims.id, uploads.id FROM claims JOIN uploads USING (query_id);
UPDATE claims SET upload_id = claim_uploads.upload_id, uploads = 1 FROM claim_uploads
    WHERE claim_id = claims.id;
INSERT INTO claim_events (claim_id, actor, to_status)
    SELECT id, 'engine', 'potential' FROM claims ORDER BY id;
INSERT INTO claim_territories (claim_id, territory, action, policy_id, policy_version)
    SELECT id, 'WW', 'review', 1, 1 FROM claims;
INSERT INTO segments (run_id, claim_id, query_id, reference_id, query_span, reference_span, score,
                      is_reversed, speed)
    SELECT runs.id, claims.id, claims.query_id, pairs.reference_id,
           numrange(60 * k, 60 * k + 30), numrange(40 * k, 40 * k + 30), 0.9, false, 1
    FROM claims JOIN pairs ON pairs.query_id = claims.query_id JOIN runs ON pair_id = pairs.id
    CROSS JOIN generate_series(0, 2) AS k;
"""


class Recorder(threading.Thread):
    """Records matches until it is told to stop; keeps how long each took, by kind of upload."""

    def __init__(self, database: Engine) -> None:
        super().__init__()
        self.database = database
        self.took: dict[str, list[float]] = {NEW: [], SETTLED: []}
        self.is_stopping = threading.Event()

    def run(self) -> None:
        for number in itertools.count():
            if self.is_stopping.is_set():
                return
            reference = f"r{1 + number % ASSETS}"
            with transaction(self.database) as connection:
                known = find_next(connection) if number % 2 else None
            name = known or f"new {self.name} {number}"
            started = time.monotonic()
            with transaction(self.database) as connection:
                pair = open_pair(connection, name, reference, pairs.Method(f"m{number}", "f"))
            with transaction(self.database) as connection:
                record(connection, pair, [Segment(Span(0, 30), Span(5, 35), 0.9)])
                settle_claims(connection, name)
            self.took[SETTLED if known else NEW].append(time.monotonic() - started)


def find_next(connection: Connection) -> str | None:
    """The first upload of the batch that is being settled now, if any is."""
    found = connection.execute(
        text("""
        SELECT videos.id FROM rule_changes JOIN videos ON videos.id > settled_to
        WHERE settled_at IS NULL AND NOT is_reference ORDER BY videos.id LIMIT 1""")
    )
    return found.scalar()


def open_pair(
    connection: Connection, query: str, reference: str, method: pairs.Method
) -> pairs.Pair:
    catalogue.register_foreign(connection, query, None, duration=900.0)
    search = searches.create_search(connection, query)
    pairs.open_pairs(connection, search, [Candidate(query, reference, 1, 0.5)], method)
    found = text("SELECT max(id) FROM pairs WHERE query_id = :query")
    return pairs.read_pair(connection, connection.execute(found, {"query": query}).scalar_one())


def record(connection: Connection, pair: pairs.Pair, found: list[Segment]) -> None:
    record_segments(connection, pair, Outcome(found, [False] * len(found), "m", "w", 0.1))


class Enough(Exception):
    """The time for the measurement is over."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uploads", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="settle no longer than that")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        settings = Settings(home=Path(folder) / "home")
        database = connect(ensure_services(settings).database_url)
        try:
            migrate(database.url.render_as_string(hide_password=False))
            fill(database, arguments.uploads)
            measure_recording(database, arguments.seconds)
            measure_long_upload(database)
        finally:
            database.dispose()
            stop_services(settings)


def fill(database: Engine, uploads: int) -> None:
    with transaction(database) as connection:
        for statement in FILL.split(";\n"):
            values = {"assets": ASSETS, "uploads": uploads}
            wanted = {key: value for key, value in values.items() if f":{key}" in statement}
            if statement.strip():
                connection.execute(text(statement), wanted)
    with database.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))


def measure_recording(database: Engine, seconds: float) -> None:
    before = watch(database, lambda: time.sleep(10))
    settled = of_all = 0
    started = time.monotonic()

    def settle() -> None:
        def report(done: int, total: int) -> None:
            nonlocal settled, of_all
            settled, of_all = done, total
            if time.monotonic() - started > seconds:
                raise Enough

        with transaction(database) as connection:
            rights.add_policy(connection, Policy("default", (Rule("block", 5),)), "ana")
            followers = rights.list_followers(connection, "default")
            change = note_change(connection, "ana", "wrote a policy", followers)
        print(f"the rule is written after {time.monotonic() - started:.2f} s")
        try:
            settle_change(database, change, report)
        except Enough:
            print(f"stopped after {seconds:g} s")

    meanwhile = watch(database, settle)
    took = time.monotonic() - started
    print(f"settled {settled} of {of_all} uploads in {took:.0f} s, {settled / took:.0f} a second")
    print(
        "\n| a match is recorded | matches | median | 99 of 100 | longest |\n|---|---|---|---|---|"
    )
    describe(f"of {NEW}, alone", before[NEW])
    describe(f"of {NEW}, while others are settled", meanwhile[NEW])
    describe(f"of {SETTLED}", meanwhile[SETTLED])


def describe(name: str, times: list[float]) -> None:
    if len(times) > 1:
        values = statistics.median(times), _slow(times), max(times)
        print(
            f"| {name} | {len(times)} | " + " | ".join(f"{1000 * t:.0f} ms" for t in values) + " |"
        )


def _slow(times: list[float]) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def watch(database: Engine, work: Callable[[], None]) -> dict[str, list[float]]:
    """How long each recording took while `work` was done."""
    recorder = Recorder(database)
    recorder.start()
    try:
        work()
    finally:
        recorder.is_stopping.set()
        recorder.join()
    return recorder.took


def measure_long_upload(database: Engine) -> None:
    found = [Segment(Span(i * 0.04, i * 0.04 + 50), Span(10, 60), 0.9) for i in range(1000)]
    with transaction(database) as connection:
        for model in ("m", "n"):
            record(connection, open_pair(connection, "long", "r1", pairs.Method(model, "f")), found)
        settle_claims(connection, "long")
        started = time.monotonic()
        settle_claims(connection, "long")
        took = time.monotonic() - started
    print(f"\nan upload with 2000 segments is settled again in {took:.2f} s")


if __name__ == "__main__":
    main()
