"""Evidence for people: each claimed pair as timelines, a similarity map and frames side by side.

In: claims in the database, descriptors in the store, the video files where they still are.
Out: one self-contained HTML page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sqlalchemy import Connection, text

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import BadVideo, Refused, RetrievalError
from retrieval.media.video import read_frames
from retrieval.pairing import match_rows
from retrieval.plugins import Array
from retrieval.records import Segment, Video
from retrieval.store import Store, write_atomically
from retrieval.work import catalogue, pairs
from vcl_plugin.claims.claims import list_claims, read_claim
from vcl_plugin.claims.policies import say_actions
from vcl_plugin.reports.cells import shown
from vcl_plugin.reports.films import Films
from vcl_plugin.reports.reports import templates

THUMBNAIL = (192, 108)
MOMENTS = 4  # frame pairs shown of each segment
MAP_PIXELS = 512  # longest side of the similarity picture; longer videos are thinned
# What the lock of the players needs of a segment.
LINE = ("query_start", "query_end", "reference_start", "reference_end", "is_reversed")
UPLOAD, REFERENCE = "upload", "reference"  # what the page calls the two sides


@dataclass(frozen=True)
class Match:
    """One reference in one claim: what the database says of the pair."""

    reference: Video
    segments: list[dict[str, Any]]
    run: dict[str, Any]  # who compared the pair, when and with what
    paths: tuple[str | None, str | None]  # descriptor files of the query and of the reference


@dataclass(frozen=True)
class Case:
    """One claim: what the database says of it."""

    claim: dict[str, Any]
    query: Video
    policies: list[dict[str, Any]]
    matches: list[Match]


def write_evidence(
    engine: RetrievalEngine, path: Path, claim_ids: Sequence[int] | None = None
) -> Path:
    """A page of these claims, or of all.

    All is read from the database first: decoding takes minutes, and a transaction that idles as
    long is ended by the server.
    """
    with transaction(engine.database) as connection:
        if claim_ids is None:
            claim_ids = sorted(row["id"] for row in list_claims(connection))
        cases = [read_case(connection, claim_id) for claim_id in claim_ids]
    films, folder = Films(engine.settings), path.parent.resolve()
    page = (
        templates()
        .get_template("evidence.html")
        .render(
            cases=[_dress_case(case, engine.store, films, folder) for case in cases],
            shown=shown,
            written_at=datetime.now(UTC),
            version=version("vcl-plugin"),
        )
    )
    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise Refused(
            f"{path} cannot be written ({error.strerror}); choose another place"
        ) from None
    return path


def read_case(connection: Connection, claim_id: int) -> Case:
    claim = read_claim(connection, claim_id)
    query = catalogue.read_video(connection, claim["query_id"])
    references = dict.fromkeys(each["reference_id"] for each in claim["segments"])
    matches = [_read_match(connection, claim, each) for each in references]
    return Case(claim, query, _read_policies(connection, claim_id), matches)


def _read_match(connection: Connection, claim: dict[str, Any], reference_id: str) -> Match:
    run = _read_run(connection, claim["id"], reference_id)
    query_path, reference_path = (
        catalogue.find_descriptors(connection, each, run["fingerprint"])
        for each in (claim["query_id"], reference_id)
    )
    return Match(
        catalogue.read_video(connection, reference_id),
        [each for each in claim["segments"] if each["reference_id"] == reference_id],
        run,
        (query_path, reference_path),
    )


def _dress_case(case: Case, store: Store, films: Films, folder: Path) -> dict[str, Any]:
    """The case with its pictures, as the template takes it."""
    return {
        "claim": case.claim,
        "query": case.query,
        "player": _link(films, folder, case.query, UPLOAD),
        "policies": case.policies,
        "matches": [_dress_match(case.query, each, store, films, folder) for each in case.matches],
    }


def _link(films: Films, folder: Path, video: Video, side: str) -> str | None:
    """The file as the page finds it below its own folder; None if it lies anywhere else.

    A full path is dead on every other machine, and tells how this one's folders are named.
    """
    try:
        target = films.open(video, side).resolve()
    except BadVideo:
        return None
    if not target.is_relative_to(folder):
        return None
    return quote(target.relative_to(folder).as_posix())  # `#` and `?` would end the path


def _dress_match(
    query: Video, match: Match, store: Store, films: Films, folder: Path
) -> dict[str, Any]:
    arrays = read_arrays(store, match)
    frames, hindrance = [], None
    try:
        frames = _frame_pairs(query, match, films)
    except BadVideo as error:
        hindrance = str(error)
    return {
        "reference": match.reference,
        "player": _link(films, folder, match.reference, REFERENCE),
        "segments": match.segments,
        "lines": [{name: each[name] for name in LINE} for each in match.segments],
        "similarity": None if arrays is None else _data_uri(draw_similarity(*arrays), "png"),
        "frames": frames,
        "hindrance": hindrance,
        "run": match.run,
    }


def _read_policies(connection: Connection, claim_id: int) -> list[dict[str, Any]]:
    """The policies that decided the claim, in the version they had then, each with its rules."""
    found = connection.execute(
        text("""
        SELECT policies.id, policies.name, policy_versions.version, author,
               policy_versions.created_at AS written_at,
               jsonb_object_agg(claim_territories.territory, claim_territories.action) AS actions
        FROM claim_territories
        JOIN policies ON policies.id = claim_territories.policy_id
        JOIN policy_versions ON policy_versions.policy_id = policies.id
            AND policy_versions.version = claim_territories.policy_version
        WHERE claim_id = :claim
        GROUP BY policies.id, policy_versions.policy_id, policy_versions.version
        ORDER BY policies.name, policy_versions.version"""),
        {"claim": claim_id},
    ).mappings()
    return [
        {**row, "actions": say_actions(row["actions"]), "rules": _read_rules(connection, row)}
        for row in found.all()
    ]


def _read_rules(connection: Connection, policy: Mapping[Any, Any]) -> list[dict[str, Any]]:
    rows = connection.execute(
        text("""
        SELECT action, min_seconds, min_query_share, min_reference_share, min_score, territories
        FROM policy_rules WHERE policy_id = :policy AND version = :version ORDER BY position"""),
        {"policy": policy["id"], "version": policy["version"]},
    )
    return [dict(row) for row in rows.mappings()]


def _read_run(connection: Connection, claim_id: int, reference_id: str) -> dict[str, Any]:
    """The latest run that found what the claim rests on: method, descriptors, when and where.

    A later run of the pair, by another method, may have found nothing.
    """
    rows = connection.execute(
        text("""
        SELECT pair_id, worker, created_at, seconds FROM runs
        WHERE id = (SELECT max(run_id) FROM segments
                    WHERE claim_id = :claim AND reference_id = :reference)"""),
        {"claim": claim_id, "reference": reference_id},
    )
    run = rows.mappings().one()  # segments exist, so their run does
    pair = pairs.read_pair(connection, run["pair_id"])
    place = pairs.find_place(connection, pair.id)
    return {
        **run,
        "model": pair.model,
        "fingerprint": pair.fingerprint,
        "rank": place.rank,
        "candidate_score": place.score,
    }


def read_arrays(store: Store, match: Match) -> tuple[Array, Array] | None:
    """The descriptors that were compared; None when a file of them is gone or not ours to read."""
    query, reference = match.paths
    if query is None or reference is None:
        return None
    kind = match.run["fingerprint"]
    try:
        return match_rows(store.read(query, kind), store.read(reference, kind))
    except RetrievalError:
        return None


def compare_seconds(query: Array, reference: Array) -> tuple[NDArray[np.float32], int]:
    """(upload, reference) cosines from 0 to 1 of every second, or of every few; and how few."""
    step = max(1, -(-max(len(query), len(reference)) // MAP_PIXELS))
    # Thinned before they are multiplied: the whole map of two ten-hour films would take 5 GB.
    return np.clip(query[::step] @ reference[::step].T, 0.0, 1.0), step


def draw_similarity(query: Array, reference: Array) -> bytes:
    """The map as a PNG: query downwards, reference to the right, bright is similar."""
    picture, _ = compare_seconds(query, reference)
    # From ink over violet to pale gold: dark pages of unrelated footage, a bright line of copy.
    stops = np.array([[16, 12, 40], [86, 42, 120], [210, 82, 92], [252, 231, 164]], dtype=float)
    channels = [np.interp(picture, np.linspace(0, 1, len(stops)), stops[:, i]) for i in range(3)]
    image = Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _frame_pairs(query: Video, match: Match, films: Films) -> list[dict[str, Any]]:
    """A few moments of each segment, query and reference side by side."""
    moments = []
    for found in map(Segment.from_dict, match.segments):
        for share in (np.arange(MOMENTS) + 0.5) / MOMENTS:
            query_second = found.query.start + found.query.seconds * float(share)
            moments.append((query_second, found.line.reference_at(query_second)))
    query_frames = _thumbnails(query, UPLOAD, [moment[0] for moment in moments], films)
    reference_frames = _thumbnails(
        match.reference, REFERENCE, [moment[1] for moment in moments], films
    )
    return [
        {
            "query_second": q,
            "reference_second": r,
            "query": query_frames.get(int(q)),
            "reference": reference_frames.get(int(r)),
        }
        for q, r in moments
    ]


def _thumbnails(video: Video, side: str, seconds: Sequence[float], films: Films) -> dict[int, str]:
    wanted = {int(second) for second in seconds}
    found: dict[int, str] = {}
    with read_frames(
        films.open(video, side),
        size=THUMBNAIL,
        max_frames=max(wanted) + 1,
        timeout=films.settings.decode_timeout,
        must_confine=films.settings.require_confinement,
    ) as reader:
        for times, frames in reader:
            for time, frame in zip(times, frames, strict=True):
                if int(time) in wanted:
                    found[int(time)] = _data_uri(write_jpeg(frame), "jpeg")
    films.open(video, side)  # what was decoded is what was hashed
    return found


def write_jpeg(frame: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
