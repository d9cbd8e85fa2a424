"""The life of a search: asked for, planned into pairs, counted down, done.

In: a query and its ranked candidates. Out: rows in `searches`, `pairs`, `search_pairs`.
Called by the engine (to plan) and by whoever finishes a pair. Every function takes a connection
and is one step of the caller's transaction, so a result and its count are written together.
"""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction
from retrieval.errors import NotFound, Refused, ServiceUnavailable
from retrieval.records import Candidate
from retrieval.work import locks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Method:
    """What decides a pair's segments besides its two videos: the rest of the pair's key."""

    model: str  # fingerprint of the localizer
    fingerprint: str  # of the descriptors it compares

    @property
    def settings_digest(self) -> str:
        return hashlib.sha256(self.fingerprint.encode()).hexdigest()[:12]


def create_search(connection: Connection, query_id: str, search_id: str | None = None) -> str:
    """A search that waits to be planned. An id that exists already is the same search."""
    new_id = search_id or str(uuid.uuid4())
    connection.execute(
        text("""
        INSERT INTO searches (id, query_id, sent_at) VALUES (:id, :query, now())
        ON CONFLICT (id) DO NOTHING"""),
        {"id": new_id, "query": query_id},
    )
    found = connection.execute(
        text("SELECT query_id FROM searches WHERE id = :id"), {"id": new_id}
    ).scalar_one()
    if found != query_id:
        raise Refused(
            f"search {new_id} already looks for {found!r}; give {query_id!r} an id of its own"
        )
    return new_id


def was_searched_as_reference(connection: Connection, reference_id: str) -> bool:
    """Whether it was searched since it entered the index of references.

    A search from the time when it was an upload says nothing of the references that came since.
    """
    found = connection.execute(
        text("""
        SELECT EXISTS (
            SELECT 1 FROM searches WHERE query_id = :reference AND created_at >= coalesce(
                (SELECT max(created_at) FROM index_changes WHERE video_id = :reference
                    AND collection = 'references' AND action = 'add'), '-infinity'))"""),
        {"reference": reference_id},
    )
    return bool(found.scalar_one())


def list_searched(connection: Connection, query_ids: Sequence[str]) -> set[str]:
    """Those of the videos that were searched and of whose searches none is under way.

    Of a reference, searches from before it was one do not count.
    """
    found = connection.execute(
        text("""
        WITH entered AS (
            SELECT video_id, max(created_at) AS at FROM index_changes
            WHERE video_id = ANY(:queries) AND collection = 'references' AND action = 'add'
            GROUP BY video_id)
        SELECT query_id FROM searches LEFT JOIN entered ON entered.video_id = query_id
        WHERE query_id = ANY(:queries) GROUP BY query_id
        HAVING bool_and(status IN ('done', 'failed'))
           AND max(searches.created_at) >= coalesce(max(entered.at), '-infinity')"""),
        {"queries": list(query_ids)},
    )
    return set(found.scalars())


def list_compared(connection: Connection, reference_id: str, method: Method) -> set[str]:
    """The queries that were compared with a reference in that way, or wait for it."""
    found = connection.execute(
        text("""
        SELECT query_id FROM pairs WHERE reference_id = :reference AND model = :model
           AND settings_digest = :digest AND status <> 'quarantined'"""),
        {"reference": reference_id, "model": method.model, "digest": method.settings_digest},
    )
    return set(found.scalars())


