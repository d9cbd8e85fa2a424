"""Segments in the database: written once for a pair, whatever is delivered twice.

In: a leased pair and what its localizer found. Out: rows in `runs` and `segments`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

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


def read_segments(connection: Connection, search_id: str) -> list[dict[str, Any]]:
    """Every segment of a search, claimed or not, in the order of the query."""
    rows = connection.execute(
        text("""
        SELECT segments.query_id, segments.reference_id, reference.title AS reference,
               assets.title AS asset, owners.name AS owner, segments.claim_id,
               lower(segments.query_span)::float AS query_start,
               upper(segments.query_span)::float AS query_end,
               lower(segments.reference_span)::float AS reference_start,
               upper(segments.reference_span)::float AS reference_end,
               segments.score, segments.is_reversed, segments.speed, segments.held
        FROM search_pairs
        JOIN runs ON runs.pair_id = search_pairs.pair_id
        JOIN segments ON segments.run_id = runs.id
        JOIN videos AS reference ON reference.id = segments.reference_id
        LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
        LEFT JOIN assets ON assets.id = reference_videos.asset_id
        LEFT JOIN owners ON owners.id = assets.owner_id
        WHERE search_pairs.search_id = :search
        ORDER BY lower(segments.query_span), segments.id"""),
        {"search": search_id},
    )
    return [dict(row) for row in rows.mappings()]
