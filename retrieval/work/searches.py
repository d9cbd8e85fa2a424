"""The life of a search: asked for, planned into pairs, counted down, done or incomplete.

In: a query; pairs that were opened or finished. Out: rows in `searches`.
Every function takes a connection and is one step of the caller's transaction, so a result and its
count are written together.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection, Engine, RowMapping, text

from retrieval.database import transaction
from retrieval.errors import NotFound, Refused, ServiceUnavailable
from retrieval.paging import MOST, Page, cut_page, read_cursor
from retrieval.records import Search, SearchStatus
from retrieval.work import catalogue
from retrieval.work.uploads import UNKNOWN, note_upload

log = logging.getLogger(__name__)

# How a search ends of which no pair is left: done only if all that was to be compared was.
_OUTCOME = """CASE WHEN searches.reason = 'references_unreadable' OR EXISTS (
    SELECT 1 FROM search_pairs JOIN pairs ON pairs.id = search_pairs.pair_id
    WHERE search_pairs.search_id = searches.id AND pairs.status = 'quarantined')
    THEN 'incomplete' ELSE 'done' END"""


def create_search(
    connection: Connection,
    query_id: str,
    search_id: str | None = None,
    asked_by: str | None = None,
) -> str:
    """A search that waits to be planned. An id that exists already is the same search.

    What is searched was uploaded by somebody, unless it is a reference.
    """
    new_id = search_id or str(uuid.uuid4())
    connection.execute(
        text("""
        INSERT INTO searches (id, query_id, sent_at, asked_by) VALUES (:id, :query, now(), :by)
        ON CONFLICT (id) DO NOTHING"""),
        {"id": new_id, "query": query_id, "by": asked_by},
    )
    found = connection.execute(
        text("SELECT query_id FROM searches WHERE id = :id"), {"id": new_id}
    ).scalar_one()
    if found != query_id:
        raise Refused(
            f"search {new_id} already looks for {found!r}; give {query_id!r} an id of its own"
        )
    if not catalogue.read_video(connection, query_id).is_reference:
        note_upload(connection, query_id, UNKNOWN)
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
        HAVING bool_and(status IN ('done', 'incomplete', 'failed', 'cancelled'))
           AND max(searches.created_at) >= coalesce(max(entered.at), '-infinity')"""),
        {"queries": list(query_ids)},
    )
    return set(found.scalars())


def count_opened(connection: Connection, search_id: str, total: int, left: int) -> None:
    """A search got `total` pairs more, of which `left` are open; with none open it is over."""
    connection.execute(
        text(f"""
        UPDATE searches SET pairs_total = pairs_total + :total, pairs_left = pairs_left + :left,
               leased_by = NULL, lease_until = NULL,
               reason = CASE WHEN status <> 'failed' THEN reason END,
               message = CASE WHEN status <> 'failed' THEN message END,
               status = CASE WHEN pairs_left + :left = 0 THEN {_OUTCOME} ELSE 'localizing' END,
               finished_at = CASE WHEN pairs_left + :left = 0 THEN now() END
        WHERE id = :id AND status <> 'cancelled'"""),
        {"id": search_id, "total": total, "left": left},
    )


def count_up(connection: Connection, pair_ids: Collection[int], except_for: str = "") -> None:
    """Searches that had counted these pairs down wait for them again, those that ended
    incomplete included."""
    if not pair_ids:
        return
    _lock_waiting(connection, pair_ids)
    connection.execute(
        text("""
        UPDATE searches SET pairs_left = pairs_left + reopened.pairs, status = 'localizing',
               finished_at = NULL
        FROM (SELECT search_id, count(*) AS pairs FROM search_pairs
              WHERE pair_id = ANY(:pairs) GROUP BY search_id) AS reopened
        WHERE searches.id = reopened.search_id
          AND searches.status IN ('localizing', 'incomplete')
          AND searches.id <> :search"""),
        {"pairs": list(pair_ids), "search": except_for},
    )


