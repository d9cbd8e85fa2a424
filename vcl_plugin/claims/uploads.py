"""Of which uploads a claim speaks: those of its content that no holder of the asset allowed.

In: a content whose claims were settled. Out: rows in `claim_uploads`, the first and the number of
them in `claims`. A closed claim keeps those that it was closed with.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from vcl_plugin.claims.claims import STANDING


def name_uploads(connection: Connection, query_id: str) -> None:
    """Let the standing claims on a content speak of the uploads that are nobody's licence."""
    connection.execute(
        text("""
        WITH standing AS (
            SELECT id, asset_id FROM claims
            WHERE query_id = :query AND status = ANY(:standing)
        ), meant AS (
            SELECT standing.id AS claim_id, uploads.id AS upload_id
            FROM standing JOIN uploads ON uploads.query_id = :query
            WHERE NOT EXISTS (SELECT 1 FROM allowed_uploads AS allowed
                              WHERE allowed.query_id = :query
                                AND allowed.upload_id = uploads.id
                                AND allowed.asset_id = standing.asset_id)
        ), gone AS (
            DELETE FROM claim_uploads WHERE claim_id IN (SELECT id FROM standing)
               AND NOT EXISTS (SELECT 1 FROM meant WHERE meant.claim_id = claim_uploads.claim_id
                                  AND meant.upload_id = claim_uploads.upload_id)
        ), added AS (
            INSERT INTO claim_uploads (claim_id, upload_id)
            SELECT claim_id, upload_id FROM meant ON CONFLICT DO NOTHING
        ), counted AS (
            SELECT standing.id, min(meant.upload_id) AS first, count(meant.upload_id) AS uploads
            FROM standing LEFT JOIN meant ON meant.claim_id = standing.id GROUP BY standing.id
        )
        UPDATE claims SET upload_id = counted.first, uploads = counted.uploads FROM counted
        WHERE claims.id = counted.id
          AND (claims.upload_id, claims.uploads)
              IS DISTINCT FROM (counted.first, counted.uploads::int)"""),
        {"query": query_id, "standing": list(STANDING)},
    )
