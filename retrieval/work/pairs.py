"""Pairs: a query and a reference that are compared once by one method, whoever asks for it.

In: ranked candidates of a search. Out: rows in `pairs` and `search_pairs`.
Only modules of this room write these tables. Every function is one
step of the caller's transaction; a search is counted in the one that changes its pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from retrieval.records import Candidate, Pair, PairStatus, SearchStatus
from retrieval.work import leases, locks, searches
from retrieval.work.leases import Table


@dataclass(frozen=True)
class Method:
    """What decides a pair's segments besides its two videos: the rest of the pair's key."""

    model: str  # fingerprint of the localizer
    fingerprint: str  # of the descriptors it compares

    @property
    def settings_digest(self) -> str:
        return hashlib.sha256(self.fingerprint.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Place:
    """Where a search ranked the reference of a pair; None: no search names the pair."""

    rank: int | None
    score: float | None


@dataclass(frozen=True)
class SetAside:
    """A pair that a search goes on without."""

    reference_id: str
    reference: str  # its title
    attempts: int
    reason: str
    message: str


# For statements of others: when each pair was asked for last.
ASKED = "(SELECT id AS pair_id, asked_at FROM pairs)"
_COLUMNS = "id, query_id, reference_id, model, fingerprint, status, reason, message, attempts"


def list_compared(connection: Connection, reference_id: str, method: Method) -> set[str]:
    """The queries that were compared with a reference in that way, or wait for it."""
    found = connection.execute(
        text("""
        SELECT query_id FROM pairs WHERE reference_id = :reference AND model = :model
           AND settings_digest = :digest AND status NOT IN ('quarantined', 'cancelled')"""),
        {"reference": reference_id, "model": method.model, "digest": method.settings_digest},
    )
    return set(found.scalars())


def open_pairs(
    connection: Connection, search_id: str, candidates: Sequence[Candidate], method: Method
) -> list[str]:
    """Tie the candidates to the search; returns the references that still need localizing.

    A pair that an earlier search finished is not done again; one that was set aside or cancelled
    gets a new chance, because somebody asks for it again. A search that was cancelled meanwhile
    opens none. Each pair's row is locked, so a pair finishing at
    this moment is either seen as done here or counted down by its finisher.
    """
    query_id = candidates[0].query_id if candidates else ""
    # Two searches of one query would make its pairs in two orders, and wait for each other.
    locks.take(connection, locks.Lock.PAIRS, query_id)
    if searches.read_search(connection, search_id).status == SearchStatus.CANCELLED:
        return []
    facts = {
        "search": search_id,
        "query": query_id,
        "references": [each.reference_id for each in candidates],
        "ranks": [each.rank for each in candidates],
        "scores": [each.score for each in candidates],
        "model": method.model,
        "digest": method.settings_digest,
        "fingerprint": method.fingerprint,
    }
    connection.execute(
        text("""
        SELECT id FROM pairs WHERE query_id = :query AND reference_id = ANY(:references)
           AND model = :model AND settings_digest = :digest ORDER BY id FOR UPDATE"""),
        facts,
    )
    reopened = _reopen(connection, facts)
    rows = connection.execute(
        text("""
        WITH wanted AS (
            SELECT * FROM unnest(CAST(:references AS text[]), CAST(:ranks AS integer[]),
                                 CAST(:scores AS double precision[]))
                     AS wanted (reference_id, rank, score)
        ), opened AS (
            INSERT INTO pairs (query_id, reference_id, model, settings_digest, fingerprint, sent_at)
            SELECT :query, reference_id, :model, :digest, :fingerprint, now() FROM wanted
            ON CONFLICT (query_id, reference_id, model, settings_digest)
            DO UPDATE SET fingerprint = excluded.fingerprint, asked_at = clock_timestamp()
            RETURNING id, reference_id, status
        ), linked AS (
            INSERT INTO search_pairs (search_id, pair_id, rank, score)
            SELECT :search, opened.id, wanted.rank, wanted.score
            FROM opened JOIN wanted USING (reference_id)
            ON CONFLICT DO NOTHING RETURNING pair_id
        )
        SELECT opened.id, opened.reference_id, opened.status,
               linked.pair_id IS NOT NULL AS is_new
        FROM opened JOIN wanted USING (reference_id)
        LEFT JOIN linked ON linked.pair_id = opened.id ORDER BY wanted.rank"""),
        facts,
    ).all()
    is_open = {row.id for row in rows if PairStatus(row.status).is_open}
    searches.count_up(connection, reopened, except_for=search_id)
    searches.count_opened(
        connection,
        search_id,
        total=sum(row.is_new for row in rows),
        left=sum(row.id in is_open and (row.is_new or row.id in reopened) for row in rows),
    )
    return [row.reference_id for row in rows if row.status == PairStatus.WAITING]


def _reopen(connection: Connection, facts: dict[str, Any]) -> set[int]:
    """Let the wanted pairs that were set aside or cancelled wait again; returns their ids."""
    rows = connection.execute(
        text("""
        UPDATE pairs SET status = 'waiting', attempts = 0, reason = NULL, message = NULL,
               finished_at = NULL, sent_at = now()
        WHERE query_id = :query AND reference_id = ANY(:references) AND model = :model
          AND settings_digest = :digest AND status IN ('quarantined', 'cancelled')
        RETURNING id"""),
        facts,
    )
    return {row.id for row in rows}


def retry_pairs(
    connection: Connection, reason: str | None = None, search_id: str | None = None
) -> int:
    """Let pairs that were set aside wait again, and the searches that ended without them.

    All of them, or those with that reason, or of that search; the sweeper sends them.
    """
    rows = connection.execute(
        text("""
        UPDATE pairs SET status = 'waiting', attempts = 0, reason = NULL, message = NULL,
               finished_at = NULL, sent_at = NULL
        WHERE id IN (
            SELECT id FROM pairs
            WHERE status = 'quarantined' AND reason = coalesce(:reason, reason)
              AND (CAST(:search AS text) IS NULL
                   OR id IN (SELECT pair_id FROM search_pairs WHERE search_id = :search))
            ORDER BY id FOR UPDATE)
        RETURNING id"""),
        {"reason": reason, "search": search_id},
    )
    reopened = list(rows.scalars())
    searches.count_up(connection, reopened)
    return len(reopened)


def count_pairs(connection: Connection, search_id: str, reference_ids: Sequence[str]) -> int:
    """How many of the references this search has a pair with."""
    found = connection.execute(
        text("""
        SELECT count(*) FROM search_pairs JOIN pairs ON pairs.id = search_pairs.pair_id
        WHERE search_pairs.search_id = :search AND pairs.reference_id = ANY(:references)"""),
        {"search": search_id, "references": list(reference_ids)},
    ).scalar_one()
    return int(found)


def finish_pair(connection: Connection, pair_id: int, holder: str) -> None:
    """Mark a pair done and count down every search that waits for it."""
    changed = connection.execute(
        text("""
        UPDATE pairs SET status = 'done', finished_at = now(), leased_by = NULL,
               lease_until = NULL, reason = NULL, message = NULL
        WHERE id = :id AND leased_by = :holder"""),
        {"id": pair_id, "holder": holder},
    )
    if changed.rowcount:
        searches.count_down(connection, [pair_id])


def quarantine_pair(
    connection: Connection, pair_id: int, holder: str, code: str, message: str
) -> None:
    """Set a pair aside with its reason; the searches that wait for it go on without it.

    A holder who lost the lease changes nothing: what another makes of the pair is worth more.
    """
    changed = connection.execute(
        text("""
        UPDATE pairs SET status = 'quarantined', finished_at = now(), leased_by = NULL,
               lease_until = NULL, reason = :code, message = :message
        WHERE id = :id AND leased_by = :holder AND status = 'running'"""),
        {"id": pair_id, "holder": holder, "code": code, "message": message},
    )
    if changed.rowcount:
        searches.count_down(connection, [pair_id])


def lease_pairs(
    connection: Connection,
    query_id: str,
    reference_ids: Sequence[str],
    model: str,
    holder: str,
    seconds: float,
    max_attempts: int,
) -> list[Pair]:
    """Take those of the query's pairs with these references that wait for this localizer,
    whatever descriptors they compare."""
    rows = connection.execute(
        text(f"""
        SELECT {_COLUMNS} FROM pairs
        WHERE query_id = :query AND reference_id = ANY(:references) AND model = :model
          AND status IN ('waiting', 'running') ORDER BY id"""),
        {"query": query_id, "references": list(reference_ids), "model": model},
    )
    known = {row["id"]: row for row in rows.mappings()}
    taken = leases.acquire(connection, Table.PAIRS, list(known), holder, seconds, max_attempts)
    return [_as_pair(known[each], is_leased=True) for each in taken]


def read_pair(connection: Connection, pair_id: int) -> Pair:
    row = connection.execute(
        text(f"SELECT {_COLUMNS} FROM pairs WHERE id = :id"), {"id": pair_id}
    ).mappings()
    return _as_pair(row.one())


def find_newest(connection: Connection, query_id: str, reference_id: str) -> Pair | None:
    """The pair of the two that was asked for last, by whatever method."""
    row = (
        connection.execute(
            text(f"""
            SELECT {_COLUMNS} FROM pairs
            WHERE query_id = :query AND reference_id = :reference
            ORDER BY asked_at DESC, id DESC LIMIT 1"""),
            {"query": query_id, "reference": reference_id},
        )
        .mappings()
        .first()
    )
    return None if row is None else _as_pair(row)


def find_place(connection: Connection, pair_id: int) -> Place:
    """The best rank that any search gave the pair."""
    row = connection.execute(
        text("SELECT rank, score FROM search_pairs WHERE pair_id = :id ORDER BY rank LIMIT 1"),
        {"id": pair_id},
    ).first()
    return Place(None, None) if row is None else Place(row.rank, row.score)


def read_quarantined(connection: Connection, search_id: str) -> list[SetAside]:
    """The pairs of a search that were set aside, and why."""
    rows = connection.execute(
        text("""
        SELECT pairs.reference_id, videos.title AS reference, pairs.attempts, pairs.reason,
               pairs.message
        FROM search_pairs
        JOIN pairs ON pairs.id = search_pairs.pair_id AND pairs.status = 'quarantined'
        JOIN videos ON videos.id = pairs.reference_id
        WHERE search_pairs.search_id = :search ORDER BY search_pairs.rank"""),
        {"search": search_id},
    )
    return [SetAside(**row) for row in rows.mappings()]


def _as_pair(row: RowMapping, is_leased: bool = False) -> Pair:
    """The row as it was read, or as the lease that was taken since has left it."""
    status = PairStatus.RUNNING if is_leased else PairStatus(row["status"])
    return Pair(**{**row, "status": status, "attempts": row["attempts"] + is_leased})
