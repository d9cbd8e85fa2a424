"""The queue of claims: filtered, sorted by what is at stake, a page at a time, counted by status.

In: a filter, whose claims may be seen, and where the last page ended. Out: rows of claims.
Every read takes the owners whose claims the reader may see; None: all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction
from retrieval.errors import NotFound, Refused
from retrieval.paging import MOST, read_cursor, write_cursor
from vcl_plugin.claims.claims import STANDING, TRANSITIONS
from vcl_plugin.claims.policies import ACTIONS, say_actions

BATCH = 1000  # claims that age in one transaction


@dataclass(frozen=True)
class Sort:
    """An order of the queue: a column, and the type of its values for the cursor."""

    column: str
    kind: str
    is_descending: bool = True


SORTS = {
    "stake": Sort("claims.stake", "double precision"),
    "newest": Sort("claims.id", "bigint"),
    "oldest": Sort("claims.id", "bigint", is_descending=False),
    "seconds": Sort("claims.seconds", "double precision"),
    "score": Sort("claims.score", "double precision"),
}


@dataclass(frozen=True)
class ClaimFilter:
    """Which claims are meant; what is None or empty does not narrow."""

    status: tuple[str, ...] = ()
    owner: str | None = None
    asset: str | None = None  # number or title
    action: str | None = None
    min_age: float | None = None  # days since it was raised
    max_age: float | None = None
    min_seconds: float | None = None
    max_seconds: float | None = None
    min_score: float | None = None
    max_score: float | None = None
    text: str | None = None  # part of a title, an asset's or an uploader's name
    upload: str | None = None  # the platform's id, URL, or id of the video
    assignee: str | None = None

    def __post_init__(self) -> None:
        for status in self.status:
            if status not in TRANSITIONS:
                raise Refused(f"{status!r} is none of {', '.join(TRANSITIONS)}", code="bad_filter")
        if self.action is not None and self.action not in ACTIONS:
            raise Refused(f"{self.action!r} is none of {', '.join(ACTIONS)}", code="bad_filter")
        for each in ("age", "seconds", "score"):
            low, high = getattr(self, f"min_{each}"), getattr(self, f"max_{each}")
            if low is not None and high is not None and low > high:
                raise Refused(
                    f"min_{each} is {low:g} and max_{each} {high:g}, so nothing lies between",
                    code="bad_filter",
                )

    def as_dict(self) -> dict[str, Any]:
        """What narrows, for an address or a cursor."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


@dataclass(frozen=True)
class Page:
    """Some claims of the queue, and where the next ones begin; None: there are no more."""

    claims: Sequence[dict[str, Any]]
    next: str | None


def list_queue(
    connection: Connection,
    wanted: ClaimFilter | None = None,
    owners: Collection[str] | None = None,
    sort: str = "stake",
    limit: int = 50,
    after: str | None = None,
) -> Page:
    """A page of the claims that are wanted, after the one where the last page ended."""
    wanted = wanted or ClaimFilter()
    if sort not in SORTS:
        raise Refused(f"{sort!r} is no order; use one of {', '.join(SORTS)}", code="bad_filter")
    order = SORTS[sort]
    direction, comparison = ("DESC", "<") if order.is_descending else ("ASC", ">")
    limit = max(1, min(limit, MOST))
    value, last = read_cursor(after, sort, float, int)
    rows = connection.execute(
        text(f"""
        WITH page AS MATERIALIZED (
            SELECT claims.id, {order.column} AS place {_MEANT}
              AND (CAST(:last AS bigint) IS NULL
                   OR ({order.column}, claims.id)
                      {comparison} (CAST(:value AS {order.kind}), CAST(:last AS bigint)))
            ORDER BY {order.column} {direction}, claims.id {direction} LIMIT :limit)
        SELECT page.place, {_COLUMNS} FROM page JOIN claims ON claims.id = page.id {_TABLES}
        ORDER BY page.place {direction}, claims.id {direction}"""),
        {**_values(wanted, owners), "last": last, "value": value, "limit": limit + 1},
    )
    found = [dict(row) for row in rows.mappings()]
    page = found[:limit]
    end = page[-1] if len(found) > limit else None
    cursor = None if end is None else write_cursor(sort, repr(end["place"]), end["id"])
    return Page([_claim(row) for row in page], cursor)


def cursor_after(row: Mapping[str, Any], sort: str) -> str:
    """Where the claims behind this one begin, as if a page had ended with it."""
    if sort not in SORTS:
        raise Refused(f"{sort!r} is no order; use one of {', '.join(SORTS)}", code="bad_filter")
    place = row[SORTS[sort].column.removeprefix("claims.")]
    return write_cursor(sort, repr(place), row["id"])


def read_spans(
    connection: Connection, claim_ids: Collection[int]
) -> dict[int, list[tuple[float, float]]]:
    """Which seconds of its upload each claim covers, overlaps joined."""
    rows = connection.execute(
        text("""
        SELECT id, lower(span)::float AS starts, upper(span)::float AS ends
        FROM (SELECT id, unnest(query_spans) AS span FROM claims WHERE id = ANY(:ids)) AS spans
        ORDER BY id, span"""),
        {"ids": sorted(claim_ids)},
    )
    found: dict[int, list[tuple[float, float]]] = {each: [] for each in claim_ids}
    for row in rows:
        found[row.id].append((row.starts, row.ends))
    return found


def count_queue(
    connection: Connection,
    wanted: ClaimFilter | None = None,
    owners: Collection[str] | None = None,
) -> dict[str, int]:
    """How many claims of each status are wanted, whatever status the filter asks for."""
    values = {**_values(wanted or ClaimFilter(), owners), "status": None}
    rows = connection.execute(
        text(f"SELECT claims.status, count(*) AS claims {_MEANT} GROUP BY claims.status"), values
    )
    found = {row.status: int(row.claims) for row in rows}
    return {status: found.get(status, 0) for status in TRANSITIONS}


