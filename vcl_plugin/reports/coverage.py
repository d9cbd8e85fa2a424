"""What of the references is copied, what is left out of claims, and who holds the same footage.

In: references or owners, and whose holdings may be seen; None: all. Out: spans and totals.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

Spans = list[tuple[float, float]]


@dataclass
class Coverage:
    """Stretches of one reference: under standing claims, and excluded from all."""

    claims: int = 0
    copied: Spans = field(default_factory=list)
    excluded: Spans = field(default_factory=list)

    @property
    def copied_seconds(self) -> float:
        return sum(end - start for start, end in self.copied)


def read_coverage(connection: Connection, video_ids: Collection[str]) -> dict[str, Coverage]:
    """By reference, overlaps joined."""
    found = {each: Coverage() for each in video_ids}
    values = {"ids": sorted(video_ids)}
    for row in connection.execute(
        text("""
        SELECT segments.reference_id, count(DISTINCT claims.id) AS claims
        FROM segments JOIN standing_claims AS claims ON claims.id = segments.claim_id
        WHERE segments.reference_id = ANY(:ids) GROUP BY segments.reference_id"""),
        values,
    ):
        found[row.reference_id].claims = row.claims
    spans = connection.execute(
        text("""
        SELECT id, kind, lower(span)::float AS starts, upper(span)::float AS ends
        FROM (SELECT segments.reference_id AS id, 'copied' AS kind,
                     unnest(range_agg(segments.reference_span)) AS span
              FROM segments JOIN standing_claims AS claims ON claims.id = segments.claim_id
              WHERE segments.reference_id = ANY(:ids) GROUP BY segments.reference_id
              UNION ALL
              SELECT video_id, 'excluded', unnest(range_agg(span))
              FROM reference_exclusions WHERE video_id = ANY(:ids) GROUP BY video_id) AS spans
        ORDER BY id, kind, span"""),
        values,
    )
    for row in spans:
        side = found[row.id].copied if row.kind == "copied" else found[row.id].excluded
        side.append((row.starts, row.ends))
    return found


def list_conflicts(
    connection: Connection, owners: Collection[str] | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """Footage that references of two owners share. Who the other is, is told to whom sees both."""
    rows = connection.execute(
        text("""
        SELECT owner, asset, reference_id, reference, reference_start::float, reference_end::float,
               CASE WHEN is_seen THEN other_owner END AS other_owner,
               CASE WHEN is_seen THEN other_asset END AS other_asset, score, found_at
        FROM (SELECT *, CAST(:owners AS text[]) IS NULL OR other_owner = ANY(:owners) AS is_seen
              FROM reference_conflicts
              WHERE CAST(:owners AS text[]) IS NULL OR owner = ANY(:owners)) AS conflicts
        ORDER BY found_at DESC, reference_id, reference_start LIMIT :limit"""),
        {"owners": None if owners is None else sorted(owners), "limit": limit},
    )
    return [dict(row) for row in rows.mappings()]


def read_totals(
    connection: Connection, owners: Collection[str] | None = None
) -> dict[str, dict[str, Any]]:
    """By owner: uploads that copy, seconds that are copied, seconds of references."""
    values = {"owners": None if owners is None else sorted(owners)}
    found: dict[str, dict[str, Any]] = {}
    for row in connection.execute(
        text("""
        SELECT owners.name AS owner, coalesce(sum(videos.duration), 0)::float AS reference_seconds,
               (SELECT count(*) FROM claims JOIN assets ON assets.id = claims.asset_id
                WHERE assets.owner_id = owners.id AND claims.status = 'potential') AS waiting
        FROM owners LEFT JOIN assets ON assets.owner_id = owners.id
        LEFT JOIN reference_videos ON reference_videos.asset_id = assets.id
        LEFT JOIN videos ON videos.id = reference_videos.video_id
        WHERE CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners)
        GROUP BY owners.id"""),
        values,
    ).mappings():
        found[row["owner"]] = {**row, "uploads": 0, "infringing_seconds": 0.0}
    for row in connection.execute(
        text("""
        SELECT owner, uploads, infringing_seconds::float AS infringing_seconds
        FROM infringing_seconds_by_owner
        WHERE CAST(:owners AS text[]) IS NULL OR owner = ANY(:owners)"""),
        values,
    ).mappings():
        found[row["owner"]].update(row)
    return found


def read_asset_totals(connection: Connection, owner: str) -> dict[str, dict[str, Any]]:
    """By asset of an owner: uploads that copy it and how many of their seconds it fills."""
    rows = connection.execute(
        text("""
        SELECT asset, uploads, infringing_seconds::float AS infringing_seconds
        FROM infringing_seconds_by_asset WHERE owner = :owner"""),
        {"owner": owner},
    )
    return {row["asset"]: dict(row) for row in rows.mappings()}
