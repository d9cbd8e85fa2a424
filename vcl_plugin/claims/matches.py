"""What speaks for a claim: the segments of an upload by asset, and the evidence they make.

In: an upload, or assets. Out: segments by upload and asset, and the `Evidence` a policy judges.
Read by the settlement, which acts on it, and by the rehearsal, which does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from retrieval.records import Segment, Span
from vcl_plugin.claims.claims import STANDING
from vcl_plugin.claims.guard import cut_segment
from vcl_plugin.claims.policies import Evidence


def read_matches(
    connection: Connection, query_id: str | None = None, asset_ids: Collection[int] | None = None
) -> dict[tuple[str, int], list[Any]]:
    """By upload and asset the segments that speak for it, held ones too; of an upload, or of
    assets in all uploads.

    A reference that was moved takes its segments along to the other asset, but for those of a claim
    that a person decided. One that was removed leaves them to the claim if that stands, and
    raises none again.
    """
    rows = connection.execute(
        text("""
        SELECT segments.id, segments.query_id, assets.id AS asset_id, segments.reference_id,
               segments.held, segments.score, segments.is_reversed,
               lower(query_span)::float AS query_start, upper(query_span)::float AS query_end,
               lower(reference_span)::float AS reference_start,
               upper(reference_span)::float AS reference_end,
               query.title AS query, coalesce(query.duration, 0) AS query_seconds,
               coalesce(reference.duration, 0) AS reference_seconds
        FROM segments
        LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
        LEFT JOIN claims ON claims.id = segments.claim_id
        JOIN assets ON assets.removed_at IS NULL AND assets.id =
            CASE WHEN claims.id IS NULL OR claims.asset_id = reference_videos.asset_id
                      THEN reference_videos.asset_id
                 WHEN reference_videos.asset_id IS NULL
                      THEN CASE WHEN claims.status = ANY(:standing) THEN claims.asset_id END
                 WHEN EXISTS (SELECT 1 FROM claim_decisions WHERE claim_id = claims.id)
                      THEN claims.asset_id
                 ELSE reference_videos.asset_id END
        JOIN videos AS query ON query.id = segments.query_id
        JOIN videos AS reference ON reference.id = segments.reference_id
        WHERE (CAST(:query AS text) IS NULL OR segments.query_id = :query)
          AND (CAST(:assets AS bigint[]) IS NULL OR reference_videos.asset_id = ANY(:assets))
        ORDER BY segments.query_id, assets.id, segments.id"""),
        {
            "query": query_id,
            "assets": None if asset_ids is None else list(asset_ids),
            "standing": list(STANDING),
        },
    ).all()
    groups: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        if asset_ids is None or row.asset_id in asset_ids:
            groups.setdefault((row.query_id, row.asset_id), []).append(row)
    return groups


def read_exclusions(connection: Connection, rows: Iterable[Any]) -> dict[str, list[Span]]:
    """Excluded stretches of the references that these segments show."""
    found = connection.execute(
        text("""
        SELECT video_id, lower(span)::float AS low, upper(span)::float AS high
        FROM reference_exclusions WHERE video_id = ANY(:references)"""),
        {"references": list({row.reference_id for row in rows})},
    )
    exclusions: dict[str, list[Span]] = {}
    for row in found:
        exclusions.setdefault(row.video_id, []).append(Span(row.low, row.high))
    return exclusions


def gather_evidence(rows: Sequence[Any], exclusions: Mapping[str, Sequence[Span]]) -> Evidence:
    """What a policy judges: segments that are not held, without what is excluded of them."""
    segments: dict[str, list[Segment]] = {}
    for row in rows:
        if row.held is None:
            query = Span(row.query_start, row.query_end)
            reference = Span(row.reference_start, row.reference_end)
            whole = Segment(query, reference, row.score, row.is_reversed)
            left = cut_segment(whole, exclusions.get(row.reference_id, ()))
            segments.setdefault(row.reference_id, []).extend(left)
    lengths = {row.reference_id: row.reference_seconds for row in rows}
    return Evidence(segments, rows[0].query_seconds, lengths, rows[0].query)
