"""A claim given up together with its footage, which proves nothing from then on.

In: a claim, and who gives it up. Out: exclusions, and claims released that rest on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from retrieval.records import Span
from vcl_plugin.claims.changes import note_settled
from vcl_plugin.claims.claims import STANDING, Change, decide_claim, move_claim
from vcl_plugin.claims.guard import hold_segments
from vcl_plugin.claims.rights import exclude_span
from vcl_plugin.claims.settlement import settle_claims
from vcl_plugin.claims.turns import take_references


def release_and_exclude(
    connection: Connection, claim_id: int, actor: str, reason: str | None, note: str | None
) -> list[int]:
    """Release a claim and let the footage it rests on prove nothing any more.

    Sibling claims that rest on nothing else are released with it; returns their ids. References
    that come to the claim while it waits were not what the person looked at, and stay.
    """
    references = list(
        connection.execute(
            text("SELECT DISTINCT reference_id FROM segments WHERE claim_id = :claim"),
            {"claim": claim_id},
        ).scalars()
    )
    take_references(connection, references)
    uploads = _lock_uploads(connection, claim_id, references)
    spans = connection.execute(
        text("""
        SELECT reference_id, lower(reference_span)::float AS low,
               upper(reference_span)::float AS high
        FROM segments WHERE claim_id = :claim AND reference_id = ANY(:references)"""),
        {"claim": claim_id, "references": references},
    ).all()
    what = f"released claim {claim_id} and excluded what it rested on"
    change = Change(note_settled(connection, actor, what), actor, what)
    decide_claim(connection, claim_id, "released", actor, reason, note)
    for row in spans:
        exclude_span(connection, row.reference_id, Span(row.low, row.high), actor, note, claim_id)
    siblings: list[int] = []
    for query_id in uploads:
        hold_segments(connection, query_id)
        bare = connection.execute(
            text("""
            SELECT claims.id, claims.status FROM claims
            WHERE claims.query_id = :query AND claims.id <> :claim
              AND claims.status = ANY(:standing)
              AND EXISTS (SELECT 1 FROM segments WHERE claim_id = claims.id AND held = 'excluded')
              AND NOT EXISTS (SELECT 1 FROM segments
                              WHERE claim_id = claims.id AND held IS NULL)
            ORDER BY claims.id FOR UPDATE"""),
            {"query": query_id, "claim": claim_id, "standing": list(STANDING)},
        ).all()
        for sibling in bare:
            why = f"rests only on footage excluded with claim {claim_id}"
            move_claim(
                connection,
                sibling.id,
                sibling.status,
                "released",
                actor,
                reason,
                why,
                led_by=claim_id,
            )
            siblings.append(sibling.id)
        settle_claims(connection, query_id, change)
    return siblings


def _lock_uploads(connection: Connection, claim_id: int, references: Sequence[str]) -> list[str]:
    """Lock the claim's upload and all others with claims on these references; returns their ids.

    Uploads before claims, as whoever settles does it: else the two would wait for each other.
    """
    return list(
        connection.execute(
            text("""
            SELECT id FROM videos
            WHERE id IN (SELECT query_id FROM claims WHERE id = :claim)
               OR id IN (SELECT query_id FROM segments
                         WHERE reference_id = ANY(:references) AND claim_id IS NOT NULL)
            ORDER BY id FOR NO KEY UPDATE"""),
            {"claim": claim_id, "references": list(references)},
        ).scalars()
    )
