"""Figures for charts: copied seconds by week, claims by status, how often claims were wrong.

In: the owners whose claims may be seen; None: all. Out: rows, the oldest week first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, text

WEEKS = 12


def read_weekly_seconds(
    connection: Connection, owners: Collection[str] | None = None, weeks: int = WEEKS
) -> list[dict[str, Any]]:
    """Copied seconds under standing claims by the week that raised them, and asset."""
    rows = connection.execute(
        text("""
        SELECT date_trunc('week', claims.created_at AT TIME ZONE 'UTC')::date AS week,
               assets.title AS asset, owners.name AS owner, sum(claims.seconds)::float AS seconds
        FROM standing_claims AS claims JOIN assets ON assets.id = claims.asset_id
        JOIN owners ON owners.id = assets.owner_id
        WHERE (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
          AND claims.created_at >= date_trunc('week', now()) - (:weeks - 1) * interval '1 week'
        GROUP BY 1, assets.id, owners.name ORDER BY 1, seconds DESC"""),
        {"owners": None if owners is None else sorted(owners), "weeks": weeks},
    )
    return [dict(row) for row in rows.mappings()]


def read_error_rates(
    connection: Connection, owners: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """By model: claims that people judged, and those that were no match.

    A claim counts for the models whose segments it rests on. Only what was released as
    misidentified was wrong: a copy that somebody allowed is a copy.
    """
    rows = connection.execute(
        text("""
        SELECT model, count(*) AS judged, count(*) FILTER (WHERE is_wrong) AS wrong
        FROM (SELECT DISTINCT runs.localizer AS model, claims.id,
                     (claims.status, claims.reason) IS NOT DISTINCT FROM
                         ('released', 'misidentified') AS is_wrong
              FROM claims JOIN assets ON assets.id = claims.asset_id
              JOIN owners ON owners.id = assets.owner_id
              JOIN segments ON segments.claim_id = claims.id
              JOIN runs ON runs.id = segments.run_id
              WHERE (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
                AND EXISTS (SELECT 1 FROM claim_decisions
                            WHERE claim_decisions.claim_id = claims.id
                              AND claim_decisions.to_status = claims.status)) AS judged
        GROUP BY model ORDER BY judged DESC, model"""),
        {"owners": None if owners is None else sorted(owners)},
    )
    return [dict(row) for row in rows.mappings()]
