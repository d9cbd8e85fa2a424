"""Of which uploads a claim speaks: those of its content that no holder of the asset allowed.

In: a content whose claims were settled. Out: rows in `claim_uploads`, the first and the number of
them in `claims`. A closed claim keeps those that it was closed with.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, text

from retrieval.paging import MOST, Page, cut_page, read_cursor
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


def list_uploads(
    connection: Connection,
    owners: Collection[str] | None = None,
    name: str | None = None,
    uploader: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Page[dict[str, Any]]:
    """A page of uploads, the newest first; `name` is the platform's id, URL or id of the video.

    Whoever is confined to some owners sees the uploads that claims of theirs speak of.
    """
    limit = max(1, min(limit, MOST))
    [last] = read_cursor(after, "uploads", int)
    rows = connection.execute(
        text("""
        SELECT uploads.id, uploads.query_id, videos.title AS query, videos.duration,
               videos.status, videos.reason, uploads.uploader, uploads.external_id, uploads.url,
               uploads.uploaded_at, uploads.created_at AS told_at
        FROM uploads JOIN videos ON videos.id = uploads.query_id
        WHERE (CAST(:last AS bigint) IS NULL OR uploads.id < :last)
          AND (CAST(:name AS text) IS NULL
               OR :name IN (uploads.query_id, uploads.external_id, uploads.url))
          AND (CAST(:uploader AS text) IS NULL OR uploads.uploader = :uploader)
          AND (CAST(:owners AS text[]) IS NULL OR EXISTS (
                   SELECT 1 FROM claim_uploads JOIN claims ON claims.id = claim_uploads.claim_id
                   JOIN assets ON assets.id = claims.asset_id
                   JOIN owners ON owners.id = assets.owner_id
                   WHERE claim_uploads.upload_id = uploads.id AND owners.name = ANY(:owners)))
        ORDER BY uploads.id DESC LIMIT :limit"""),
        {
            "owners": None if owners is None else sorted(owners),
            **{"name": name, "uploader": uploader, "last": last, "limit": limit + 1},
        },
    )
    found = [dict(row) for row in rows.mappings()]
    return cut_page(found, limit, "uploads", lambda row: [row["id"]])
