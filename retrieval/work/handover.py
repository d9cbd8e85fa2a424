"""Pairs that ask for another localizer than the worker has whom their message reached.

In: the pairs of a message, and the localizer of the worker. Out: pairs left to others, or taken
over where nobody else has their localizer any more. Every function is one step of the caller's
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from retrieval.work import locks, searches


def pass_on(connection: Connection, query_id: str, reference_ids: Sequence[str], model: str) -> int:
    """Leave pairs that wait for another localizer to the workers that have it; returns how many.

    Their message came to the wrong worker: the next sweep sends them again. No attempt counts.
    """
    changed = connection.execute(
        text("""
        UPDATE pairs SET sent_at = NULL, reason = 'other_localizer',
               message = 'a worker with ' || :model || ' left it to one with ' || pairs.model
        WHERE id IN (
            SELECT id FROM pairs
            WHERE query_id = :query AND reference_id = ANY(:references) AND model <> :model
              AND status = 'waiting' ORDER BY id FOR UPDATE SKIP LOCKED)"""),
        {"query": query_id, "references": list(reference_ids), "model": model},
    )
    return changed.rowcount


def adopt_orphans(
    connection: Connection, query_id: str, reference_ids: Sequence[str], model: str, seconds: float
) -> int:
    """Take over pairs that wait for a localizer which no worker has any more; returns how many.

    None has it if none began or finished a pair with it for so many seconds, as the last worker of
    an old version is gone. What was asked for is compared by the localizer that is there, once a
    sweep has sent it again.
    """
    facts = {"query": query_id, "references": list(reference_ids), "model": model}
    locks.take(connection, locks.Lock.PAIRS, query_id)
    orphans = connection.execute(
        text("""
        SELECT id, reference_id, settings_digest FROM pairs AS orphan
        WHERE query_id = :query AND reference_id = ANY(:references) AND model <> :model
          AND status = 'waiting' AND asked_at < now() - make_interval(secs => :seconds)
          AND NOT EXISTS (SELECT 1 FROM pairs WHERE pairs.model = orphan.model
                             AND (pairs.finished_at > now() - make_interval(secs => :seconds)
                                  OR pairs.status = 'running'))
        ORDER BY id FOR UPDATE"""),
        facts | {"seconds": seconds},
    ).all()
    for orphan in orphans:
        twin = connection.execute(
            text("""
            SELECT id FROM pairs WHERE query_id = :query AND reference_id = :reference
               AND model = :model AND settings_digest = :digest"""),
            facts | {"reference": orphan.reference_id, "digest": orphan.settings_digest},
        ).scalar()
        if twin is None:
            connection.execute(
                text("UPDATE pairs SET model = :model WHERE id = :id"),
                {"model": model, "id": orphan.id},
            )
        else:
            _merge(connection, orphan.id, twin)
    return len(orphans)


def _merge(connection: Connection, pair_id: int, twin_id: int) -> None:
    """Let the searches of a pair wait for its twin instead, and drop the pair."""
    facts = {"pair": pair_id, "twin": twin_id}
    connection.execute(
        text("""
        INSERT INTO search_pairs (search_id, pair_id, rank, score)
        SELECT search_id, :twin, rank, score FROM search_pairs WHERE pair_id = :pair
        ON CONFLICT DO NOTHING"""),
        facts,
    )
    connection.execute(
        text("""
        WITH gone AS (DELETE FROM search_pairs WHERE pair_id = :pair RETURNING search_id)
        UPDATE searches SET pairs_total = (
            SELECT count(*) FROM search_pairs
            WHERE search_id = searches.id AND pair_id <> :pair)
        WHERE id IN (SELECT search_id FROM gone)"""),
        facts,
    )
    connection.execute(text("DELETE FROM pairs WHERE id = :pair"), facts)
    searches.recount(connection)
