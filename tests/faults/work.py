"""Work whose outcome is known to the second, and the count of what became of it.

In: a site, and how many queries and references. Out: searches sent, and a `Count` of what is lost
and what is there twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
from celery import Celery

from retrieval.database import connect, transaction
from retrieval.plugins import Array
from tests.end_to_end.conftest import PATIENCE, Site, wait_until
from tests.faults.localizer import Mark, mark
from vcl_plugin.claims.assets import add_asset, add_reference

FINGERPRINT = "planted-1"
STORE = "store"  # in the home of a site
QUERY_SECONDS = 40
COPY_SECONDS = 12
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Count:
    """What became of the pairs. `lost` and `doubled` are what a rights system must not have."""

    pairs: int
    lost: int  # without their planted segment, or in a search that did not end
    doubled: int  # segments, claims or claim events beyond the one that should be
    quarantined: int
    repeated: int  # begun more than once: the price of a fault, without effect
    unearned: int  # searches that say `done` with a pair that was not compared


class Work:
    """Every query holds one piece of every reference, or of every n-th if `copied_every` says so;
    every reference belongs to an asset.

    The copy of query q in reference r is query [s, s+12) = reference [15q, 15q+12) with
    s = (q + r) mod 28, so a segment written for the wrong pair is seen.
    """

    def __init__(
        self,
        site: Site,
        queries: int,
        references: int,
        assets: int = 1,
        marks: dict[int, Mark] | None = None,
        copied_every: int = 1,
    ) -> None:
        self.site, self.marks, self.copied_every = site, marks or {}, copied_every
        self.name = f"work {next(_numbers)}"
        self.queries, self.references = queries, references
        self.assets = [f"{self.name} asset {number}" for number in range(assets)]
        self.searches: list[str] = []
        self._queries: list[int] = []  # of each search
        self.sender = Celery(broker=site.broker.url)
        self.sender.conf.task_ignore_result = True
        self._register()

    def query(self, number: int) -> str:
        return f"{self.name} query {number}"

    def reference(self, number: int) -> str:
        return f"{self.name} reference {number}"

    def send(self, queries: Collection[int] | None = None) -> list[str]:
        """Ask for a search of each query against every reference; returns the searches' ids."""
        asked = []
        for number in range(self.queries) if queries is None else queries:
            asked.append(f"{self.name} search {len(self.searches)}")
            self.searches.append(asked[-1])
            self._queries.append(number)
            self._send(asked[-1], number)
        return asked

    def send_unopened(self) -> None:
        """Again what no worker had taken: as long as it has no row, the caller has to."""
        known = self.ask("SELECT id FROM searches WHERE id = ANY(%s)", self.searches)
        opened = {row[0] for row in known}
        for search, number in zip(self.searches, self._queries, strict=True):
            if search not in opened:
                self._send(search, number)

    def _send(self, search: str, number: int) -> None:
        self.sender.send_task(
            "vcl_plugin.localize",
            kwargs={
                "query_id": self.query(number),
                "reference_ids": [self.reference(each) for each in range(self.references)],
                "search_id": search,
                "fingerprint": FINGERPRINT,
            },
            queue="localize",
        )

    def running(self) -> list[tuple[int, str]]:
        """Pairs in work at this moment, each with its holder."""
        return self.ask(
            "SELECT id, leased_by FROM pairs WHERE status = 'running' AND query_id LIKE %s",
            f"{self.name} query %",
        )

    def unfinished(self) -> set[int]:
        rows = self.ask(
            "SELECT id FROM pairs WHERE status IN ('waiting', 'running') AND query_id LIKE %s",
            f"{self.name} query %",
        )
        return {row[0] for row in rows}

    def wait(self, patience: float = PATIENCE) -> None:
        """Until every search came to an end."""
        wait_until(self.is_over, patience)

    def is_over(self) -> bool:
        return self._ended() == len(self.searches)

    def _ended(self) -> int:
        [(ended,)] = self.ask(
            "SELECT count(*) FROM searches WHERE id = ANY(%s) AND status IN"
            " ('done', 'incomplete', 'failed')",
            self.searches,
        )
        return int(ended)

    def left(self) -> int:
        """Pairs not finished yet; those of a search nobody has opened yet are among them."""
        [(finished,)] = self.ask(
            "SELECT count(*) FROM pairs WHERE query_id LIKE %s AND status IN"
            " ('done', 'quarantined')",
            f"{self.name} query %",
        )
        return self.queries * self.references - int(finished)

    def count(self) -> Count:
        truth = {
            (q, r, (q + r) % 28, 15 * q)
            for q in range(self.queries)
            for r in range(self.references)
            if self._is_found(r)
        }
        found = [
            (self._number(query), self._number(reference), int(at), int(where))
            for query, reference, at, where in self.ask(
                "SELECT segments.query_id, segments.reference_id, lower(query_span),"
                " lower(reference_span) FROM segments JOIN runs ON runs.id = run_id"
                " JOIN pairs ON pairs.id = pair_id"
                " WHERE segments.query_id LIKE %s AND pairs.status = 'done'",
                f"{self.name} query %",
            )
        ]
        [(unfinished,)] = self.ask(
            "SELECT count(*) FROM searches WHERE id = ANY(%s)"
            " AND (status NOT IN ('done', 'incomplete') OR pairs_left <> 0 OR pairs_total <> %s"
            # A clean bill for an upload of which a pair was not compared is the worst loss.
            " OR (status = 'done') = EXISTS (SELECT 1 FROM search_pairs"
            " JOIN pairs ON pairs.id = pair_id"
            " WHERE search_id = searches.id AND pairs.status <> 'done'))",
            self.searches,
            self.references,
        )
        [(quarantined, repeated)] = self.ask(
            "SELECT count(*) FILTER (WHERE status = 'quarantined'),"
            " count(*) FILTER (WHERE attempts > 1) FROM pairs WHERE query_id LIKE %s",
            f"{self.name} query %",
        )
        return Count(
            pairs=self.queries * self.references,
            lost=len(truth - set(found)) + int(unfinished) + self._claims_missing(),
            doubled=len(found) - len(truth & set(found)) + self._claims_doubled(),
            quarantined=int(quarantined),
            repeated=int(repeated),
            unearned=self._unearned(),
        )

    def _unearned(self) -> int:
        """Searches that say `done` without a result of each of their references."""
        [(unearned,)] = self.ask(
            "SELECT count(*) FROM searches WHERE id = ANY(%s) AND status = 'done' AND %s >"
            " (SELECT count(DISTINCT pairs.reference_id) FROM search_pairs"
            "  JOIN pairs ON pairs.id = search_pairs.pair_id JOIN runs ON runs.pair_id = pairs.id"
            "  WHERE search_id = searches.id AND pairs.status = 'done')",
            self.searches,
            self.references,
        )
        return int(unearned)

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Like `Site.sql`, and waits for a database that is away."""

        def asked() -> list[list[tuple[Any, ...]]]:
            try:
                return [self.site.sql(statement, *values)]
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                return []

        rows: list[tuple[Any, ...]] = wait_until(asked)[0]
        return rows

    def _claims_missing(self) -> int:
        """Claims that are not there, or do not hold all that was found for them."""
        wanted = {
            (asset, self.query(q)): (len(self._shown_in(number)), self._seconds(number, q))
            for number, asset in enumerate(self.assets)
            for q in range(self.queries)
            if self._shown_in(number)
        }
        rows = self.ask(
            "SELECT assets.title, claims.query_id, claims.segments, claims.seconds FROM claims"
            " JOIN assets ON assets.id = asset_id WHERE claims.query_id LIKE %s",
            f"{self.name} query %",
        )
        found = {(row[0], row[1]): (row[2], float(row[3])) for row in rows}
        return sum(found.get(key) != facts for key, facts in wanted.items())

    def _claims_doubled(self) -> int:
        """Claims of one upload on one asset beyond the first, and claims opened twice."""
        [(claims, distinct, opened)] = self.ask(
            "SELECT count(DISTINCT claims.id), count(DISTINCT (asset_id, query_id)),"
            " count(*) FILTER (WHERE from_status IS NULL) FROM claims"
            " LEFT JOIN claim_events ON claim_id = claims.id WHERE query_id LIKE %s",
            f"{self.name} query %",
        )
        return int(claims - distinct + opened - claims)

    def _shown_in(self, asset: int) -> list[int]:
        """The references of an asset that are to be found."""
        return [
            r for r in range(self.references) if r % len(self.assets) == asset and self._is_found(r)
        ]

    def _is_found(self, reference: int) -> bool:
        return reference % self.copied_every == 0 and reference not in self.marks

    def _seconds(self, asset: int, query: int) -> float:
        """Seconds of the query that show the asset, each counted once."""
        starts = [(query + r) % 28 for r in self._shown_in(asset)]
        return float(len({s + second for s in starts for second in range(COPY_SECONDS)}))

    @staticmethod
    def _number(name: str) -> int:
        return int(name.rsplit(" ", 1)[1])

    def _register(self) -> None:
        folder = self.site.home / STORE / self.name  # so that it is away when the store is
        folder.mkdir(mode=0o755, parents=True)
        generator = np.random.default_rng(9)
        queries = [_noise(generator, QUERY_SECONDS) for _ in range(self.queries)]
        for number, rows in enumerate(queries):
            self._send_registration(folder, self.query(number), rows)
        for number in range(self.references):
            rows = _noise(generator, 15 * self.queries)
            for q, query in enumerate(queries if number % self.copied_every == 0 else []):
                start = (q + number) % 28
                rows[15 * q : 15 * q + COPY_SECONDS] = query[start : start + COPY_SECONDS]
            if number in self.marks:
                rows = mark(rows, self.marks[number])
            self._send_registration(folder, self.reference(number), rows)
        wanted = self.queries + self.references
        wait_until(
            lambda: (
                self.ask(
                    "SELECT count(*) FROM videos WHERE id LIKE %s AND status = 'ready'",
                    f"{self.name} %",
                )
                == [(wanted,)]
            )
        )
        with transaction(connect(self.site.database_url)) as connection:
            ids = [add_asset(connection, f"{self.name} owner", title) for title in self.assets]
            for number in range(self.references):
                add_reference(connection, self.reference(number), ids[number % len(ids)])

    def _send_registration(self, folder: Path, video_id: str, rows: Array) -> None:
        path = folder / f"{video_id}.npy"
        np.save(path, rows)
        self.sender.send_task(
            "retrieval.register",
            kwargs={"video_id": video_id, "descriptors": str(path), "fingerprint": FINGERPRINT},
            queue="ingest",
        )


def _noise(generator: np.random.Generator, seconds: int) -> Array:
    rows = generator.standard_normal((seconds, 256))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
