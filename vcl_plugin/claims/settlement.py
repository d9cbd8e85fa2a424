"""Segments become claims: the engine's part, by policy and never against a person's decision.

In: an upload whose segments changed. Out: claims raised, brought up to date, or expired.

A claim is raised as potential when its policy asks for review, else as active. While no person has
decided it, its state is a function of the evidence alone, so the order in which pairs finish does
not matter: it expires when its evidence is gone and is raised again when that comes back. What a
person has decided is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from sqlalchemy import Connection, text

from vcl_plugin.claims.claims import (
    ENGINE,
    STANDING,
    Change,
    move_claim,
    open_claim,
    remark_claim,
)
from vcl_plugin.claims.guard import hold_segments
from vcl_plugin.claims.matches import gather_evidence, read_exclusions, read_matches
from vcl_plugin.claims.policies import (
    Evidence,
    Policy,
    decide,
    explain,
    lowest_score,
    most_restrictive,
)
from vcl_plugin.claims.rights import read_asset_policies
from vcl_plugin.claims.uploads import name_uploads


def settle_claims(connection: Connection, query_id: str, change: Change | None = None) -> list[int]:
    """Bring the claims on an upload in line with its segments; returns those that stand.

    It looks at all segments of the upload, so the order in which pairs finish does not matter. The
    upload's row is locked: two workers that finish pairs of it settle one after the other. So are
    its claims, by a statement of their own: one that waits for a person's decision and reads on
    would still see what was true before it. What follows from a changed rule is noted with it.
    """
    connection.execute(
        text("SELECT 1 FROM videos WHERE id = :query FOR NO KEY UPDATE"), {"query": query_id}
    )
    connection.execute(
        text("SELECT 1 FROM claims WHERE query_id = :query ORDER BY id FOR UPDATE"),
        {"query": query_id},
    )
    hold_segments(connection, query_id)
    standing = []
    matches = read_matches(connection, query_id)
    exclusions = read_exclusions(connection, chain.from_iterable(matches.values()))
    for (_, asset_id), rows in matches.items():
        policies = read_asset_policies(connection, asset_id)
        evidence = gather_evidence(rows, exclusions)
        # What no rule would have looked at must not count towards what a rule decided.
        floor = lowest_score(dict.fromkeys(policies.values()), evidence)
        counted = {row.id: row.held is None and row.score >= floor for row in rows}
        claim_id = _settle(connection, asset_id, query_id, evidence, policies, counted, change)
        if claim_id is not None:
            standing.append(claim_id)
    _expire_bare(connection, query_id, [asset_id for _, asset_id in matches], change)
    _recount(connection, query_id)
    name_uploads(connection, query_id)
    return standing


def settle_again(connection: Connection, query_ids: Sequence[str]) -> list[int]:
    """Settle uploads after the rules about them changed; returns the claims that expired by it."""
    lock_uploads(connection, query_ids)
    expired: list[int] = []
    for query_id in sorted(query_ids):
        before = _standing(connection, query_id)
        settle_claims(connection, query_id)
        expired += sorted(before - _standing(connection, query_id))
    return expired


def find_matching_uploads(
    connection: Connection,
    reference_ids: Sequence[str] = (),
    uploader: str | None = None,
    asset_ids: Sequence[int] = (),
) -> list[str]:
    """Uploads in which something was found, of a reference or an asset or by an uploader."""
    return list(
        connection.execute(
            text("""
            SELECT query_id FROM segments WHERE reference_id = ANY(:references)
            UNION SELECT segments.query_id FROM segments
            JOIN uploads ON uploads.query_id = segments.query_id
            WHERE md5(uploads.uploader) = md5(:uploader) AND uploads.uploader = :uploader
            UNION SELECT segments.query_id FROM segments
            JOIN reference_videos ON reference_videos.video_id = segments.reference_id
            WHERE reference_videos.asset_id = ANY(:assets)
            ORDER BY query_id"""),
            {
                "references": list(reference_ids),
                "uploader": uploader,
                "assets": list(asset_ids),
            },
        ).scalars()
    )


def lock_uploads(connection: Connection, query_ids: Sequence[str]) -> None:
    """Lock uploads in the order in which everybody does."""
    connection.execute(
        text("SELECT 1 FROM videos WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE"),
        {"ids": list(query_ids)},
    )


def _settle(
    connection: Connection,
    asset_id: int,
    query_id: str,
    evidence: Evidence,
    policies: Mapping[str, Policy],
    counted: Mapping[int, bool],
    change: Change | None,
) -> int | None:
    decided: dict[str, str] = {}
    for policy in dict.fromkeys(policies.values()):
        places = [each for each in policies if policies[each] == policy]
        decided |= decide(policy, evidence, places)
    claim = connection.execute(
        text("""
        SELECT id, status, EXISTS (SELECT 1 FROM claim_decisions
                                   WHERE claim_id = claims.id) AS is_decided,
               (status, reason) = ('released', 'authorised') AND upload_id IS NOT NULL
                   AS was_for_uploads
        FROM claims WHERE asset_id = :asset AND query_id = :query"""),
        {"asset": asset_id, "query": query_id},
    ).first()
    if not decided:
        if claim is None:
            return None
        if claim.status in STANDING and not claim.is_decided:
            _expire(connection, claim.id, claim.status, query_id, change)
        else:
            _tie(connection, claim.id, counted)
        return int(claim.id) if claim.is_decided and claim.status in STANDING else None
    action = most_restrictive(decided.values())
    status = "potential" if action == "review" else "active"
    why = explain(decided, policies, evidence)
    # Those that it was released for are allowed, so what is left is of somebody else.
    is_decided = claim is not None and claim.is_decided and not claim.was_for_uploads
    if claim is None:
        claim_id = open_claim(connection, asset_id, query_id, status, why, change)
    else:
        claim_id = int(claim.id)
        if not is_decided and claim.status != status:
            why = f"uploaded again by others; {why}" if claim.was_for_uploads else why
            move_claim(connection, claim_id, claim.status, status, ENGINE, None, why, change)
    _tie(connection, claim_id, counted)
    if claim is not None and is_decided:
        return claim_id if claim.status in STANDING else None
    is_other = _apply(connection, claim_id, action, decided, policies)
    if is_other and claim is not None and claim.status == status:
        remark_claim(connection, claim_id, status, why, change)
    return claim_id


def _expire(
    connection: Connection, claim_id: int, status: str, query_id: str, change: Change | None
) -> None:
    """Expire a claim; by a rule that is being settled if nobody says by which."""
    change = change or _find_cause(connection, query_id)
    note = "no evidence left"
    move_claim(connection, claim_id, status, "expired", ENGINE, None, note, change)


def _find_cause(connection: Connection, query_id: str) -> Change | None:
    """The latest change of a rule that this upload does not follow yet, though its rows do."""
    row = connection.execute(
        text("""
        SELECT id, actor, what FROM rule_changes AS changes
        WHERE settled_at IS NULL AND settled_to < :query
          AND (:query = ANY(changes.query_ids)
               OR EXISTS (SELECT 1 FROM uploads WHERE uploads.query_id = :query
                                                  AND uploads.uploader = changes.uploader)
               OR EXISTS (
               SELECT 1 FROM segments
               LEFT JOIN reference_videos ON reference_videos.video_id = segments.reference_id
               WHERE segments.query_id = :query
                 AND (segments.reference_id = changes.reference_id
                      OR reference_videos.asset_id = ANY(changes.asset_ids))))
        ORDER BY id DESC LIMIT 1"""),
        {"query": query_id},
    ).first()
    return None if row is None else Change(row.id, row.actor, row.what)


def _tie(connection: Connection, claim_id: int, counted: Mapping[int, bool]) -> None:
    """Tie the segments that count to the claim.

    One that is held or too weak leaves a claim that stands. A closed claim keeps what it rested
    on: whoever asks later why it was released must see it.
    """
    connection.execute(
        text("""
        UPDATE segments SET claim_id = :claim
        WHERE id = ANY(:segments) AND claim_id IS DISTINCT FROM :claim"""),
        {"claim": claim_id, "segments": [each for each in counted if counted[each]]},
    )
    connection.execute(
        text("""
        UPDATE segments SET claim_id = NULL
        WHERE id = ANY(:segments) AND claim_id IS NOT NULL
          AND (SELECT status FROM claims WHERE id = :claim) = ANY(:standing)"""),
        {
            "claim": claim_id,
            "segments": [each for each in counted if not counted[each]],
            "standing": list(STANDING),
        },
    )


def _expire_bare(
    connection: Connection, query_id: str, asset_ids: Sequence[int], change: Change | None
) -> None:
    """Expire the claims whose segments all went to another asset, unless a person decided them."""
    bare = connection.execute(
        text("""
        SELECT claims.id, claims.status FROM claims JOIN assets ON assets.id = claims.asset_id
        WHERE claims.query_id = :query AND claims.status = ANY(:standing)
          AND assets.removed_at IS NULL AND NOT claims.asset_id = ANY(:assets)
          AND NOT EXISTS (SELECT 1 FROM claim_decisions WHERE claim_id = claims.id)"""),
        {
            "query": query_id,
            "standing": list(STANDING),
            "assets": list(asset_ids),
        },
    ).all()
    for claim in bare:
        _expire(connection, claim.id, claim.status, query_id, change)


def _recount(connection: Connection, query_id: str) -> None:
    """Keep in each claim of an upload the union of its segments, for the reports.

    Without what is excluded of them, unless the claim is closed: that keeps what it rested on.
    """
    connection.execute(
        text("""
        WITH found AS MATERIALIZED (
            SELECT claims.id, claims.manual_spans + coalesce(range_agg(CASE
                       WHEN claims.status = ANY(:standing)
                            AND segments.reference_id IN (SELECT video_id FROM reference_exclusions)
                       THEN infringing_spans(segments.reference_id, query_span, reference_span,
                                             is_reversed)
                       ELSE nummultirange(query_span) END), '{}') AS spans,
                   count(segments.id) AS segments, coalesce(max(segments.score), 0) AS score,
                   max(segments.created_at) AS last_found_at
            FROM claims LEFT JOIN segments ON segments.claim_id = claims.id
            WHERE claims.query_id = :query GROUP BY claims.id),
        met AS MATERIALIZED (
            SELECT found.*, EXISTS (SELECT 1 FROM found AS other
                                    WHERE other.id <> found.id AND other.spans && found.spans)
                            AS meets_another
            FROM found)
        UPDATE claims SET query_spans = met.spans, segments = met.segments, score = met.score,
               seconds = covered_seconds(met.spans), meets_another = met.meets_another,
               last_found_at = coalesce(met.last_found_at, claims.last_found_at)
        FROM met
        WHERE claims.id = met.id
          AND (claims.query_spans, claims.segments, claims.score, claims.meets_another)
              IS DISTINCT FROM (met.spans, met.segments, met.score, met.meets_another)"""),
        {"query": query_id, "standing": list(STANDING)},
    )


def _standing(connection: Connection, query_id: str) -> set[int]:
    found = connection.execute(
        text("SELECT id FROM claims WHERE query_id = :query AND status = ANY(:standing)"),
        {"query": query_id, "standing": list(STANDING)},
    )
    return set(found.scalars())


def _apply(
    connection: Connection,
    claim_id: int,
    action: str,
    decided: Mapping[str, str],
    policies: Mapping[str, Policy],
) -> bool:
    """Write what a claim does where, and by which version of a policy; returns whether the claim
    did anything else before.
    """
    found = connection.execute(
        text("""
        SELECT territory, claim_territories.action, policies.name, policy_version
        FROM claim_territories LEFT JOIN policies ON policies.id = claim_territories.policy_id
        WHERE claim_id = :claim"""),
        {"claim": claim_id},
    ).all()
    wanted = {
        (place, each, policies[place].name, policies[place].version)
        for place, each in decided.items()
    }
    if {tuple(row) for row in found} == wanted:
        return False
    strictest = policies[min(each for each in decided if decided[each] == action)]
    connection.execute(
        text("""
        UPDATE claims SET action = :action,
               policy_id = (SELECT id FROM policies WHERE name = :policy)
        WHERE id = :id"""),
        {"id": claim_id, "action": action, "policy": strictest.name},
    )
    connection.execute(
        text("DELETE FROM claim_territories WHERE claim_id = :claim"), {"claim": claim_id}
    )
    connection.execute(
        text("""
        INSERT INTO claim_territories (claim_id, territory, action, policy_id, policy_version)
        SELECT :claim, :territory, :action, id, :version FROM policies WHERE name = :policy"""),
        [
            dict(
                zip(("territory", "action", "policy", "version"), row, strict=True), claim=claim_id
            )
            for row in sorted(wanted)
        ],
    )
    return {row.territory: row.action for row in found} != decided
