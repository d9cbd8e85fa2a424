"""Who may do what with an asset: ownership by territory, policies, exclusions, allowances.

In: an owner's decisions. Out: rows that every later claim obeys.
Every function is one step of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused
from retrieval.paging import Page, cut_page, read_cursor
from retrieval.records import Span
from retrieval.work.uploads import find_uploads
from vcl_plugin.claims.policies import WORLD, Policy, Rule, name_territories
from vcl_plugin.claims.turns import take_everybody, take_owner, take_references


def set_ownership(
    connection: Connection, asset_id: int, owner: str, share: float, territory: str = WORLD
) -> None:
    """Let an owner hold `share` per cent of an asset in a territory; all shares stay within 100.

    A share of 0 gives it up, so that an asset can change hands.
    """
    if not 0 <= share <= 100:
        raise Refused(f"a share of {share:g} % is impossible; it must be between 0 and 100")
    if not owner.strip():
        raise Refused("the name of an owner must not be empty")
    check_territories(connection, [territory])
    _take_asset(connection, asset_id)
    connection.execute(
        # Not more: a claim that is raised meanwhile refers to this row.
        text("SELECT 1 FROM assets WHERE id = :asset FOR NO KEY UPDATE"),
        {"asset": asset_id},
    )
    connection.execute(
        text("INSERT INTO owners (name) VALUES (:name) ON CONFLICT DO NOTHING"), {"name": owner}
    )
    others = float(
        connection.execute(
            text("""
            SELECT coalesce(sum(share), 0) FROM asset_owners
            JOIN owners ON owners.id = asset_owners.owner_id
            WHERE asset_id = :asset AND territory = :territory AND owners.name <> :owner"""),
            {"asset": asset_id, "territory": territory, "owner": owner},
        ).scalar_one()
    )
    if others + share > 100:
        raise Refused(
            f"asset {asset_id} would be owned to {others + share:g} % in {territory}: others hold "
            f"{others:g} %, so {owner!r} can hold at most {100 - others:g} %"
        )
    if share == 0:
        connection.execute(
            text("""
            DELETE FROM asset_owners WHERE asset_id = :asset AND territory = :territory
               AND owner_id = (SELECT id FROM owners WHERE name = :owner)"""),
            {"asset": asset_id, "territory": territory, "owner": owner},
        )
        return
    connection.execute(
        text("""
        INSERT INTO asset_owners (asset_id, owner_id, territory, share)
        SELECT :asset, id, :territory, :share FROM owners WHERE name = :owner
        ON CONFLICT (asset_id, territory, owner_id) DO UPDATE SET share = excluded.share"""),
        {"asset": asset_id, "territory": territory, "share": share, "owner": owner},
    )


def add_policy(connection: Connection, policy: Policy, author: str = "unknown") -> int:
    """Write a policy, or the next version of one; returns the version. Earlier ones are kept."""
    for rule in policy.rules:
        check_territories(connection, sorted(rule.territories))
    take_everybody(connection)
    connection.execute(
        text("INSERT INTO policies (name) VALUES (:name) ON CONFLICT DO NOTHING"),
        {"name": policy.name},
    )
    version: int = connection.execute(
        text("""
        UPDATE policies SET version = 1 + coalesce(
            (SELECT max(version) FROM policy_versions WHERE policy_id = policies.id), 0)
        WHERE name = :name RETURNING version"""),
        {"name": policy.name},
    ).scalar_one()
    key = {"name": policy.name, "version": version}
    connection.execute(
        text("""
        INSERT INTO policy_versions (policy_id, version, author)
        SELECT id, version, :author FROM policies WHERE name = :name"""),
        {"name": policy.name, "author": author},
    )
    connection.execute(
        text("""
        INSERT INTO policy_rules (policy_id, version, position, action, min_seconds,
                                  min_query_share, min_reference_share, min_score, territories)
        SELECT id, :version, :position, :action, :min_seconds, :min_query_share,
               :min_reference_share, :min_score, CAST(:territories AS text[])
        FROM policies WHERE name = :name"""),
        [
            {
                **{**key, "position": position},
                **{**asdict(rule), "territories": sorted(rule.territories)},
            }
            for position, rule in enumerate(policy.rules, start=1)
        ],
    )
    return version


def read_policy(connection: Connection, name: str) -> Policy:
    rows = connection.execute(
        text("""
        SELECT policy_rules.* FROM policies
        JOIN policy_rules ON policy_id = policies.id AND policy_rules.version = policies.version
        WHERE policies.name = :name ORDER BY position"""),
        {"name": name},
    ).all()
    if not rows:
        raise NotFound(f"there is no policy {name!r}; `vcl policy list` shows them all")
    return Policy(name, tuple(_rule(row) for row in rows), rows[0].version)


def read_asset_policies(connection: Connection, asset_id: int) -> dict[str, Policy]:
    """By territory the policy that decides there: the asset's own, else that of whoever holds most
    of it there, else the default.

    An asset of which nobody holds a share is held by who registered it. Where the world is held,
    every territory that a rule names and nobody else holds is decided, too.
    """
    rows = connection.execute(
        text("""
        SELECT held.territory, coalesce(own.name, holders_policy.name, 'default') AS policy
        FROM assets
        CROSS JOIN LATERAL (
            SELECT DISTINCT ON (territory) territory, owner_id
            FROM (SELECT territory, owner_id, share FROM asset_owners
                  WHERE asset_id = assets.id
                  UNION ALL SELECT :world, assets.owner_id, 100
                  WHERE NOT EXISTS (SELECT 1 FROM asset_owners WHERE asset_id = assets.id)
                 ) AS shares
            ORDER BY territory, share DESC, owner_id <> assets.owner_id, owner_id) AS held
        JOIN owners ON owners.id = held.owner_id
        LEFT JOIN policies AS own ON own.id = assets.policy_id
        LEFT JOIN policies AS holders_policy ON holders_policy.id = owners.policy_id
        WHERE assets.id = :asset"""),
        {"asset": asset_id, "world": WORLD},
    ).all()
    known = {name: read_policy(connection, name) for name in {row.policy for row in rows}}
    held = {row.territory: known[row.policy] for row in rows}
    if WORLD in held:
        everywhere = name_territories(held[WORLD], [WORLD])
        held = dict.fromkeys(everywhere, held[WORLD]) | held
    return held


def list_followers(connection: Connection, name: str, owner: str | None = None) -> list[int]:
    """Assets that a policy rules, or may in some territory: as their own, or by who holds them.

    Whoever has chosen none follows the default. `owner` narrows it to what that one holds.
    """
    found = connection.execute(
        text("""
        SELECT DISTINCT assets.id FROM assets
        LEFT JOIN asset_owners ON asset_owners.asset_id = assets.id
        JOIN owners ON owners.id IN (assets.owner_id, asset_owners.owner_id)
        JOIN policies ON policies.name = :name
        WHERE (CAST(:owner AS text) IS NULL OR owners.name = :owner)
          AND (coalesce(assets.policy_id, owners.policy_id) = policies.id
               OR (coalesce(assets.policy_id, owners.policy_id) IS NULL
                   AND policies.name = 'default'))
        ORDER BY assets.id"""),
        {"name": name, "owner": owner},
    )
    return list(found.scalars())


def list_policies(connection: Connection, with_history: bool = False) -> list[dict[str, Any]]:
    """Policies as they are now, rule by rule, or in every version that they had."""
    return list(page_policies(connection, with_history, None).rows)


def page_policies(
    connection: Connection,
    with_history: bool = False,
    limit: int | None = 200,
    after: str | None = None,
) -> Page[dict[str, Any]]:
    """A page of rules of policies."""
    last_policy, last_version, last_rule = read_cursor(after, "policies", str, int, int)
    rows = connection.execute(
        text("""
        SELECT policies.name AS policy, position AS rule, action, min_seconds, min_query_share,
               min_reference_share, min_score, territories, policy_rules.version, author,
               policy_versions.created_at AS written_at
        FROM policy_rules JOIN policy_versions USING (policy_id, version)
        JOIN policies ON policies.id = policy_id
        WHERE (:all OR policy_rules.version = policies.version)
          AND (CAST(:last_rule AS bigint) IS NULL
               OR (policies.name, policy_rules.version, position)
                  > (CAST(:last_policy AS text), CAST(:last_version AS bigint), :last_rule))
        ORDER BY policies.name, policy_rules.version, position LIMIT :limit"""),
        {
            **{"all": with_history, "limit": None if limit is None else limit + 1},
            **{"last_policy": last_policy, "last_version": last_version, "last_rule": last_rule},
        },
    )
    found = [dict(row) for row in rows.mappings()]
    if limit is None:
        return Page(found, None)
    return cut_page(
        found, limit, "policies", lambda row: [row["policy"], row["version"], row["rule"]]
    )


def assign_policy(
    connection: Connection, name: str, asset_id: int | None = None, owner: str | None = None
) -> None:
    """Let an asset, or everything of an owner that has no policy of its own, follow a policy."""
    read_policy(connection, name)
    if owner is not None:
        table, row_id = "owners", find_owner(connection, owner)
        take_owner(connection, row_id)
    elif asset_id is not None:
        table, row_id = "assets", asset_id
        _take_asset(connection, asset_id)
    else:
        raise Refused("say what follows the policy: either an asset or an owner")
    connection.execute(
        text(f"""
        UPDATE {table} SET policy_id = (SELECT id FROM policies WHERE name = :policy)
        WHERE id = :id"""),
        {"policy": name, "id": row_id},
    )


def find_owner(connection: Connection, name: str) -> int:
    owner_id = connection.execute(
        text("SELECT id FROM owners WHERE name = :name"), {"name": name}
    ).scalar()
    if owner_id is None:
        raise _missing_owner(name)
    return int(owner_id)


def require_owner(connection: Connection, name: str, owners: Collection[str] | None = None) -> None:
    """Raise the same error for an owner that is not there and for one of others."""
    if owners is not None and name not in owners:
        raise _missing_owner(name)
    find_owner(connection, name)


def _missing_owner(name: str) -> NotFound:
    return NotFound(f"there is no owner {name!r}; `vcl asset list` shows them all")


def exclude_span(
    connection: Connection,
    video_id: str,
    span: Span,
    actor: str,
    note: str | None = None,
    claim_id: int | None = None,
) -> None:
    """From now on this stretch of a reference proves nothing: licensed music, an intro, an ad."""
    take_references(connection, [video_id])
    video = connection.execute(
        text("SELECT is_reference, duration FROM videos WHERE id = :video"), {"video": video_id}
    ).first()
    if video is None or not (video.is_reference or claim_id):
        raise NotFound(f"video {video_id!r} is no reference; `vcl reference list` shows them")
    if video.duration is not None and span.start >= video.duration:
        raise Refused(
            f"reference {video_id} lasts {video.duration:g} seconds, so nothing of it lies in "
            f"{span.start:g} to {span.end:g}"
        )
    start, end = round(span.start, 3), round(span.end, 3)
    if start == end:
        raise Refused(
            f"the stretch from {span.start:g} to {span.end:g} seconds is empty: it is shorter than "
            "a millisecond"
        )
    connection.execute(
        text("""
        INSERT INTO reference_exclusions (video_id, span, actor, note, claim_id)
        VALUES (:video, numrange(CAST(:start AS numeric), CAST(:end AS numeric)), :actor, :note,
                :claim)"""),
        {
            **{"video": video_id, "start": start, "end": end},
            **{"actor": actor, "note": note, "claim": claim_id},
        },
    )


def allow_use(
    connection: Connection,
    owner: str,
    actor: str,
    uploader: str | None = None,
    upload: str | None = None,
    asset_id: int | None = None,
    note: str | None = None,
) -> None:
    """An owner lets an uploader, or one upload, use an asset or everything of theirs.

    An upload is named by the platform's id or its URL; the id of a video names all uploads of it
    that are known, and none that come later.

    Whoever holds a share of an asset may: a licence from one holder is a licence.
    """
    if (uploader is None) == (upload is None):
        raise Refused("say who is allowed: either an uploader or one upload")
    owner_id = find_owner(connection, owner)
    upload_ids = [None] if upload is None else list(find_uploads(connection, upload))
    if asset_id is not None:
        asset = connection.execute(
            text("""
            SELECT assets.title, owners.name, :owner = owners.id OR EXISTS (
                       SELECT 1 FROM asset_owners
                       WHERE asset_id = assets.id AND owner_id = :owner) AS is_holder
            FROM assets JOIN owners ON owners.id = assets.owner_id WHERE assets.id = :asset"""),
            {"asset": asset_id, "owner": owner_id},
        ).one()
        if not asset.is_holder:
            raise Refused(
                f"asset {asset_id} {asset.title!r} belongs to {asset.name!r}, so {owner!r} "
                "cannot allow its use"
            )
    take_owner(connection, owner_id)
    connection.execute(
        text("""
        INSERT INTO allowances (owner_id, asset_id, uploader, upload_id, actor, note)
        VALUES (:owner, :asset, :uploader, :upload, :actor, :note)"""),
        [
            {
                **{"owner": owner_id, "asset": asset_id, "uploader": uploader},
                **{"upload": each, "actor": actor, "note": note},
            }
            for each in upload_ids
        ],
    )


def check_territories(connection: Connection, codes: Sequence[str]) -> None:
    known = set(
        connection.execute(
            text("SELECT code FROM territories WHERE code = ANY(:codes)"), {"codes": list(codes)}
        ).scalars()
    )
    unknown = [code for code in codes if code not in known]
    if unknown:
        raise Refused(
            f"there is no territory {unknown[0]!r}; use ISO 3166 codes such as DE or US, or "
            f"{WORLD} for everywhere else"
        )


def _take_asset(connection: Connection, asset_id: int) -> None:
    """Let nobody record a match of the asset, in the name of who registered it."""
    owner_id = connection.execute(
        text("SELECT owner_id FROM assets WHERE id = :asset"), {"asset": asset_id}
    ).scalar()
    if owner_id is None:
        raise NotFound(f"there is no asset {asset_id}; `vcl asset list` shows them all")
    take_owner(connection, int(owner_id))


def _rule(row: Any) -> Rule:
    return Rule(
        row.action,
        row.min_seconds,
        row.min_query_share,
        row.min_reference_share,
        row.min_score,
        frozenset(row.territories),
    )
