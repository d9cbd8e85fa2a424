"""Why an upload is, or is not, claimed for a reference: one pair's way, up to where it ended.

In: an engine and two videos. Out: an `Answer` with a stable code, a sentence and the facts.
Reads, and searches again where nothing was kept, but never writes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import RetrievalError, UnknownPlugin
from retrieval.index.candidates import propose_pairs
from retrieval.index.pooling import pool_query
from retrieval.pairing import localize_views
from retrieval.plugins import load_localizer
from retrieval.records import Pair, PairStatus, Video, VideoStatus
from retrieval.work.pairs import find_newest, find_place
from vcl_plugin.claims.claims import STANDING

# How far down a search looks for a reference that was no candidate.
DEEPEST_RANK = 1000

HELD = {
    "low_information": "they show black, flat colour or title cards only",
    "shared_footage": "the footage belongs to so many owners that it is nobody's",
    "excluded": "that part of the reference is excluded from claims",
    "allowed": "the owner allows every upload of it, or who uploaded it",
    "reference": "the upload is itself a reference",
}


@dataclass(frozen=True)
class Answer:
    """`code` is stable, for programs; `sentence` is for people; `facts` hold the numbers."""

    code: str
    sentence: str
    query_id: str
    reference_id: str
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        row = asdict(self)
        return {**{name: row[name] for name in row if name != "facts"}, **self.facts}


def explain_pair(engine: RetrievalEngine, query: Video, reference: Video) -> Answer:
    """The first step at which the pair stopped, or the claim it became."""
    ids = (query.id, reference.id)
    for side, video in (("the upload", query), ("the reference", reference)):
        if video.status != VideoStatus.READY:
            return _not_ingested(side, video, ids)
    with transaction(engine.database) as connection:
        pair = find_newest(connection, *ids)
        if pair is None:
            was_searched = connection.execute(
                text("SELECT max(created_at) FROM searches WHERE query_id = :id"), {"id": ids[0]}
            ).scalar()
        else:
            place = asdict(find_place(connection, pair.id))
    if pair is None:
        if not reference.is_reference:
            sentence = (
                f"{reference.title!r} is no reference, so nothing is compared with it; make it "
                "one with `vcl reference add`"
            )
            return Answer("not_a_reference", sentence, *ids)
        if was_searched is None:
            sentence = f"{query.title!r} was never searched; run `vcl search`"
            return Answer("not_searched", sentence, *ids)
        return _not_a_candidate(engine, reference.title, ids)
    if pair.status.is_open:
        sentence = "the pair waits to be compared; is a worker running? start one with `vcl worker`"
        return Answer("not_compared_yet", sentence, *ids, place)
    if pair.status == PairStatus.QUARANTINED:
        sentence = f"the pair was set aside: {pair.message}"
        return Answer("set_aside", sentence, *ids, {**place, "reason": pair.reason})
    if pair.status == PairStatus.CANCELLED:
        sentence = f"the pair was not compared, its search was {pair.message}; search it again"
        return Answer("search_cancelled", sentence, *ids, place)
    return _after_comparison(engine, pair, place, ids)


def _not_ingested(side: str, video: Video, ids: tuple[str, str]) -> Answer:
    reason = f": {video.message}" if video.message else ""
    sentence = f"{side} {video.title!r} is {video.status}, it has no descriptors{reason}"
    facts = {"video_id": video.id, "status": video.status, "reason": video.reason}
    return Answer("not_ingested", sentence, *ids, facts)


def _not_a_candidate(engine: RetrievalEngine, title: str, ids: tuple[str, str]) -> Answer:
    """Nothing is kept of references that were not near enough, so they are searched for again."""
    kept = engine.settings.top_k
    depth = max(DEEPEST_RANK, kept)
    pooled = pool_query(engine.pooler, engine.read_descriptors(ids[0]))
    found = propose_pairs(engine.refresh_index(), ids[0], pooled, depth, min_score=-1.0)
    mine = next((pair for pair in found if pair.reference_id == ids[1]), None)
    last = found[:kept][-1].score if found else None
    facts = {
        "rank": mine.rank if mine else None,
        "score": mine.score if mine else None,
        "ranks_kept": kept,
        "score_of_last_kept": last,
    }
    if mine is None:
        sentence = f"{title!r} was no candidate: searched again, it is not among the first {depth}"
    elif mine.rank <= kept and mine.score >= engine.settings.min_candidate_score:
        sentence = (
            f"{title!r} was no candidate when the upload was searched, but is one now: rank "
            f"{mine.rank} with score {mine.score:.3f}; search the upload again or `vcl rescan` the "
            "reference"
        )
    else:
        sentence = (
            f"{title!r} was no candidate: searched again, it has rank {mine.rank} with score "
            f"{mine.score:.3f}; {kept} are kept (VCL_TOP_K), the last with {last or 0.0:.3f}"
        )
    return Answer("not_a_candidate", sentence, *ids, facts)


def _after_comparison(
    engine: RetrievalEngine, pair: Pair, place: dict[str, Any], ids: tuple[str, str]
) -> Answer:
    with transaction(engine.database) as connection:
        segments = _read_segments(connection, *ids)
        claim = _read_claim(connection, *ids)
    facts: dict[str, Any] = {**place, "segments": segments}
    if not segments:
        return _below_threshold(engine, pair, place, ids)
    best = max(float(each["score"]) for each in segments)
    seconds = sum(each["query_end"] - each["query_start"] for each in segments)
    found = f"{len(segments)} segments of {seconds:.1f} s were found, the best with {best:.3f}"
    reasons = {each["held"] for each in segments}
    if claim is not None and any(each["claim_id"] == claim["claim_id"] for each in segments):
        facts |= claim
        verb = "stands" if claim["claim_status"] in STANDING else "was closed"
        code = "claimed" if claim["claim_status"] in STANDING else "claim_closed"
        sentence = (
            f"claim {claim['claim_id']} on {claim['asset']!r} {verb} ({claim['claim_status']}): "
            f"{found}"
        )
        return Answer(code, sentence, *ids, facts)
    if None not in reasons:
        why = "; ".join(HELD[each] for each in sorted(filter(None, reasons)))
        facts["held"] = sorted(filter(None, reasons))
        return Answer("held_by_guard", f"{found}, but claim nothing: {why}", *ids, facts)
    if claim is None and not _has_asset(engine, ids[1]):
        sentence = (
            f"{found}, but the reference belongs to no asset; add it with `vcl reference add`"
        )
        return Answer("no_asset", sentence, *ids, facts)
    sentence = f"{found}, but no rule of the asset's policy applies to that; see `vcl policy list`"
    return Answer("held_by_policy", sentence, *ids, facts)


def _below_threshold(
    engine: RetrievalEngine, pair: Pair, place: dict[str, Any], ids: tuple[str, str]
) -> Answer:
    best = _best_score(engine, ids)
    facts = {**place, "localizer": pair.model, "best_score": best}
    sentence = f"the pair was compared by {pair.model}, which found no copied segment"
    if best is not None:
        sentence += f"; without its threshold the best one scores {best:.3f}"
    return Answer("below_threshold", sentence, *ids, facts)


def _best_score(engine: RetrievalEngine, ids: tuple[str, str]) -> float | None:
    """The best score without a threshold, where the localizer knows one and the files are there."""
    weights = engine.settings.weights or None
    try:
        localizer = load_localizer(engine.settings.localizer, weights=weights, min_score=0.0)
        query, reference = (engine.read_descriptors(each) for each in ids)
    except (UnknownPlugin, RetrievalError):
        return None
    [found] = localize_views(localizer, query, [reference])
    return max((each.score for each in found), default=0.0)


def _read_segments(
    connection: Connection, query_id: str, reference_id: str
) -> list[dict[str, Any]]:
    """What any comparison of the two found, once: a claim rests on an older one's as well."""
    rows = connection.execute(
        text("""
        SELECT lower(query_span)::float AS query_start, upper(query_span)::float AS query_end,
               lower(reference_span)::float AS reference_start,
               upper(reference_span)::float AS reference_end,
               score, held, claim_id
        FROM segments
        WHERE query_id = :query AND reference_id = :reference
          AND held IS DISTINCT FROM 'superseded' ORDER BY lower(query_span)"""),
        {"query": query_id, "reference": reference_id},
    )
    return [dict(row) for row in rows.mappings()]


def _read_claim(connection: Connection, query_id: str, reference_id: str) -> dict[str, Any] | None:
    """The claim that the pair's segments are part of, else that of the reference's asset.

    A reference may have been removed or moved since; what was found of it stays.
    """
    row = (
        connection.execute(
            text("""
            SELECT claims.id AS claim_id, claims.status AS claim_status, assets.title AS asset
            FROM claims JOIN assets ON assets.id = claims.asset_id
            WHERE claims.id = coalesce(
                (SELECT max(claim_id) FROM segments
                 WHERE query_id = :query AND reference_id = :reference),
                (SELECT claims.id FROM reference_videos JOIN claims USING (asset_id)
                 WHERE video_id = :reference AND claims.query_id = :query))"""),
            {"query": query_id, "reference": reference_id},
        )
        .mappings()
        .first()
    )
    return None if row is None else dict(row)


def _has_asset(engine: RetrievalEngine, reference_id: str) -> bool:
    with transaction(engine.database) as connection:
        found = connection.execute(
            text("SELECT EXISTS (SELECT 1 FROM reference_videos WHERE video_id = :id)"),
            {"id": reference_id},
        )
        return bool(found.scalar_one())