def list_ids(
    connection: Connection,
    wanted: ClaimFilter,
    owners: Collection[str] | None = None,
    limit: int | None = None,
) -> list[int]:
    """The numbers of all claims that are wanted, for a decision about all of them."""
    rows = connection.execute(
        text(f"SELECT claims.id {_MEANT} ORDER BY claims.id LIMIT :limit"),
        {**_values(wanted, owners), "limit": limit},
    )
    return list(rows.scalars())


def read_queued(
    connection: Connection, claim_id: int, owners: Collection[str] | None = None
) -> dict[str, Any]:
    """One row of the queue. A claim of other owners is not there."""
    row = (
        connection.execute(
            text(f"""
            SELECT {_COLUMNS} FROM claims {_TABLES}
            WHERE claims.id = :id
              AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))"""),
            {"id": claim_id, "owners": None if owners is None else sorted(owners)},
        )
        .mappings()
        .first()
    )
    if row is None:
        raise missing_claim(claim_id)
    return _claim(dict(row))


def require_claim(
    connection: Connection, claim_id: int, owners: Collection[str] | None = None
) -> None:
    """Raise the same error for a claim that is not there and for one of others."""
    if owners is None:
        return  # whoever sees all learns from the claim itself that it is not there
    read_queued(connection, claim_id, owners)


def missing_claim(claim_id: int) -> NotFound:
    return NotFound(f"there is no claim {claim_id}; `vcl claims list` shows them all")


def age_stakes(database: Engine) -> int:
    """Let claims be a day older, in the order of the queue; returns how many were not yet.

    In transactions of their own, past rows that others hold: those wait for the next look.
    """
    aged = 0
    while True:
        with transaction(database) as connection:
            done = connection.execute(
                text("""
                UPDATE claims SET stake = claim_stake(seconds, score, created_at),
                       staked_on = current_date
                WHERE id IN (SELECT id FROM claims
                             WHERE staked_on < current_date AND status = ANY(:standing)
                             LIMIT :batch FOR UPDATE SKIP LOCKED)"""),
                {"standing": list(STANDING), "batch": BATCH},
            ).rowcount
        aged += done
        if done < BATCH:
            return aged


_TABLES = """
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos ON videos.id = claims.query_id
    LEFT JOIN uploads ON uploads.id = claims.upload_id"""
_COLUMNS = """
    claims.id, claims.status, claims.reason, claims.action,
    (SELECT jsonb_object_agg(territory, action) FROM claim_territories
     WHERE claim_id = claims.id) AS actions,
    owners.name AS owner, claims.asset_id, assets.title AS asset, claims.query_id,
    videos.title AS query, videos.duration AS query_seconds, claims.seconds,
    claims.segments AS segment_count, claims.score, claims.stake, claims.created_at,
    claims.updated_at, claims.assignee, uploads.uploader, uploads.external_id, uploads.url,
    uploads.uploaded_at, claims.uploads AS times_uploaded"""
# What is null asks for nothing. Values stand in the statement when it is planned, so a filter that
# is not given costs nothing and one that is finds its index.
_MEANT = f"""
    FROM claims {_TABLES}
    WHERE (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
      AND (CAST(:status AS text[]) IS NULL OR claims.status = ANY(:status))
      AND (CAST(:owner AS text) IS NULL OR owners.name = :owner)
      AND (CAST(:asset AS text) IS NULL OR assets.id::text = :asset OR assets.title = :asset)
      AND (CAST(:action AS text) IS NULL OR claims.action = :action)
      AND (CAST(:raised_before AS timestamptz) IS NULL OR claims.created_at <= :raised_before)
      AND (CAST(:raised_after AS timestamptz) IS NULL OR claims.created_at >= :raised_after)
      AND (CAST(:min_seconds AS float) IS NULL OR claims.seconds >= :min_seconds)
      AND (CAST(:max_seconds AS float) IS NULL OR claims.seconds <= :max_seconds)
      AND (CAST(:min_score AS float) IS NULL OR claims.score >= :min_score)
      AND (CAST(:max_score AS float) IS NULL OR claims.score <= :max_score)
      AND (CAST(:assignee AS text) IS NULL OR claims.assignee = :assignee)
      AND (CAST(:text AS text) IS NULL OR videos.title ILIKE :text OR assets.title ILIKE :text
           OR uploads.uploader ILIKE :text)
      AND (CAST(:upload AS text) IS NULL OR claims.query_id = :upload OR EXISTS (
               SELECT 1 FROM claim_uploads JOIN uploads AS meant ON meant.id = upload_id
               WHERE claim_uploads.claim_id = claims.id
                 AND :upload IN (meant.external_id, meant.url)))"""


def _values(wanted: ClaimFilter, owners: Collection[str] | None) -> dict[str, Any]:
    values = {each.name: getattr(wanted, each.name) for each in fields(wanted)}
    now = datetime.now(UTC)
    for name, days in (("raised_before", wanted.min_age), ("raised_after", wanted.max_age)):
        values[name] = None if days is None else now - timedelta(days=min(max(days, 0), 365_000))
    literal = (wanted.text or "").replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return {
        **values,
        "owners": None if owners is None else sorted(owners),
        "status": list(wanted.status) or None,
        "text": f"%{literal}%" if wanted.text else None,
    }


def _claim(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what the claim does where, as a person reads it."""
    row.pop("place", None)
    return {**row, "actions": say_actions(row["actions"]) if row["actions"] else row["action"]}