def count_down(connection: Connection, pair_ids: Collection[int]) -> None:
    """Subtract finished pairs from their searches; a search at zero is over."""
    if not pair_ids:
        return
    _lock_waiting(connection, pair_ids)
    connection.execute(
        text(f"""
        UPDATE searches SET pairs_left = pairs_left - finished.pairs,
               status = CASE WHEN pairs_left = finished.pairs THEN {_OUTCOME} ELSE status END,
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
        SELECT id FROM searches WHERE status IN ('localizing', 'incomplete')
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
        text(f"""
        UPDATE searches SET pairs_left = truth.pairs,
               status = CASE WHEN truth.pairs = 0 THEN {_OUTCOME} ELSE status END,
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
        text("""
        UPDATE searches SET reason = :code, message = :message
        WHERE id = :id AND status <> 'cancelled'"""),
        {"id": search_id, "code": code, "message": message},
    )


def plan_again(connection: Connection, search_id: str | None = None) -> list[str]:
    """Let searches that left references out be planned once more; returns their ids."""
    rows = connection.execute(
        text("""
        UPDATE searches SET status = 'waiting', attempts = 0, sent_at = NULL, reason = NULL,
               message = NULL, finished_at = NULL
        WHERE reason = 'references_unreadable' AND status IN ('localizing', 'incomplete')
          AND id = coalesce(:search, id)
        RETURNING id"""),
        {"search": search_id},
    )
    return list(rows.scalars())


def read_search(connection: Connection, search_id: str) -> Search:
    found = read_searches(connection, [search_id])
    if not found:
        raise NotFound(f"there is no search {search_id}")
    return found[0]


def read_searches(connection: Connection, search_ids: Collection[str]) -> list[Search]:
    """Those of the searches that exist, in no particular order."""
    rows = connection.execute(
        text(f"SELECT {_COLUMNS} WHERE searches.id = ANY(:ids)"), {"ids": list(search_ids)}
    )
    return [_search(row) for row in rows.mappings()]


def list_searches(
    connection: Connection,
    statuses: Collection[str] = (),
    query_id: str | None = None,
    asked_by: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Page[Search]:
    """A page of searches, the newest first; what is empty or None does not narrow."""
    unknown = [each for each in statuses if each not in list(SearchStatus)]
    if unknown:
        known = ", ".join(SearchStatus)
        raise Refused(f"{unknown[0]!r} is no status of a search; use {known}", code="bad_filter")
    limit = max(1, min(limit, MOST))
    moment, last = read_cursor(after, "searches", str, str)
    rows = connection.execute(
        text(f"""
        SELECT {_COLUMNS}
        WHERE (CAST(:statuses AS text[]) IS NULL OR searches.status = ANY(:statuses))
          AND (CAST(:query AS text) IS NULL OR searches.query_id = :query)
          AND (CAST(:asked_by AS text) IS NULL OR searches.asked_by = :asked_by)
          AND (CAST(:last AS text) IS NULL
               OR (searches.created_at, searches.id) < (CAST(:moment AS timestamptz), :last))
        ORDER BY searches.created_at DESC, searches.id DESC LIMIT :limit"""),
        {
            **{"statuses": list(statuses) or None, "query": query_id, "asked_by": asked_by},
            **{"moment": moment, "last": last, "limit": limit + 1},
        },
    )
    found = [_search(row) for row in rows.mappings()]
    return cut_page(
        found, limit, "searches", lambda each: (each.created_at.isoformat(), each.search_id)
    )


_COLUMNS = """
    searches.id AS search_id, searches.query_id, videos.title AS query, searches.status,
    searches.reason, searches.message, searches.pairs_total, searches.pairs_left,
    (SELECT count(*) FROM search_pairs JOIN pairs ON pairs.id = pair_id
     WHERE search_id = searches.id AND pairs.status = 'quarantined') AS pairs_quarantined,
    extract(epoch FROM searches.finished_at - searches.created_at)::float AS seconds,
    searches.asked_by, searches.created_at, searches.finished_at
    FROM searches JOIN videos ON videos.id = searches.query_id"""


def _search(row: RowMapping) -> Search:
    return Search(**{**row, "status": SearchStatus(row["status"])})


def wait_for_search(
    database: Engine,
    search_id: str,
    timeout: float | None = None,
    on_progress: Callable[[Search], None] = lambda search: None,
    outage: float = 60.0,
) -> Search:
    """Block until the search is at its end; `on_progress` sees every state on the way.

    A database that goes away meanwhile is waited for, `outage` seconds long.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    answered = time.monotonic()
    search: Search | None = None
    while search is None or not search.status.is_final:
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
            raise Refused(_still(search_id, search, timeout), code="timeout")
        time.sleep(0.1)
    return search


def _still(search_id: str, search: Search | None, seconds: float | None) -> str:
    status = "unknown" if search is None else search.status
    left, total = (0, 0) if search is None else (search.pairs_left, search.pairs_total)
    return (
        f"search {search_id} is still {status} after {seconds:g} seconds ({left} of {total} pairs "
        "left); is a worker running? start one with `vcl worker`"
    )
