"""The life of a claim: raised from segments, decided by people, never changed without an event.

In: recorded segments, and a reviewer's decisions. Out: rows in `claims` and `claim_events`.
Called by the localize task (raise) and the command line (decide). Nothing else writes claims.

    potential ──confirm──▶ active ──dispute──▶ disputed ──uphold──▶ upheld
        │                    │                     │                  │
        ├──release──▶ released ◀──release──────────┴──────release─────┘
        └──expire───▶ expired ◀──expire── (active, disputed)
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused

TRANSITIONS: dict[str, frozenset[str]] = {
    "potential": frozenset({"active", "released", "expired"}),
    "active": frozenset({"disputed", "released", "expired"}),
    "disputed": frozenset({"upheld", "released", "expired"}),
    "upheld": frozenset({"released"}),
    "released": frozenset(),
    "expired": frozenset(),
}
REASONS = ("misidentified", "authorised", "fair_use", "public_domain", "original")
ENGINE = "engine"  # the actor of what no person did


def raise_claims(
    connection: Connection, run_id: int, min_score: float, min_seconds: float
) -> int | None:
    """Tie a run's strong segments to the claim on their asset, raising it if it is new.

    A weak or short segment joins a claim that a strong one carries, but raises none. An upload
    that is a reference of the same owner is that owner's own. A claim that a person has decided
    keeps its status, whatever is found again.
    """
    match = connection.execute(
        text("""
        SELECT segments.query_id, reference_videos.asset_id
        FROM segments
        JOIN reference_videos ON reference_videos.video_id = segments.reference_id
        JOIN assets ON assets.id = reference_videos.asset_id
        WHERE segments.run_id = :run AND segments.score >= :score
          AND upper(segments.query_span) - lower(segments.query_span) >= :seconds
          AND NOT EXISTS (
              SELECT 1 FROM reference_videos AS own
              JOIN assets AS own_asset ON own_asset.id = own.asset_id
              WHERE own.video_id = segments.query_id AND own_asset.owner_id = assets.owner_id)
        LIMIT 1"""),
        {"run": run_id, "score": min_score, "seconds": min_seconds},
    ).first()
    if match is None:
        return None
    raised = connection.execute(
        text("""
        INSERT INTO claims (asset_id, query_id) VALUES (:asset, :query)
        ON CONFLICT (asset_id, query_id) DO NOTHING RETURNING id"""),
        {"asset": match.asset_id, "query": match.query_id},
    ).scalar()
    if raised is not None:
        _write_event(connection, raised, ENGINE, None, "potential", None, None)
    claim_id = connection.execute(
        text("SELECT id FROM claims WHERE asset_id = :asset AND query_id = :query"),
        {"asset": match.asset_id, "query": match.query_id},
    ).scalar_one()
    connection.execute(
        text("UPDATE segments SET claim_id = :claim WHERE run_id = :run"),
        {"claim": claim_id, "run": run_id},
    )
    return int(claim_id)


def decide_claim(
    connection: Connection,
    claim_id: int,
    status: str,
    actor: str,
    reason: str | None = None,
    note: str | None = None,
) -> None:
    """Move a claim to another status; the event is written in the same transaction."""
    current = connection.execute(
        text("SELECT status FROM claims WHERE id = :id FOR UPDATE"), {"id": claim_id}
    ).scalar()
    if current is None:
        raise NotFound(f"there is no claim {claim_id}; `vcl claims list` shows them all")
    if status not in TRANSITIONS[current]:
        open_ways = ", ".join(sorted(TRANSITIONS[current])) or "nothing: it is closed"
        raise Refused(f"claim {claim_id} is {current} and cannot become {status}; only {open_ways}")
    if reason is not None and reason not in REASONS:
        raise Refused(f"{reason!r} is no reason for a claim; use one of {', '.join(REASONS)}")
    connection.execute(
        text("""
        UPDATE claims SET status = :status, reason = :reason, updated_at = now()
        WHERE id = :id"""),
        {"id": claim_id, "status": status, "reason": reason},
    )
    _write_event(connection, claim_id, actor, current, status, reason, note)


def list_claims(
    connection: Connection, status: str | None = None, query_id: str | None = None
) -> list[dict[str, Any]]:
    rows = connection.execute(
        text("""
        SELECT claims.id, claims.status, owners.name AS owner, assets.title AS asset,
               videos.title AS query, claims.query_id,
               (SELECT sum(upper(span) - lower(span))::float FROM unnest(
                   (SELECT range_agg(query_span) FROM segments WHERE claim_id = claims.id)
               ) AS span) AS seconds,
               claims.created_at
        FROM claims
        JOIN assets ON assets.id = claims.asset_id
        JOIN owners ON owners.id = assets.owner_id
        JOIN videos ON videos.id = claims.query_id
        WHERE (CAST(:status AS text) IS NULL OR claims.status = :status)
          AND (CAST(:query AS text) IS NULL OR claims.query_id = :query)
        ORDER BY claims.id"""),
        {"status": status, "query": query_id},
    )
    return [dict(row) for row in rows.mappings()]


def read_claim(connection: Connection, claim_id: int) -> dict[str, Any]:
    """A claim with its segments and its whole history."""
    found = [each for each in list_claims(connection) if each["id"] == claim_id]
    if not found:
        raise NotFound(f"there is no claim {claim_id}; `vcl claims list` shows them all")
    segments = connection.execute(
        text("""
        SELECT reference_id, videos.title AS reference,
               lower(query_span)::float AS query_start, upper(query_span)::float AS query_end,
               lower(reference_span)::float AS reference_start,
               upper(reference_span)::float AS reference_end, score, is_reversed, speed
        FROM segments JOIN videos ON videos.id = segments.reference_id
        WHERE claim_id = :id ORDER BY lower(query_span)"""),
        {"id": claim_id},
    )
    events = connection.execute(
        text("""
        SELECT at, actor, from_status, to_status, reason, note FROM claim_events
        WHERE claim_id = :id ORDER BY id"""),
        {"id": claim_id},
    )
    return {
        **found[0],
        "segments": [dict(row) for row in segments.mappings()],
        "events": [dict(row) for row in events.mappings()],
    }


def _write_event(
    connection: Connection,
    claim_id: int,
    actor: str,
    from_status: str | None,
    to_status: str,
    reason: str | None,
    note: str | None,
) -> None:
    connection.execute(
        text("""
        INSERT INTO claim_events (claim_id, actor, from_status, to_status, reason, note)
        VALUES (:claim, :actor, :from_status, :to_status, :reason, :note)"""),
        {
            "claim": claim_id,
            "actor": actor,
            "from_status": from_status,
            "to_status": to_status,
            "reason": reason,
            "note": note,
        },
    )
