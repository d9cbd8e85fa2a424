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

from retrieval.work.locks import Lock

_EVERYBODY = 0


def share_rules(connection: Connection, reference_id: str) -> None:
    """Let the rules about a reference, and of all who hold its asset, stay as they are."""
    connection.execute(
        text("SELECT pg_advisory_xact_lock_shared(:lock, hashtext(:reference))"),
        {"lock": Lock.REFERENCE_RULES, "reference": reference_id},
    )
    connection.execute(
        text("SELECT pg_advisory_xact_lock_shared(:lock, :everybody)"),
        {"lock": Lock.OWNER_RULES, "everybody": _EVERYBODY},
    )
    connection.execute(
        text("""
        SELECT pg_advisory_xact_lock_shared(:lock, assets.owner_id::int)
        FROM reference_videos JOIN assets ON assets.id = reference_videos.asset_id
        WHERE reference_videos.video_id = :reference"""),
        {"lock": Lock.OWNER_RULES, "reference": reference_id},
    )
    # Read once the asset is locked: before that, somebody might just get a share of it.
    connection.execute(
        text("""
        SELECT pg_advisory_xact_lock_shared(:lock, holders.owner_id::int)
        FROM (SELECT DISTINCT asset_owners.owner_id
              FROM reference_videos JOIN asset_owners USING (asset_id)
              WHERE reference_videos.video_id = :reference) AS holders"""),
        {"lock": Lock.OWNER_RULES, "reference": reference_id},
    )


def take_references(connection: Connection, reference_ids: Sequence[str]) -> None:
    """Let nobody record a match of these references until the transaction ends."""
    connection.execute(
        text("""
        SELECT pg_advisory_xact_lock(:lock, key)
        FROM (SELECT DISTINCT hashtext(id) AS key FROM unnest(CAST(:ids AS text[])) AS id
              ORDER BY key) AS keys"""),
        {"lock": Lock.REFERENCE_RULES, "ids": list(reference_ids)},
    )


def take_owner(connection: Connection, owner_id: int) -> None:
    """Let nobody record a match of what this owner holds until the transaction ends."""
    connection.execute(
        text("SELECT pg_advisory_xact_lock(:lock, :owner)"),
        {"lock": Lock.OWNER_RULES, "owner": owner_id},
    )


def take_everybody(connection: Connection) -> None:
    """Let nobody record a match until the transaction ends."""
    take_owner(connection, _EVERYBODY)
