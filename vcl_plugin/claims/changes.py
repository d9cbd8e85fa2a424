"""Changes of rules: who changed which, and which uploads follow it by now.

In: a rule that was just written, and whose matches it touches. Out: uploads settled under it, a few
at a time, and events of claims that name it.

A rule is written in one short transaction, with its change; recording waits for no more than that.
Then the uploads are settled in the order of their ids, a few in a transaction of their own that
also notes how far it came. Whoever records a match meanwhile does so under the new rule. What is
left when a command dies is settled by the next one, or beside a worker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction
from vcl_plugin.claims.claims import Change
from vcl_plugin.claims.settlement import find_matching_uploads, lock_uploads, settle_claims

# Uploads settled in one transaction. Whoever records a match of one of them waits for all.
BATCH = 8
# A change that moved on less than so many seconds ago is being settled by somebody.
AT_WORK = 10.0

Progress = Callable[[int, int], None]  # how many of how many uploads are settled


def note_change(
    connection: Connection,
    actor: str,
    what: str,
    asset_ids: Sequence[int] = (),
    reference_id: str | None = None,
    uploader: str | None = None,
    query_ids: Sequence[str] = (),
) -> int:
    """Write down who changed a rule, in the transaction that changes it; returns its number.

    `what` goes on from the actor's name: "excluded seconds 0 to 12 of film".
    """
    change_id = connection.execute(
        text("""
        INSERT INTO rule_changes (actor, what, asset_ids, reference_id, uploader, query_ids)
        VALUES (:actor, :what, :assets, :reference, :uploader, :queries) RETURNING id"""),
        {
            "actor": actor,
            "what": what,
            "assets": list(asset_ids),
            "reference": reference_id,
            "uploader": uploader,
            "queries": list(query_ids),
        },
    ).scalar_one()
    return int(change_id)


def note_settled(connection: Connection, actor: str, what: str) -> int:
    """A change whose uploads are all settled in the same transaction."""
    change_id = note_change(connection, actor, what)
    _close(connection, change_id)
    return change_id


def settle_change(
    database: Engine, change_id: int, report: Progress = lambda done, total: None
) -> list[int]:
    """Settle every upload that a change touches; returns the claims that expired by it.

    The uploads are read once the change is committed: who recorded before that is among them.
    """
    _settle_until(database, change_id, math.inf, report)
    with transaction(database) as connection:
        return list_expired(connection, change_id)


def settle_for(database: Engine, change_id: int, seconds: float) -> bool:
    """Settle uploads that a change touches, for about so long; returns whether it was all.

    What is left is settled beside a worker.
    """
    _settle_until(database, change_id, time.monotonic() + seconds, lambda done, total: None)
    with transaction(database) as connection:
        found = connection.execute(
            text("SELECT settled_at IS NOT NULL FROM rule_changes WHERE id = :id"),
            {"id": change_id},
        )
        return bool(found.scalar_one())


def list_expired(
    connection: Connection, change_id: int, owners: Collection[str] | None = None
) -> list[int]:
    """Claims that expired by a change, of these owners; None: of anybody."""
    expired = connection.execute(
        text("""
        SELECT DISTINCT claim_id FROM claim_events
        JOIN claims ON claims.id = claim_id
        JOIN assets ON assets.id = claims.asset_id
        JOIN owners ON owners.id = assets.owner_id
        WHERE change_id = :id AND to_status = 'expired'
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
        ORDER BY claim_id"""),
        {"id": change_id, "owners": None if owners is None else sorted(owners)},
    )
    return list(expired.scalars())


def settle_left(
    database: Engine, seconds: float = math.inf, report: Progress = lambda done, total: None
) -> None:
    """Settle what commands that died have left, for about so many seconds."""
    deadline = time.monotonic() + seconds
    with transaction(database) as connection:
        found = connection.execute(
            text("""
            SELECT id FROM rule_changes
            WHERE settled_at IS NULL AND moved_at < now() - :seconds * interval '1 second'
            ORDER BY id"""),
            {"seconds": AT_WORK},
        )
        left = list(found.scalars())
    for change_id in left:
        _settle_until(database, change_id, deadline, report)


def _settle_until(database: Engine, change_id: int, deadline: float, report: Progress) -> None:
    with transaction(database) as connection:
        left = _find_uploads(connection, change_id)
    total = len(left)
    report(0, total)
    while left:
        if time.monotonic() > deadline:
            return
        with transaction(database) as connection:
            _settle_some(connection, change_id, left[:BATCH])
        left = left[BATCH:]
        report(total - len(left), total)
    with transaction(database) as connection:
        _close(connection, change_id)


def _find_uploads(connection: Connection, change_id: int) -> list[str]:
    """Uploads that a change touches and that do not follow it yet, in the order of the database."""
    change = connection.execute(
        text("SELECT * FROM rule_changes WHERE id = :id AND settled_at IS NULL"), {"id": change_id}
    ).first()
    if change is None:
        return []
    references = [] if change.reference_id is None else [change.reference_id]
    found = find_matching_uploads(connection, references, change.uploader, change.asset_ids)
    left = connection.execute(
        text("""
        SELECT id FROM unnest(CAST(:ids AS text[])) AS id WHERE id > :settled_to ORDER BY id"""),
        {"ids": [*change.query_ids, *found], "settled_to": change.settled_to},
    )
    return list(left.scalars())


def _close(connection: Connection, change_id: int) -> None:
    connection.execute(
        text("UPDATE rule_changes SET settled_at = now() WHERE id = :id AND settled_at IS NULL"),
        {"id": change_id},
    )


def _settle_some(connection: Connection, change_id: int, query_ids: Sequence[str]) -> None:
    row = connection.execute(
        text("SELECT id, actor, what FROM rule_changes WHERE id = :id FOR NO KEY UPDATE"),
        {"id": change_id},
    ).one()
    change = Change(row.id, row.actor, row.what)
    lock_uploads(connection, query_ids)
    for query_id in query_ids:
        settle_claims(connection, query_id, change)
    connection.execute(
        text("""
        UPDATE rule_changes SET settled_to = greatest(settled_to, :id), moved_at = clock_timestamp()
        WHERE id = :change"""),
        {"id": query_ids[-1], "change": change_id},
    )
