"""The life of a claim: its states, who moved it and why, never changed without an event.

In: decisions. Out: rows in `claims` and `claim_events`.
Nothing outside this module moves a claim.

    potential ──confirm──▶ active ──dispute──▶ disputed ──uphold──▶ upheld
        │                    │                     │                  │
        ├──release──▶ released ◀──release──────────┴──────release─────┘
        └──expire───▶ expired ◀──expire── (active, disputed)

The engine alone may also take back what it did itself, as long as no person has decided anything:
potential, active and expired follow the evidence both ways (`settlement`). Whatever moves a claim
writes an event in the same transaction. A decision that was taken back counts as none. A claim that
a person released as `authorised` was released for the uploads of that time: uploaded again by
somebody else, it is raised again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import Moved, NotFound, Refused
from vcl_plugin.claims.policies import say_actions

TRANSITIONS: dict[str, frozenset[str]] = {
    "potential": frozenset({"active", "released", "expired"}),
    "active": frozenset({"disputed", "released", "expired"}),
    "disputed": frozenset({"upheld", "released", "expired"}),
    "upheld": frozenset({"released"}),
    "released": frozenset(),
    "expired": frozenset(),
}
STANDING = ("potential", "active", "disputed", "upheld")
REASONS = ("misidentified", "authorised", "fair_use", "public_domain", "original")
ENGINE = "engine"  # the actor of what no person did


@dataclass(frozen=True)
class Change:
    """A change of a rule that moves claims: its number, and who did what."""

    id: int
    actor: str
    what: str

    def __str__(self) -> str:
        return f"{self.actor} {self.what}"


def decide_claim(
    connection: Connection,
    claim_id: int,
    status: str,
    actor: str,
    reason: str | None = None,
    note: str | None = None,
) -> None:
    """Move a claim to another status; the event is written in the same transaction."""
    current = check_decision(connection, claim_id, status, actor, reason)
    move_claim(connection, claim_id, current, status, actor, reason, note)


def check_decision(
    connection: Connection, claim_id: int, status: str, actor: str, reason: str | None = None
) -> str:
    """The status of a claim that may be decided so; its row is locked."""
    claim = connection.execute(
        text("""
        SELECT claims.status, claims.asset_id, assets.title, assets.removed_at FROM claims
        JOIN assets ON assets.id = claims.asset_id WHERE claims.id = :id FOR UPDATE OF claims"""),
        {"id": claim_id},
    ).first()
    if claim is None:
        raise NotFound(f"there is no claim {claim_id}; `vcl claims list` shows them all")
    current = claim.status
    if status not in TRANSITIONS:
        raise Refused(f"{status!r} is no status of a claim; use one of {', '.join(TRANSITIONS)}")
    if status not in TRANSITIONS[current]:
        open_ways = ", ".join(sorted(TRANSITIONS[current]))
        rest = f"; only {open_ways}" if open_ways else ": it is closed for good"
        raise Moved(f"claim {claim_id} is {current} and cannot become {status}{rest}")
    if actor == ENGINE:
        raise Refused(f"{ENGINE!r} is how the history names the engine; decide in your own name")
    if claim.removed_at is not None and status in STANDING:
        raise Refused(
            f"claim {claim_id} is on asset {claim.asset_id} {claim.title!r}, which was removed on "
            f"{claim.removed_at:%Y-%m-%d}; it cannot become {status}, only released"
        )
    if reason is not None and reason not in REASONS:
        raise Refused(f"{reason!r} is no reason for a claim; use one of {', '.join(REASONS)}")
    return str(current)


def list_claims(
    connection: Connection,
    status: str | None = None,
    query_id: str | None = None,
    owner: str | None = None,
    limit: int = 1000,
) -> list[dict[str, Any]]:
    """Claims, the newest first."""
    rows = connection.execute(
        text(f"""
        {_CLAIM_ROW}
        WHERE (CAST(:status AS text) IS NULL OR claims.status = :status)
          AND (CAST(:query AS text) IS NULL OR claims.query_id = :query)
          AND (CAST(:owner AS text) IS NULL OR owners.name = :owner)
        ORDER BY claims.id DESC LIMIT :limit"""),
        {"status": status, "query": query_id, "owner": owner, "limit": limit},
    )
    return [_claim(row) for row in rows.mappings()]


def list_standing(connection: Connection, asset_id: int) -> list[int]:
    """Numbers of an asset's claims that were neither released nor have expired."""
    found = connection.execute(
        text("""
        SELECT id FROM claims WHERE asset_id = :asset AND status = ANY(:standing) ORDER BY id"""),
        {"asset": asset_id, "standing": list(STANDING)},
    )
    return list(found.scalars())