def open_pairs(
    connection: Connection, search_id: str, pairs: Sequence[Candidate], method: Method
) -> list[str]:
    """Tie the candidates to the search; returns the references that still need localizing.

    A pair that an earlier search finished is not done again; one that was set aside gets a new
    chance, because somebody asks for it again. Each pair's row is locked, so a pair finishing at
    this moment is either seen as done here or counted down by its finisher.
    """
    query_id = pairs[0].query_id if pairs else ""
    facts = {
        "search": search_id,
        "query": query_id,
        "references": [pair.reference_id for pair in pairs],
        "ranks": [pair.rank for pair in pairs],
        "scores": [pair.score for pair in pairs],
        "model": method.model,
        "digest": method.settings_digest,
        "fingerprint": method.fingerprint,
    }
    # Two searches of one query would make its pairs in two orders, and wait for each other.
    locks.take(connection, locks.Lock.OPEN_PAIRS, query_id)
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
            DO UPDATE SET fingerprint = excluded.fingerprint
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
    is_open = {row.id for row in rows if row.status in ("waiting", "running")}
    _count_up(connection, reopened, except_for=search_id)
    connection.execute(
        text("""
        UPDATE searches SET pairs_total = pairs_total + :total, pairs_left = pairs_left + :left,
               leased_by = NULL, lease_until = NULL,
               reason = CASE WHEN status <> 'failed' THEN reason END,
               message = CASE WHEN status <> 'failed' THEN message END,
               status = CASE WHEN pairs_left + :left = 0 THEN 'done' ELSE 'localizing' END,
               finished_at = CASE WHEN pairs_left + :left = 0 THEN now() END
        WHERE id = :id"""),
        {
            "id": search_id,
            "total": sum(row.is_new for row in rows),
            "left": sum(row.id in is_open and (row.is_new or row.id in reopened) for row in rows),
        },
    )
    return [row.reference_id for row in rows if row.status == "waiting"]


def _reopen(connection: Connection, facts: dict[str, Any]) -> set[int]:
    """Let the wanted pairs that were set aside wait again; returns their ids."""
    rows = connection.execute(
        text("""
        UPDATE pairs SET status = 'waiting', attempts = 0, reason = NULL, message = NULL,
               finished_at = NULL, sent_at = now()
        WHERE query_id = :query AND reference_id = ANY(:references) AND model = :model
          AND settings_digest = :digest AND status = 'quarantined'
        RETURNING id"""),
        facts,
    )
    return {row.id for row in rows}


def _count_up(connection: Connection, pair_ids: Collection[int], except_for: str) -> None:
    """Searches under way that had counted these pairs down wait for them again."""
    if not pair_ids:
        return
    _lock_waiting(connection, pair_ids)
    connection.execute(
        text("""
        UPDATE searches SET pairs_left = pairs_left + reopened.pairs
        FROM (SELECT search_id, count(*) AS pairs FROM search_pairs
              WHERE pair_id = ANY(:pairs) GROUP BY search_id) AS reopened
        WHERE searches.id = reopened.search_id AND searches.status = 'localizing'
          AND searches.id <> :search"""),
        {"pairs": list(pair_ids), "search": except_for},
    )


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
        count_down(connection, [pair_id])


def quarantine_pair(connection: Connection, pair_id: int, code: str, message: str) -> None:
    """Set a pair aside with its reason; the searches that wait for it go on without it."""
    changed = connection.execute(
        text("""
        UPDATE pairs SET status = 'quarantined', finished_at = now(), leased_by = NULL,
               lease_until = NULL, reason = :code, message = :message
        WHERE id = :id AND status IN ('waiting', 'running')"""),
        {"id": pair_id, "code": code, "message": message},
    )
    if changed.rowcount:
        count_down(connection, [pair_id])


def count_down(connection: Connection, pair_ids: Collection[int]) -> None:
    """Subtract finished pairs from their searches; a search at zero is done."""
    if not pair_ids:
        return
    _lock_waiting(connection, pair_ids)
    connection.execute(
        text("""
        UPDATE searches SET pairs_left = pairs_left - finished.pairs,
               status = CASE WHEN pairs_left = finished.pairs THEN 'done' ELSE status END,
               finished_at = CASE WHEN pairs_left = finished.pairs THEN now() END
        FROM (SELECT search_id, count(*) AS pairs FROM search_pairs
              WHERE pair_id = ANY(:pairs) GROUP BY search_id) AS finished
        WHERE searches.id = finished.search_id AND searches.status = 'localizing'"""),
        {"pairs": list(pair_ids)},
    )


def _lock_waiting(connection: Connection, pair_ids: Collection[int]) -> None:
    """Lock the searches that wait for these pairs, in one order for all who count."""
    connection.execute(
        text("""
        SELECT id FROM searches WHERE status = 'localizing'
           AND id IN (SELECT search_id FROM search_pairs WHERE pair_id = ANY(:pairs))
        ORDER BY id FOR UPDATE"""),
        {"pairs": list(pair_ids)},
    )


