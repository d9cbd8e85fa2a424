"""Turns: whoever records a match and whoever changes a rule about it go one after the other.

In: a reference, or owners. Out: locks that last until the caller's transaction ends.
Called before a worker writes segments, and before a person's rule is written.

A worker reads the rules for what it records, and a new rule is applied to what was recorded. Both
at once would miss each other, and the match would follow the old rule for good. Workers share
their locks, a rule takes them alone. Everybody takes them in one order, so that nobody waits in a
circle: references, rules of everybody, owners, then the rows of uploads, then those of claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from retrieval.work import locks
from retrieval.work.locks import Lock


def share_rules(connection: Connection, reference_id: str) -> None:
    """Let the rules about a reference, and of all who hold its asset, stay as they are."""
    locks.share(
        connection,
        locks.name_table(Lock.REFERENCE_RULES, reference_id),
        locks.name_table(Lock.COMMON_RULES),
    )
    facts = {"reference": reference_id}
    owner = connection.execute(
        text("""
        SELECT assets.owner_id FROM reference_videos
        JOIN assets ON assets.id = reference_videos.asset_id
        WHERE reference_videos.video_id = :reference"""),
        facts,
    ).scalars()
    locked = _share_owners(connection, list(owner), set())
    # Read once the asset is locked: before that, somebody might just get a share of it.
    holders = connection.execute(
        text("""
        SELECT DISTINCT asset_owners.owner_id
        FROM reference_videos JOIN asset_owners USING (asset_id)
        WHERE reference_videos.video_id = :reference"""),
        facts,
    ).scalars()
    _share_owners(connection, list(holders), locked)


def take_references(connection: Connection, reference_ids: Sequence[str]) -> None:
    """Let nobody record a match of these references until the transaction ends."""
    if reference_ids:
        locks.take(connection, Lock.REFERENCE_RULES, *reference_ids)


def take_owner(connection: Connection, owner_id: int) -> None:
    """Let nobody record a match of what this owner holds until the transaction ends."""
    locks.take(connection, Lock.OWNER_RULES, str(owner_id))


def take_everybody(connection: Connection) -> None:
    """Let nobody record a match until the transaction ends."""
    locks.take(connection, Lock.COMMON_RULES)


def _share_owners(connection: Connection, owner_ids: Sequence[int], held: set[str]) -> set[str]:
    """Share the locks of these owners that are not held yet; returns all that are held then."""
    tables = {locks.name_table(Lock.OWNER_RULES, str(each)) for each in owner_ids} - held
    if tables:
        locks.share(connection, *sorted(tables))
    return held | tables
