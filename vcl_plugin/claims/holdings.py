"""Who owns what: pages of owners, of their assets, and of the references that show them.

In: what is wanted, whose holdings may be seen, and where the last page ended. Out: rows.
Every read takes the owners whose holdings the reader may see; None: all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound
from retrieval.paging import MOST, Page, cut_page, read_cursor
from vcl_plugin.claims.claims import STANDING

Rows = Page[dict[str, Any]]


def list_owners(
    connection: Connection,
    owners: Collection[str] | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Rows:
    """Owners by name, with how much they have and the policy that they follow."""
    [last] = read_cursor(after, "owners", str)
    rows = connection.execute(
        text("""
        SELECT owners.id, owners.name,
               (SELECT count(*) FROM assets WHERE owner_id = owners.id AND removed_at IS NULL)
                   AS assets,
               (SELECT count(*) FROM assets JOIN reference_videos ON asset_id = assets.id
                WHERE owner_id = owners.id) AS reference_videos,
               (SELECT count(*) FROM claims JOIN assets ON assets.id = asset_id
                WHERE owner_id = owners.id AND status = ANY(:standing)) AS standing_claims,
               policies.name AS policy, owners.created_at
        FROM owners LEFT JOIN policies ON policies.id = owners.policy_id
        WHERE (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
          AND (CAST(:last AS text) IS NULL OR owners.name > :last)
        ORDER BY owners.name LIMIT :limit"""),
        {**_reach(owners, limit), "last": last, "standing": list(STANDING)},
    )
    return _page(rows, limit, "owners", "name")


def list_assets(
    connection: Connection,
    owners: Collection[str] | None = None,
    owner: str | None = None,
    words: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Rows:
    """Assets that were not removed, by owner and title; `words` is a part of the title."""
    last_owner, last_title = read_cursor(after, "assets", str, str)
    rows = connection.execute(
        text(f"""
        SELECT {_ASSET}
        WHERE assets.removed_at IS NULL
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
          AND (CAST(:owner AS text) IS NULL OR owners.name = :owner)
          AND (CAST(:words AS text) IS NULL
               OR strpos(lower(assets.title), lower(:words)) > 0)
          AND (CAST(:last_title AS text) IS NULL
               OR (owners.name, assets.title) > (:last_owner, :last_title))
        ORDER BY owners.name, assets.title LIMIT :limit"""),
        {
            **_reach(owners, limit),
            **{"owner": owner, "words": words},
            **{"last_owner": last_owner, "last_title": last_title},
        },
    )
    return _page(rows, limit, "assets", "owner", "title")


def read_asset(
    connection: Connection, asset_id: int, owners: Collection[str] | None = None
) -> dict[str, Any]:
    """An asset and who holds which share of it where. One of others is not there."""
    row = (
        connection.execute(
            text(f"""
            SELECT {_ASSET} WHERE assets.id = :id
              AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))"""),
            {"id": asset_id, "owners": None if owners is None else sorted(owners)},
        )
        .mappings()
        .first()
    )
    if row is None:
        raise NotFound(f"there is no asset {asset_id}; `vcl asset list` shows them all")
    shares = connection.execute(
        text("""
        SELECT owners.name AS owner, territory, share::float AS percent FROM asset_owners
        JOIN owners ON owners.id = owner_id WHERE asset_id = :id
        ORDER BY territory, share DESC, owners.name"""),
        {"id": asset_id},
    )
    return {**row, "shares": [dict(each) for each in shares.mappings()]}


def list_references(
    connection: Connection,
    owners: Collection[str] | None = None,
    owner: str | None = None,
    asset_id: int | None = None,
    status: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Rows:
    """Reference videos, by owner, asset and title."""
    place = ("owner", "asset", "title", "id")
    last_owner, last_asset, last_title, last = read_cursor(after, "references", str, str, str, str)
    rows = connection.execute(
        text("""
        SELECT videos.id, videos.title, owners.name AS owner, assets.id AS asset_id,
               assets.title AS asset, videos.duration, videos.status, videos.reason,
               videos.message, videos.created_at
        FROM videos
        LEFT JOIN reference_videos ON reference_videos.video_id = videos.id
        LEFT JOIN assets ON assets.id = reference_videos.asset_id
        LEFT JOIN owners ON owners.id = assets.owner_id
        WHERE videos.is_reference
          AND (CAST(:owners AS text[]) IS NULL OR owners.name = ANY(:owners))
          AND (CAST(:owner AS text) IS NULL OR owners.name = :owner)
          AND (CAST(:asset AS bigint) IS NULL OR assets.id = :asset)
          AND (CAST(:status AS text) IS NULL OR videos.status = :status)
          AND (CAST(:last AS text) IS NULL
               OR (coalesce(owners.name, ''), coalesce(assets.title, ''), videos.title, videos.id)
                  > (:last_owner, :last_asset, :last_title, :last))
        ORDER BY coalesce(owners.name, ''), coalesce(assets.title, ''), videos.title, videos.id
        LIMIT :limit"""),
        {
            **_reach(owners, limit),
            **{"owner": owner, "asset": asset_id, "status": status},
            **{"last_owner": last_owner, "last_asset": last_asset},
            **{"last_title": last_title, "last": last},
        },
    )
    return _page(rows, limit, "references", *place)


def list_exclusions(connection: Connection, video_id: str) -> list[dict[str, Any]]:
    """The stretches of a reference that prove nothing."""
    rows = connection.execute(
        text("""
        SELECT id, lower(span)::float AS start, upper(span)::float AS "end", actor, note, claim_id,
               created_at
        FROM reference_exclusions WHERE video_id = :video ORDER BY lower(span), id"""),
        {"video": video_id},
    )
    return [dict(row) for row in rows.mappings()]


_ASSET = """
    assets.id, owners.name AS owner, assets.title,
    (SELECT count(*) FROM reference_videos WHERE asset_id = assets.id) AS reference_videos,
    policies.name AS policy, assets.created_at, assets.removed_at
    FROM assets JOIN owners ON owners.id = assets.owner_id
    LEFT JOIN policies ON policies.id = assets.policy_id"""


def _reach(owners: Collection[str] | None, limit: int | None) -> dict[str, Any]:
    """Whose rows, and how many; one more than a page has says that another follows."""
    return {
        "owners": None if owners is None else sorted(owners),
        "limit": None if limit is None else _clamp(limit) + 1,
    }


def _clamp(limit: int) -> int:
    return max(1, min(limit, MOST))


def _page(rows: Any, limit: int | None, kind: str, *place: str) -> Rows:
    found = [dict(row) for row in rows.mappings()]
    if limit is None:
        return Page(found, None)
    return cut_page(found, _clamp(limit), kind, lambda row: [row[each] or "" for each in place])
