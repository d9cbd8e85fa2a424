"""A small world in the database for tests of rights and claims: owners, references, uploads."""

from __future__ import annotations

from sqlalchemy import Connection, text

from retrieval.records import Candidate, Segment, Span, Upload
from retrieval.work import catalogue, pairs, searches
from retrieval.work.uploads import note_upload
from vcl_plugin.claims import assets
from vcl_plugin.claims.segments import Outcome, record_segments

METHOD = pairs.Method("tn-test", "lite0-test")
SECONDS = 100.0


def add_reference(connection: Connection, name: str, owner: str, asset: str | None = None) -> str:
    """A ready reference of 100 seconds for an asset of the owner; its id is its name."""
    add_upload(connection, name)
    asset_id = assets.add_asset(connection, owner, asset or f"{name} the film")
    assets.add_reference(connection, name, asset_id)
    return name


def add_upload(connection: Connection, name: str, uploader: str | None = None) -> str:
    """A ready video of 100 seconds; told of again with another uploader, it is uploaded again."""
    catalogue.register_foreign(connection, name, None, duration=SECONDS)
    if uploader is not None:
        note_upload(connection, name, Upload(uploader))
    return name


def record(
    connection: Connection,
    query: str,
    reference: str,
    *segments: Segment,
    is_empty: bool = False,
    method: pairs.Method = METHOD,
) -> int:
    """What a worker writes for a pair, without settling claims; returns the run."""
    ask(connection, query, reference, method)
    return answer(connection, query, reference, *segments, is_empty=is_empty, method=method)


def ask(connection: Connection, query: str, reference: str, method: pairs.Method = METHOD) -> None:
    """A search that wants the pair compared."""
    search = searches.create_search(connection, query)
    pairs.open_pairs(connection, search, [Candidate(query, reference, 1, 0.5)], method)


def answer(
    connection: Connection,
    query: str,
    reference: str,
    *segments: Segment,
    is_empty: bool = False,
    method: pairs.Method = METHOD,
) -> int:
    """What a worker finds in a pair that was asked for."""
    pair_id = connection.execute(
        text("""
        SELECT id FROM pairs
        WHERE query_id = :query AND reference_id = :reference AND model = :model"""),
        {"query": query, "reference": reference, "model": method.model},
    ).scalar_one()
    pair = pairs.read_pair(connection, pair_id)
    outcome = Outcome(segments, [is_empty] * len(segments), method.model, "test", 0.1)
    run = record_segments(connection, pair, outcome)
    assert run is not None
    return run


def segment(start: float, end: float, at: float = 0.0, score: float = 0.9) -> Segment:
    """Query seconds `[start, end)` copied from second `at` of the reference."""
    return Segment(Span(start, end), Span(at, at + end - start), score)
