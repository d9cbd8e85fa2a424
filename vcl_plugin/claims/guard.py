"""The guard against matches that accuse nobody: shared, empty, excluded, allowed, or outdated.

In: an upload's segments. Out: `segments.held`, the reason why one claims nothing by itself.
A held segment is kept and shown, never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from retrieval.records import Segment, Span
from retrieval.work.pairs import ASKED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Footage that as many unrelated owners hold is nobody's: a stock clip, a network's intro, an ad.
SHARED_OWNERS = 3
# The least score at which another owner's match says that they hold the footage, too.
STRONG = 0.3
# How much of a segment must be shared or excluded before the rest is too little to stand on.
COVERED = 0.8
# How much of a segment a later comparison must have found again to stand for it.
FOUND_AGAIN = 0.5
# Share of frames without information from which a segment has nothing to recognise.
EMPTY = 0.9


def is_low_information(segment: Segment, flags: NDArray[np.bool_]) -> bool:
    """Whether a segment shows nothing but black, flat colour or title cards in the query."""
    inside = flags[int(segment.query.start) : math.ceil(segment.query.end)]
    return bool(len(inside)) and float(inside.mean()) >= EMPTY


def cut_segment(segment: Segment, excluded: Sequence[Span]) -> list[Segment]:
    """What is left of a segment without the excluded stretches of its reference, piece by piece.

    >>> [left.query for left in cut_segment(Segment(Span(0, 10), Span(20, 40), 0.9), [Span(0, 24)])]
    [Span(start=2.0, end=10.0)]
    """
    if not excluded:
        return [segment]
    low, high = segment.reference.start, segment.reference.end
    kept: list[tuple[float, float]] = []
    for span in sorted(excluded):
        if min(span.start, high) > low:
            kept.append((low, min(span.start, high)))
        low = max(low, span.end)
    if low < high:
        kept.append((low, high))
    pieces = []
    for start, end in kept:
        first, last = sorted((segment.line.query_at(start), segment.line.query_at(end)))
        query = Span(max(first, segment.query.start), last)
        pieces.append(replace(segment, query=query, reference=Span(start, end)))
    return pieces


def hold_segments(connection: Connection, query_id: str) -> None:
    """Decide for every segment of an upload whether and why it is held.

    `low_information` is a fact of the frames and stays; the others follow the present rows. A
    query that is itself a `reference` is nobody's upload: what it shares is a conflict of owners.
    `superseded` is what a later comparison, by other weights or another method, found again and as
    evidence for the same asset: both would show one copy twice. Later is the one that was asked for
    last, whichever finished first: weights that were taken back stand in front again.
    """
    connection.execute(
        text(f"""
        WITH mine AS (
            SELECT segments.id, segments.query_id, segments.reference_id, segments.query_span,
                   segments.reference_span, segments.score, asked.asked_at, assets.id AS asset_id,
                   coalesce(claims.asset_id, assets.id) AS claimed_id, assets.owner_id,
                   reference_videos.asset_id IS NOT NULL AS is_protected
            FROM segments JOIN runs ON runs.id = segments.run_id
            JOIN {ASKED} AS asked ON asked.pair_id = runs.pair_id
            LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
            -- A reference that was removed still speaks in the claim that rests on it.
            LEFT JOIN claims ON claims.id = segments.claim_id
            LEFT JOIN assets
                ON assets.id = coalesce(reference_videos.asset_id, claims.asset_id)
            WHERE segments.query_id = :query
              AND segments.held IS DISTINCT FROM 'low_information'
        ), held_by AS MATERIALIZED (
            -- All that an owner matches at once: one localizer finds two pieces where another
            -- finds one. And once an owner, for comparing segments with segments is quadratic.
            SELECT owner_id, range_agg(query_span) AS spans
            FROM mine WHERE is_protected AND score >= :strong GROUP BY owner_id
        ), judged AS (
            SELECT mine.*, CASE
                WHEN EXISTS (SELECT 1 FROM reference_videos
                             WHERE reference_videos.video_id = mine.query_id) THEN 'reference'
                -- One upload that nobody allowed is enough for a claim.
                WHEN EXISTS (SELECT 1 FROM uploads WHERE uploads.query_id = mine.query_id)
                     AND NOT EXISTS (
                         SELECT 1 FROM uploads WHERE uploads.query_id = mine.query_id
                            AND NOT EXISTS (SELECT 1 FROM allowed_uploads AS allowed
                                            WHERE allowed.query_id = mine.query_id
                                              AND allowed.upload_id = uploads.id
                                              AND allowed.asset_id = mine.asset_id))
                    THEN 'allowed'
                WHEN (SELECT covered_seconds(range_agg(exclusions.span * mine.reference_span))
                      FROM reference_exclusions AS exclusions
                      WHERE exclusions.video_id = mine.reference_id
                        AND exclusions.span && mine.reference_span)
                     >= :covered * (upper(mine.reference_span) - lower(mine.reference_span))
                    THEN 'excluded'
                WHEN mine.is_protected
                 AND (SELECT count(*) FROM held_by AS other
                      WHERE other.owner_id <> mine.owner_id AND other.spans && mine.query_span
                        AND covered_seconds(other.spans * nummultirange(mine.query_span))
                            >= :covered * (upper(mine.query_span) - lower(mine.query_span)))
                     >= :others THEN 'shared_footage'
                END AS reason
            FROM mine
        ), strong AS MATERIALIZED (
            SELECT reference_id, asked_at, asset_id, range_agg(query_span) AS spans
            FROM judged WHERE reason IS NULL AND score >= :strong
            GROUP BY reference_id, asked_at, asset_id
        ), weak AS MATERIALIZED (
            SELECT * FROM judged WHERE reason IS NULL AND score < :strong
        ), settled AS (
            SELECT id, coalesce(reason, CASE
                WHEN (SELECT covered_seconds(range_agg(
                                 later.spans * nummultirange(judged.query_span)))
                      FROM (SELECT * FROM strong
                            -- What is too weak to count takes away only what is weaker still.
                            UNION ALL
                            SELECT weak.reference_id, weak.asked_at, weak.asset_id,
                                   nummultirange(weak.query_span)
                            FROM weak WHERE weak.score >= judged.score) AS later
                      WHERE later.reference_id = judged.reference_id
                        AND later.asked_at > judged.asked_at
                        AND later.spans && judged.query_span
                        AND later.asset_id IS NOT DISTINCT FROM judged.claimed_id)
                     >= :again * (upper(judged.query_span) - lower(judged.query_span))
                    THEN 'superseded'
                END) AS held
            FROM judged
        )
        UPDATE segments SET held = settled.held FROM settled
        WHERE settled.id = segments.id AND segments.held IS DISTINCT FROM settled.held"""),
        {
            "query": query_id,
            "covered": COVERED,
            "strong": STRONG,
            "again": FOUND_AGAIN,
            "others": SHARED_OWNERS - 1,
        },
    )
