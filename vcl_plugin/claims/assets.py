"""Owners, their assets (works), and the reference videos that show them.

In: names and titles. Out: rows in `owners`, `assets`, `reference_videos`.
Every function is one step of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused
from retrieval.work import catalogue
from vcl_plugin.claims.settlement import find_matching_uploads, lock_uploads, settle_again
from vcl_plugin.claims.turns import take_references


def add_asset(connection: Connection, owner: str, title: str) -> int:
    """The asset of that owner and title, made if it is new, brought back if it was removed."""
    for name, value in (("owner", owner), ("title", title)):
        if not value.strip():
            raise Refused(f"the {name} of an asset must not be empty")
    connection.execute(
        text("INSERT INTO owners (name) VALUES (:name) ON CONFLICT DO NOTHING"), {"name": owner}
    )
    connection.execute(
        text("""
        INSERT INTO assets (owner_id, title) SELECT id, :title FROM owners WHERE name = :owner
        ON CONFLICT (owner_id, title) DO UPDATE SET removed_at = NULL
        WHERE assets.removed_at IS NOT NULL"""),
        {"owner": owner, "title": title},
    )
    asset_id = connection.execute(
        text("""
        SELECT assets.id FROM assets JOIN owners ON owners.id = assets.owner_id
        WHERE owners.name = :owner AND assets.title = :title"""),
        {"owner": owner, "title": title},
    ).scalar_one()
    connection.execute(
        text("""
        INSERT INTO asset_owners (asset_id, owner_id, territory, share)
        SELECT id, owner_id, 'WW', 100 FROM assets
        WHERE id = :asset AND NOT EXISTS (SELECT 1 FROM asset_owners WHERE asset_id = :asset)"""),
        {"asset": asset_id},
    )
    return int(asset_id)


def find_asset(connection: Connection, name: str) -> int:
    """An asset by its number or its title; a title that two owners share must be a number.

    A number is a number, whatever is titled so: else nobody could name the asset that has it.
    """
    rows = connection.execute(
        text("""
        SELECT assets.id, assets.title, assets.removed_at, owners.name AS owner FROM assets
        JOIN owners ON owners.id = assets.owner_id
        WHERE assets.title = :name OR assets.id::text = :name ORDER BY assets.id"""),
        {"name": name},
    ).all()
    rows = [row for row in rows if str(row.id) == name] or rows
    removed = [row for row in rows if row.removed_at is not None]
    rows = [row for row in rows if row.removed_at is None]
    if removed and not rows:
        gone = removed[0]
        raise Refused(
            f"asset {gone.id} {gone.title!r} was removed on {gone.removed_at:%Y-%m-%d}; bring it "
            f'back with `vcl asset add "{gone.title}" --owner "{gone.owner}"`'
        )
    if not rows:
        raise NotFound(f"there is no asset {name!r}; `vcl asset list` shows them all")
    if len(rows) > 1:
        choices = ", ".join(f"{row.id} ({row.owner})" for row in rows)
        raise Refused(f"{name!r} names several assets; say which by number: {choices}")
    return int(rows[0].id)


def find_titled(connection: Connection, name: str) -> tuple[str, str | None]:
    """Title and owner of the asset with that number, or that title of anybody's; removed or not."""
    found = connection.execute(
        text("""
        SELECT assets.title, CASE WHEN assets.id::text = :name THEN owners.name END AS owner
        FROM assets JOIN owners ON owners.id = assets.owner_id
        WHERE assets.title = :name OR assets.id::text = :name
        ORDER BY assets.id::text = :name DESC LIMIT 1"""),
        {"name": name},
    ).first()
    if found is None:
        raise NotFound(f"there is no asset {name!r}; `vcl asset list` shows them all")
    return found.title, found.owner


def require_asset(
    connection: Connection, asset_id: int, owners: Collection[str] | None = None
) -> None:
    """Raise the same error for an asset that is not there and for one of others."""
    if not is_visible(connection, asset_id, owners):
        raise NotFound(f"there is no asset {asset_id}; `vcl asset list` shows them all")


