"""Segments in the database: written once for a pair, whatever is delivered twice.

In: a leased pair and what its localizer found. Out: rows in `runs` and `segments`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, text

from retrieval.paging import MOST, Page, cut_page, read_cursor
from retrieval.records import Pair, Segment
from vcl_plugin.claims.turns import share_rules

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What one localization gave, and how it was made."""

    segments: Sequence[Segment]
    is_empty: Sequence[bool]  # which of them show only frames without information
    localizer: str
    worker: str
    seconds: float


def record_segments(connection: Connection, pair: Pair, outcome: Outcome) -> int | None:
    """Write the run and its segments, to the millisecond; None if the pair was recorded before.

    Before any row of the upload is locked: a rule about the reference goes first or waits.
    """
    if outcome.segments:
        share_rules(connection, pair.reference_id)
    run_id = connection.execute(
        text("""
        INSERT INTO runs (pair_id, localizer, worker, seconds)
        VALUES (:pair, :localizer, :worker, :seconds)
        ON CONFLICT (pair_id) DO NOTHING RETURNING id"""),
        {
            "pair": pair.id,
            "localizer": outcome.localizer,
            "worker": outcome.worker,
            "seconds": outcome.seconds,
        },
    ).scalar()
    if run_id is None:
        return None
    log.info(
        "localized pair=%d query=%s reference=%s segments=%d seconds=%.3f",
        pair.id,
        pair.query_id,
        pair.reference_id,
        len(outcome.segments),
        outcome.seconds,
    )
    ends = _read_ends(connection, pair)
    rows = [
        {
            "run": run_id,
            "query": pair.query_id,
            "reference": pair.reference_id,
            "is_empty": is_empty,
            **_rounded(segment, *ends),
        }
        for segment, is_empty in zip(outcome.segments, outcome.is_empty, strict=True)
    ]
    # What is shorter than a millisecond is no copy, and an empty range in the table.
    rows = [
        row
        for row in rows
        if row["query_start"] < row["query_end"] and row["reference_start"] < row["reference_end"]
    ]
    if rows:
        connection.execute(
            text("""
            INSERT INTO segments (run_id, query_id, reference_id, query_span, reference_span,
                                  score, is_reversed, speed, held)
            VALUES (:run, :query, :reference,
                    numrange(CAST(:query_start AS numeric), CAST(:query_end AS numeric)),
                    numrange(CAST(:reference_start AS numeric), CAST(:reference_end AS numeric)),
                    :score, :is_reversed, :speed,
                    CASE WHEN :is_empty THEN 'low_information' END)"""),
            rows,
        )
    return int(run_id)


def _read_ends(connection: Connection, pair: Pair) -> tuple[float, float]:
    """When query and reference end; never, where nobody knows.

    A frame stands for a whole second, so the last one of a video reaches past its end.
    """
    found = connection.execute(
        text("SELECT id, duration FROM videos WHERE id IN (:query, :reference) AND duration > 0"),
        {"query": pair.query_id, "reference": pair.reference_id},
    )
    durations = {row.id: float(row.duration) for row in found}
    return (
        durations.get(pair.query_id, math.inf),
        durations.get(pair.reference_id, math.inf),
    )


def _rounded(segment: Segment, query_ends: float, reference_ends: float) -> dict[str, Any]:
    """The segment's columns, its ends to the millisecond and within the videos."""
    row = segment.as_dict()
    limits = {
        **dict.fromkeys(("query_start", "query_end"), query_ends),
        **dict.fromkeys(("reference_start", "reference_end"), reference_ends),
    }
    return {**row, **{end: round(min(row[end], limit), 3) for end, limit in limits.items()}}


@dataclass(frozen=True)
class SegmentFilter:
    """Which segments are meant; what is None does not narrow."""

    claim_id: int | None = None
    search_id: str | None = None
    query_id: str | None = None
    reference_id: str | None = None
    asset_id: int | None = None
    owner: str | None = None
    is_claimed: bool | None = None
    is_reversed: bool | None = None
    held: str | None = None
    min_score: float | None = None
    min_seconds: float | None = None


def list_segments(
    connection: Connection,
    wanted: SegmentFilter | None = None,
    owners: Collection[str] | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Page[dict[str, Any]]:
    """A page of segments, the newest first, of references that these owners' people may see.

    A segment is of the asset that claims it, or else of the one that its reference shows.
    """
    limit = max(1, min(limit, MOST))
    [last] = read_cursor(after, "segments", int)
    rows = connection.execute(
        text("""
        SELECT segments.id, segments.query_id, query.title AS query, segments.reference_id,
               reference.title AS reference, assets.id AS asset_id, assets.title AS asset,
               owners.name AS owner, segments.claim_id, claims.status AS claim_status,
               lower(segments.query_span)::float AS query_start,
               upper(segments.query_span)::float AS query_end,
               lower(segments.reference_span)::float AS reference_start,
               upper(segments.reference_span)::float AS reference_end,
               segments.score, segments.is_reversed, segments.speed, segments.held,
               segments.created_at
        FROM segments
        JOIN videos AS query ON query.id = segments.query_id
        JOIN videos AS reference ON reference.id = segments.reference_id
        LEFT JOIN claims ON claims.id = segments.claim_id
        LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
        LEFT JOIN assets ON assets.id = coalesce(claims.asset_id, reference_videos.asset_id)
        LEFT JOIN owners ON owners.id = assets.owner_id
        WHERE segments.held IS DISTINCT FROM 'superseded'
          AND (CAST(:last AS bigint) IS NULL OR segments.id < :last)
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
          AND (CAST(:claim_id AS bigint) IS NULL OR segments.claim_id = :claim_id)
          AND (CAST(:query_id AS text) IS NULL OR segments.query_id = :query_id)
          AND (CAST(:reference_id AS text) IS NULL OR segments.reference_id = :reference_id)
          AND (CAST(:asset_id AS bigint) IS NULL OR assets.id = :asset_id)
          AND (CAST(:owner AS text) IS NULL OR owners.name = :owner)
          AND (CAST(:is_claimed AS boolean) IS NULL
               OR (segments.claim_id IS NOT NULL) = :is_claimed)
          AND (CAST(:is_reversed AS boolean) IS NULL OR segments.is_reversed = :is_reversed)
          AND (CAST(:held AS text) IS NULL OR segments.held = :held)
          AND (CAST(:min_score AS float) IS NULL OR segments.score >= :min_score)
          AND (CAST(:min_seconds AS float) IS NULL OR segments.seconds >= :min_seconds)
          AND (CAST(:search_id AS text) IS NULL OR segments.run_id IN (
                   SELECT runs.id FROM search_pairs
                   JOIN runs ON runs.pair_id = search_pairs.pair_id
                   WHERE search_pairs.search_id = :search_id))
        ORDER BY segments.id DESC LIMIT :limit"""),
        {
            **asdict(wanted or SegmentFilter()),
            "owners": None if owners is None else sorted(owners),
            **{"last": last, "limit": limit + 1},
        },
    )
    found = [dict(row) for row in rows.mappings()]
    return cut_page(found, limit, "segments", lambda row: [row["id"]])


def read_segments(connection: Connection, search_id: str) -> list[dict[str, Any]]:
    """Every segment of a search, claimed or not, in the order of the query."""
    rows = connection.execute(
        text("""
        SELECT query_id, reference_id, reference, asset, owner, claim_id, query_start, query_end,
               reference_start, reference_end, score, is_reversed, speed, held
        FROM search_segments WHERE search_id = :search ORDER BY query_start, segment_id"""),
        {"search": search_id},
    )
    return [dict(row) for row in rows.mappings()]
