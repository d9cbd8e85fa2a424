"""Exceptions from claims: stretches that prove nothing, uses that are allowed, and shares.

In: numbers of them, and whose they are. Out: rows; revoked ones are gone, and the change is noted
for whoever settles the uploads anew. Every read takes the owners that the reader may see; None:
all. Each function is one step of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound
from vcl_plugin.claims.changes import note_change
from vcl_plugin.claims.turns import take_owner, take_references


def list_allowances(
    connection: Connection, owner: str | None = None, owners: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Who may use what, the newest first; an asset of none is all of the owner's."""
    rows = connection.execute(
        text("""
        SELECT allowances.id, owners.name AS owner, allowances.asset_id, assets.title AS asset,
               coalesce(allowances.uploader, uploads.uploader) AS uploader,
               uploads.query_id AS video_id, uploads.external_id, uploads.url,
               allowances.actor, allowances.note, allowances.created_at
        FROM allowances JOIN owners ON owners.id = allowances.owner_id
        LEFT JOIN assets ON assets.id = allowances.asset_id
        LEFT JOIN uploads ON uploads.id = allowances.upload_id
        WHERE (CAST(:owner AS text) IS NULL OR owners.name = :owner)
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
        ORDER BY allowances.id DESC"""),
        {"owner": owner, "owners": None if owners is None else sorted(owners)},
    )
    return [dict(row) for row in rows.mappings()]


def revoke_allowance(
    connection: Connection,
    allowance_id: int,
    actor: str,
    owners: Collection[str] | None = None,
) -> int:
    """Allow a use no more; returns the change that the uploads are to be settled by."""
    row = connection.execute(
        text("""
        SELECT allowances.owner_id, owners.name AS owner, allowances.asset_id,
               allowances.uploader, uploads.query_id
        FROM allowances JOIN owners ON owners.id = allowances.owner_id
        LEFT JOIN uploads ON uploads.id = allowances.upload_id
        WHERE allowances.id = :id
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))"""),
        {"id": allowance_id, "owners": None if owners is None else sorted(owners)},
    ).first()
    if row is None:
        raise NotFound(
            f"there is no allowance {allowance_id}; `vcl asset allowances` shows them all"
        )
    take_owner(connection, row.owner_id)
    connection.execute(text("DELETE FROM allowances WHERE id = :id"), {"id": allowance_id})
    return note_change(
        connection,
        actor,
        f"revoked allowance {allowance_id} of {row.owner}",
        uploader=row.uploader,
        query_ids=[] if row.query_id is None else [row.query_id],
    )


def list_exclusions(
    connection: Connection, video_id: str | None = None, owners: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Stretches of references that prove nothing, the newest first."""
    rows = connection.execute(
        text("""
        SELECT excluded.id, excluded.video_id, videos.title AS reference, owners.name AS owner,
               assets.title AS asset, lower(span)::float AS start, upper(span)::float AS end,
               excluded.claim_id, excluded.actor, excluded.note, excluded.created_at
        FROM reference_exclusions AS excluded JOIN videos ON videos.id = excluded.video_id
        LEFT JOIN reference_videos ON reference_videos.video_id = excluded.video_id
        LEFT JOIN assets ON assets.id = reference_videos.asset_id
        LEFT JOIN owners ON owners.id = assets.owner_id
        WHERE (CAST(:video AS text) IS NULL OR excluded.video_id = :video)
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
        ORDER BY excluded.id DESC"""),
        {"video": video_id, "owners": None if owners is None else sorted(owners)},
    )
    return [dict(row) for row in rows.mappings()]


def revoke_exclusion(
    connection: Connection,
    exclusion_id: int,
    actor: str,
    owners: Collection[str] | None = None,
) -> int:
    """Let a stretch prove something again; returns the change to settle by."""
    found = [
        each for each in list_exclusions(connection, owners=owners) if each["id"] == exclusion_id
    ]
    if not found:
        raise NotFound(
            f"there is no exclusion {exclusion_id}; `vcl reference exclusions` shows them all"
        )
    video_id, start, end = found[0]["video_id"], found[0]["start"], found[0]["end"]
    take_references(connection, [video_id])
    connection.execute(
        text("DELETE FROM reference_exclusions WHERE id = :id"), {"id": exclusion_id}
    )
    what = f"revoked exclusion {exclusion_id}, seconds {start:g} to {end:g} of {video_id}"
    return note_change(connection, actor, what, reference_id=video_id)


def list_shares(
    connection: Connection, asset_id: int | None = None, owners: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Who holds how much of which asset, and where."""
    rows = connection.execute(
        text("""
        SELECT asset_owners.asset_id, assets.title AS asset, owners.name AS owner,
               asset_owners.territory, asset_owners.share::float AS percent
        FROM asset_owners JOIN owners ON owners.id = asset_owners.owner_id
        JOIN assets ON assets.id = asset_owners.asset_id
        WHERE (CAST(:asset AS bigint) IS NULL OR asset_owners.asset_id = :asset)
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
        ORDER BY assets.title, asset_owners.asset_id, territory, owners.name"""),
        {"asset": asset_id, "owners": None if owners is None else sorted(owners)},
    )
    return [dict(row) for row in rows.mappings()]
