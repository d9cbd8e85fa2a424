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

from retrieval.records import Span
from vcl_plugin.claims.claims import ENGINE, STANDING, decide_claim, move_claim, open_claim
from vcl_plugin.claims.guard import hold_segments
from vcl_plugin.claims.matches import gather_evidence, read_exclusions, read_matches
from vcl_plugin.claims.policies import (
    Evidence,
    Policy,
    decide,
    list_applying,
    lowest_score,
    most_restrictive,
)
from vcl_plugin.claims.rights import exclude_span, read_asset_policies
from vcl_plugin.claims.turns import take_references
from vcl_plugin.claims.uploads import name_uploads


def settle_claims(connection: Connection, query_id: str) -> list[int]:
    """Bring the claims on an upload in line with its segments; returns those that stand.

    It looks at all segments of the upload, so the order in which pairs finish does not matter. The
    upload's row is locked: two workers that finish pairs of it settle one after the other. So are
    its claims, by a statement of their own: one that waits for a person's decision and reads on
    would still see what was true before it.
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
        floor = lowest_score(policies.values(), evidence)
        counted = {row.id: row.held is None and row.score >= floor for row in rows}
        claim_id = _settle(connection, asset_id, query_id, evidence, policies, counted)
        if claim_id is not None:
            standing.append(claim_id)
    _expire_bare(connection, query_id, [asset_id for _, asset_id in matches])
    _recount(connection, query_id)
    name_uploads(connection, query_id)
    return standing


def release_and_exclude(
    connection: Connection, claim_id: int, actor: str, reason: str | None, note: str | None
) -> list[int]:
    """Release a claim and let the footage it rests on prove nothing any more.

    Sibling claims that rest on nothing else are released with it; returns their ids. References
    that come to the claim while it waits were not what the person looked at, and stay.
    """
    references = list(
        connection.execute(
            text("SELECT DISTINCT reference_id FROM segments WHERE claim_id = :claim"),
            {"claim": claim_id},
        ).scalars()
    )
    take_references(connection, references)
    uploads = _lock_uploads(connection, claim_id, references)
    spans = connection.execute(
        text("""
        SELECT reference_id, lower(reference_span)::float AS low,
               upper(reference_span)::float AS high
        FROM segments WHERE claim_id = :claim AND reference_id = ANY(:references)"""),
        {"claim": claim_id, "references": references},
    ).all()
    decide_claim(connection, claim_id, "released", actor, reason, note)
    for row in spans:
        exclude_span(connection, row.reference_id, Span(row.low, row.high), actor, note, claim_id)
    siblings: list[int] = []
    for query_id in uploads:
        hold_segments(connection, query_id)
        bare = connection.execute(
            text("""
            SELECT claims.id, claims.status FROM claims
            WHERE claims.query_id = :query AND claims.id <> :claim
              AND claims.status = ANY(:standing)
              AND EXISTS (SELECT 1 FROM segments WHERE claim_id = claims.id AND held = 'excluded')
              AND NOT EXISTS (SELECT 1 FROM segments
                              WHERE claim_id = claims.id AND held IS NULL)
            ORDER BY claims.id FOR UPDATE"""),
            {"query": query_id, "claim": claim_id, "standing": list(STANDING)},
        ).all()
        for sibling in bare:
            why = f"rests only on footage excluded with claim {claim_id}"
            move_claim(connection, sibling.id, sibling.status, "released", actor, reason, why)
            siblings.append(sibling.id)
        settle_claims(connection, query_id)
    return siblings


def _lock_uploads(connection: Connection, claim_id: int, references: Sequence[str]) -> list[str]:
    """Lock the claim's upload and all others with claims on these references; returns their ids.

    Uploads before claims, as whoever settles does it: else the two would wait for each other.
    """
    return list(
        connection.execute(
            text("""
            SELECT id FROM videos
            WHERE id IN (SELECT query_id FROM claims WHERE id = :claim)
               OR id IN (SELECT query_id FROM segments
                         WHERE reference_id = ANY(:references) AND claim_id IS NOT NULL)
            ORDER BY id FOR NO KEY UPDATE"""),
            {"claim": claim_id, "references": list(references)},
        ).scalars()
    )


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
) -> int | None:
    decided = {
        territory: action
        for territory, policy in policies.items()
        for action in decide(policy, evidence, [territory]).values()
    }
    claim = connection.execute(
        text("""
        SELECT id, status, EXISTS (SELECT 1 FROM claim_events
                                   WHERE claim_id = claims.id AND actor <> :engine) AS is_decided,
               (status, reason) = ('released', 'authorised') AND upload_id IS NOT NULL
                   AS was_for_uploads
        FROM claims WHERE asset_id = :asset AND query_id = :query"""),
        {"asset": asset_id, "query": query_id, "engine": ENGINE},
    ).first()
    if not decided:
        if claim is None:
            return None
        if claim.status in STANDING and not claim.is_decided:
            move_claim(
                connection, claim.id, claim.status, "expired", ENGINE, None, "no evidence left"
            )
        else:
            _tie(connection, claim.id, counted)
        return int(claim.id) if claim.is_decided and claim.status in STANDING else None
    action = most_restrictive(decided.values())
    status = "potential" if action == "review" else "active"
    territory = min(each for each in decided if decided[each] == action)
    policy = policies[territory]
    # With the rules, for a policy may have others by the time somebody asks.
    rules = [
        str(rule)
        for rule in list_applying(policy, evidence)
        if rule.action == action and (not rule.territories or territory in rule.territories)
    ]
    why = f"policy {policy.name}: {'; '.join(rules)}"
    # Those that it was released for are allowed, so what is left is of somebody else.
    is_decided = claim is not None and claim.is_decided and not claim.was_for_uploads
    if claim is None:
        claim_id = open_claim(connection, asset_id, query_id, status, why)
    else:
        claim_id = int(claim.id)
        if not is_decided and claim.status != status:
            why = f"uploaded again by others; {why}" if claim.was_for_uploads else why
            move_claim(connection, claim_id, claim.status, status, ENGINE, None, why)
    _tie(connection, claim_id, counted)
    if claim is not None and is_decided:
        return claim_id if claim.status in STANDING else None
    _apply(connection, claim_id, action, decided, policy)
    return claim_id


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


def _expire_bare(connection: Connection, query_id: str, asset_ids: Sequence[int]) -> None:
    """Expire the claims whose segments all went to another asset, unless a person decided them."""
    bare = connection.execute(
        text("""
        SELECT claims.id, claims.status FROM claims JOIN assets ON assets.id = claims.asset_id
        WHERE claims.query_id = :query AND claims.status = ANY(:standing)
          AND assets.removed_at IS NULL AND NOT claims.asset_id = ANY(:assets)
          AND NOT EXISTS (SELECT 1 FROM claim_events
                          WHERE claim_id = claims.id AND actor <> :engine)"""),
        {
            "query": query_id,
            "standing": list(STANDING),
            "assets": list(asset_ids),
            "engine": ENGINE,
        },
    ).all()
    for claim in bare:
        move_claim(connection, claim.id, claim.status, "expired", ENGINE, None, "no evidence left")


def _recount(connection: Connection, query_id: str) -> None:
    """Keep in each claim of an upload the union of its segments, for the reports.

    Without what is excluded of them, unless the claim is closed: that keeps what it rested on.
    """
    connection.execute(
        text("""
        WITH found AS MATERIALIZED (
            SELECT claims.id, coalesce(range_agg(CASE
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
    connection: Connection, claim_id: int, action: str, decided: dict[str, str], policy: Policy
) -> None:
    connection.execute(
        text("""
        UPDATE claims SET action = :action,
               policy_id = (SELECT id FROM policies WHERE name = :policy)
        WHERE id = :id"""),
        {"id": claim_id, "action": action, "policy": policy.name},
    )
    connection.execute(
        text("DELETE FROM claim_territories WHERE claim_id = :claim"), {"claim": claim_id}
    )
    connection.execute(
        text("""
        INSERT INTO claim_territories (claim_id, territory, action)
        VALUES (:claim, :territory, :action)"""),
        [
            {"claim": claim_id, "territory": territory, "action": each}
            for territory, each in decided.items()
        ],
    )