def read_claim(connection: Connection, claim_id: int) -> dict[str, Any]:
    """A claim with its segments, the uploads it speaks of, and its whole history."""
    found = (
        connection.execute(text(f"{_CLAIM_ROW} WHERE claims.id = :id"), {"id": claim_id})
        .mappings()
        .first()
    )
    if found is None:
        raise NotFound(f"there is no claim {claim_id}; `vcl claims list` shows them all")
    segments = connection.execute(
        text("""
        SELECT reference_id, videos.title AS reference,
               lower(query_span)::float AS query_start, upper(query_span)::float AS query_end,
               lower(reference_span)::float AS reference_start,
               upper(reference_span)::float AS reference_end, score, is_reversed, speed, held
        FROM segments JOIN videos ON videos.id = segments.reference_id
        WHERE claim_id = :id ORDER BY lower(query_span)"""),
        {"id": claim_id},
    )
    uploads = connection.execute(
        text("""
        SELECT uploads.id, uploads.uploader, uploads.external_id, uploads.url, uploads.uploaded_at,
               uploads.created_at AS told_at
        FROM claim_uploads JOIN uploads ON uploads.id = claim_uploads.upload_id
        WHERE claim_uploads.claim_id = :id ORDER BY uploads.id"""),
        {"id": claim_id},
    )
    events = connection.execute(
        text("""
        SELECT at, actor, from_status, to_status, reason, note FROM claim_events
        WHERE claim_id = :id ORDER BY id"""),
        {"id": claim_id},
    )
    return {
        **_claim(found),
        "segments": [dict(row) for row in segments.mappings()],
        "uploads": [dict(row) for row in uploads.mappings()],
        "events": [dict(row) for row in events.mappings()],
    }


def open_claim(
    connection: Connection,
    asset_id: int,
    query_id: str,
    status: str,
    note: str,
    change: Change | None = None,
) -> int:
    """Raise the claim of an asset on an upload, by the engine; there is one at most."""
    claim_id = connection.execute(
        text("""
        INSERT INTO claims (asset_id, query_id, status) VALUES (:asset, :query, :status)
        RETURNING id"""),
        {"asset": asset_id, "query": query_id, "status": status},
    ).scalar_one()
    _write_event(connection, claim_id, ENGINE, None, status, None, note, change)
    return int(claim_id)


def remark_claim(
    connection: Connection, claim_id: int, status: str, note: str, change: Change | None = None
) -> None:
    """Write into the history what the engine did to a claim that keeps its status."""
    _write_event(connection, claim_id, ENGINE, status, status, None, note, change)


def move_claim(
    connection: Connection,
    claim_id: int,
    from_status: str,
    to_status: str,
    actor: str,
    reason: str | None,
    note: str | None,
    change: Change | None = None,
    led_by: int | None = None,
    undoes: int | None = None,
) -> None:
    """Write a transition that the caller has checked, with its event.

    `led_by` is the claim whose decision moved this one, `undoes` the event that is taken back.
    """
    connection.execute(
        text("""
        UPDATE claims SET status = :status, reason = :reason, updated_at = now()
        WHERE id = :id"""),
        {"id": claim_id, "status": to_status, "reason": reason},
    )
    _write_event(
        connection, claim_id, actor, from_status, to_status, reason, note, change, led_by, undoes
    )
    if (to_status, reason) == ("released", "authorised"):
        _allow_uploads(connection, claim_id, actor)


def _allow_uploads(connection: Connection, claim_id: int, actor: str) -> None:
    """Whoever is authorised is so for the uploads that the claim spoke of, and nobody else is.

    Nobody misses the rule: who settles the claim waits for its row, which is locked.
    """
    connection.execute(
        text("""
        INSERT INTO allowances (owner_id, asset_id, upload_id, actor, note)
        SELECT assets.owner_id, claims.asset_id, claim_uploads.upload_id, :actor,
               'claim ' || claims.id || ' was released as authorised'
        FROM claims JOIN assets ON assets.id = claims.asset_id
        JOIN claim_uploads ON claim_uploads.claim_id = claims.id
        WHERE claims.id = :claim"""),
        {"claim": claim_id, "actor": actor},
    )


_CLAIM_ROW = """
    SELECT claims.id, claims.status, claims.action,
           (SELECT jsonb_object_agg(territory, action) FROM claim_territories
            WHERE claim_id = claims.id) AS actions,
           owners.name AS owner, assets.title AS asset,
           videos.title AS query, claims.query_id, claims.seconds, claims.segments AS segment_count,
           claims.score, claims.created_at, uploads.uploader, claims.uploads AS times_uploaded
    FROM claims
    JOIN assets ON assets.id = claims.asset_id
    JOIN owners ON owners.id = assets.owner_id
    JOIN videos ON videos.id = claims.query_id
    LEFT JOIN uploads ON uploads.id = claims.upload_id"""


def _claim(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row of `_CLAIM_ROW` with what the claim does where, as a person reads it."""
    return {**row, "actions": say_actions(row["actions"]) if row["actions"] else row["action"]}


def _write_event(
    connection: Connection,
    claim_id: int,
    actor: str,
    from_status: str | None,
    to_status: str,
    reason: str | None,
    note: str | None,
    change: Change | None,
    led_by: int | None = None,
    undoes: int | None = None,
) -> None:
    """The history names the change of a rule in words, for whoever reads it, and by its number."""
    if change is not None:
        note = f"{note}, since {change}"
    connection.execute(
        text("""
        INSERT INTO claim_events (claim_id, actor, from_status, to_status, reason, note, change_id,
                                  led_by, undoes)
        VALUES (:claim, :actor, :from_status, :to_status, :reason, :note, :change, :led_by,
                :undoes)"""),
        {
            "claim": claim_id,
            "actor": actor,
            "from_status": from_status,
            "to_status": to_status,
            "reason": reason,
            "note": note,
            "change": None if change is None else change.id,
            "led_by": led_by,
            "undoes": undoes,
        },
    )
