"""A policy tried on what was found already: what it would claim, beside what stands today.

In: a policy, and whose assets to try it on. Out: a row for each claim it would raise.
It reads and never writes.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from sqlalchemy import Connection, text

from vcl_plugin.claims.matches import gather_evidence, read_exclusions, read_matches
from vcl_plugin.claims.policies import (
    Policy,
    decide,
    lowest_score,
    most_restrictive,
    name_territories,
    say_actions,
    union_seconds,
)


def rehearse_policy(
    connection: Connection, policy: Policy, owner: str | None = None, asset_id: int | None = None
) -> list[dict[str, Any]]:
    """What would be claimed if every asset, or these, followed the policy; reads, never writes.

    Beside it, what stands today.
    """
    known = connection.execute(
        text("""
        SELECT assets.id, owners.name AS owner, assets.title,
               array_agg(asset_owners.territory ORDER BY asset_owners.territory) AS territories
        FROM assets JOIN owners ON owners.id = assets.owner_id
        JOIN asset_owners ON asset_owners.asset_id = assets.id
        WHERE (CAST(:owner AS text) IS NULL OR owners.name = :owner)
          AND (CAST(:asset AS bigint) IS NULL OR assets.id = :asset)
        GROUP BY assets.id, owners.name"""),
        {"owner": owner, "asset": asset_id},
    )
    wanted = {row.id: row for row in known}
    claims = connection.execute(
        text("SELECT query_id, asset_id, status FROM claims WHERE asset_id = ANY(:assets)"),
        {"assets": list(wanted)},
    )
    today = {(row.query_id, row.asset_id): row.status for row in claims}
    found = []
    matches = read_matches(connection, asset_ids=wanted.keys())
    exclusions = read_exclusions(connection, chain.from_iterable(matches.values()))
    for key, rows in matches.items():
        asset, evidence = wanted[key[1]], gather_evidence(rows, exclusions)
        decided = decide(policy, evidence, name_territories(policy, asset.territories))
        if decided:
            floor = lowest_score([policy], evidence)
            pieces = chain.from_iterable(evidence.segments.values())
            spans = [piece.query for piece in pieces if piece.score >= floor]
            found.append(
                {
                    "owner": asset.owner,
                    "asset": asset.title,
                    "query_id": key[0],
                    "query": evidence.query,
                    "action": most_restrictive(decided.values()),
                    "actions": say_actions(decided),
                    "territories": sorted(decided),
                    "seconds": union_seconds(spans),
                    "claim_today": today.get(key),
                }
            )
    return sorted(found, key=lambda row: (row["owner"], row["asset"], -row["seconds"]))