def recount(connection: Connection) -> int:
    """Set every open search's count to what its pairs say; returns how many were wrong.

    The counts cannot drift while both are written in one transaction; this holds after a restore
    from a backup or a repair by hand.
    """
    changed = connection.execute(
        text("""
        UPDATE searches SET pairs_left = truth.pairs,
               status = CASE WHEN truth.pairs = 0 THEN 'done' ELSE status END,
               finished_at = CASE WHEN truth.pairs = 0 THEN now() END
        FROM (SELECT searches.id,
                     count(pairs.id) FILTER (WHERE pairs.status IN ('waiting', 'running')) AS pairs
              FROM searches
              LEFT JOIN search_pairs ON search_pairs.search_id = searches.id
              LEFT JOIN pairs ON pairs.id = search_pairs.pair_id
              WHERE searches.status = 'localizing' GROUP BY searches.id) AS truth
        WHERE searches.id = truth.id AND searches.status = 'localizing'
          AND (searches.pairs_left <> truth.pairs OR truth.pairs = 0)""")
    )
    return changed.rowcount


def fail_search(connection: Connection, search_id: str, code: str, message: str) -> None:
    connection.execute(
        text("""
        UPDATE searches SET status = 'failed', reason = :code, message = :message,
               finished_at = now(), leased_by = NULL, lease_until = NULL
        WHERE id = :id AND status IN ('waiting', 'running')"""),
        {"id": search_id, "code": code, "message": message},
    )


def annotate_search(connection: Connection, search_id: str, code: str, message: str) -> None:
    """A remark on a search that goes on all the same."""
    connection.execute(
        text("UPDATE searches SET reason = :code, message = :message WHERE id = :id"),
        {"id": search_id, "code": code, "message": message},
    )


def read_search(connection: Connection, search_id: str) -> dict[str, Any]:
    """The search as JSON-ready facts."""
    row = (
        connection.execute(
            text("""
            SELECT searches.id AS search_id, searches.query_id, videos.title AS query,
                   searches.status, searches.reason, searches.message, searches.pairs_total,
                   searches.pairs_left,
                   (SELECT count(*) FROM search_pairs JOIN pairs ON pairs.id = pair_id
                    WHERE search_id = searches.id AND pairs.status = 'quarantined')
                       AS pairs_quarantined,
                   extract(epoch FROM searches.finished_at - searches.created_at)::float AS seconds
            FROM searches JOIN videos ON videos.id = searches.query_id
            WHERE searches.id = :id"""),
            {"id": search_id},
        )
        .mappings()
        .first()
    )
    if row is None:
        raise NotFound(f"there is no search {search_id}")
    return dict(row)


def read_quarantined(connection: Connection, search_id: str) -> list[dict[str, Any]]:
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
    return [dict(row) for row in rows.mappings()]


def wait_for_search(
    database: Engine,
    search_id: str,
    timeout: float | None = None,
    on_progress: Callable[[dict[str, Any]], None] = lambda search: None,
    outage: float = 60.0,
) -> dict[str, Any]:
    """Block until the search is done or failed; `on_progress` sees every state on the way.

    A database that goes away meanwhile is waited for, `outage` seconds long.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    answered = time.monotonic()
    search: dict[str, Any] = {"status": "unknown", "pairs_left": 0, "pairs_total": 0}
    while search["status"] not in ("done", "failed"):
        try:
            with transaction(database) as connection:
                search = read_search(connection, search_id)
        except ServiceUnavailable as error:
            if time.monotonic() - answered > outage:
                raise
            log.warning("waiting for the database: %s", error)
            time.sleep(1)
        else:
            answered = time.monotonic()
            on_progress(search)
        if deadline is not None and time.monotonic() > deadline:
            raise Refused(
                f"search {search_id} is still {search['status']} after {timeout:g} seconds "
                f"({search['pairs_left']} of {search['pairs_total']} pairs left); is a worker "
                "running? start one with `vcl worker`",
                code="timeout",
            )
        time.sleep(0.1)
    return search