def is_visible(
    connection: Connection, asset_id: int | None, owners: Collection[str] | None = None
) -> bool:
    """Whether there is such an asset, of one of these owners; None: of anybody."""
    found = connection.execute(
        text("""
        SELECT 1 FROM assets JOIN owners ON owners.id = assets.owner_id
        WHERE assets.id = :asset
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))"""),
        {"asset": asset_id, "owners": None if owners is None else sorted(owners)},
    )
    return found.first() is not None


def find_holder(connection: Connection, video_id: str) -> int | None:
    """The asset that a video stands for."""
    found = connection.execute(
        text("SELECT asset_id FROM reference_videos WHERE video_id = :video"), {"video": video_id}
    ).scalar()
    return None if found is None else int(found)


def remove_asset(connection: Connection, asset_id: int) -> list[str]:
    """Protect an asset no more; returns its reference videos, which are no longer searched against.

    Its row stays, for claims and their history refer to it. Claims that stand can be released and
    nothing else.
    """
    references = text("SELECT video_id FROM reference_videos WHERE asset_id = :asset ORDER BY 1")
    # All of them locked before the first is changed, in the order in which everybody locks.
    take_references(connection, list(connection.execute(references, {"asset": asset_id}).scalars()))
    connection.execute(
        text("UPDATE assets SET removed_at = now() WHERE id = :asset"), {"asset": asset_id}
    )
    removed = list(connection.execute(references, {"asset": asset_id}).scalars())
    lock_uploads(connection, [*removed, *find_matching_uploads(connection, removed)])
    for video_id in removed:
        remove_reference(connection, video_id)
    return removed


def add_reference(connection: Connection, video_id: str, asset_id: int) -> None:
    """Let a video stand for an asset and be searched against.

    If it was an upload before, what it shares with others is a conflict now and no claim. If it was
    a reference before, what was found of it counts for this asset.
    """
    take_references(connection, [video_id])
    asset = connection.execute(
        text("SELECT title, removed_at FROM assets WHERE id = :asset FOR SHARE"),
        {"asset": asset_id},
    ).first()
    if asset is None:
        raise NotFound(f"there is no asset {asset_id}; `vcl asset list` shows them all")
    catalogue.read_video(connection, video_id)
    if asset.removed_at is not None:
        raise Refused(
            f"asset {asset_id} {asset.title!r} was removed on {asset.removed_at:%Y-%m-%d}, so "
            f"video {video_id} cannot stand for it; bring it back with `vcl asset add` first"
        )
    holder = connection.execute(
        text("""
        INSERT INTO reference_videos (video_id, asset_id) VALUES (:video, :asset)
        ON CONFLICT (video_id) DO UPDATE SET video_id = excluded.video_id
        RETURNING asset_id"""),
        {"video": video_id, "asset": asset_id},
    ).scalar_one()
    if holder != asset_id:
        raise Refused(
            f"video {video_id} is a reference of asset {holder} already, so it cannot stand for "
            f"asset {asset_id}; remove it there first with `vcl reference remove {video_id}`"
        )
    _settle_around(connection, video_id)
    catalogue.make_reference(connection, video_id)


def remove_reference(connection: Connection, video_id: str) -> None:
    """Search against the video no more; segments and claims found so far stay.

    As an upload it can be claimed again, and footage that it shared with others counts for them.
    """
    take_references(connection, [video_id])
    connection.execute(
        text("DELETE FROM reference_videos WHERE video_id = :video"), {"video": video_id}
    )
    _settle_around(connection, video_id)
    catalogue.unmake_reference(connection, video_id)


def _settle_around(connection: Connection, video_id: str) -> None:
    """Settle a video, and the uploads in which it was found, before the log of the index is
    touched: all who write that wait for each other, so it comes last.
    """
    settle_again(connection, [video_id, *find_matching_uploads(connection, [video_id])])


def list_conflicts(connection: Connection, video_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Footage of these references that references of other owners hold too."""
    rows = connection.execute(
        text("""
        SELECT reference, reference_id, reference_start, reference_end, other_owner, other_asset,
               other_reference, other_reference_id, other_start, other_end, score
        FROM reference_conflicts
        WHERE reference_id = ANY(:ids)
        ORDER BY reference, reference_start, other_owner"""),
        {"ids": list(video_ids)},
    )
    return [dict(row) for row in rows.mappings()]
