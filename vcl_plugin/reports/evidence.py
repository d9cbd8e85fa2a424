"""Evidence for people: each claimed pair as timelines, a similarity map and frames side by side.

In: claims in the database, descriptors in the store, the video files where they still are.
Out: one self-contained HTML page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
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

from retrieval.errors import BadVideo, Refused, RetrievalError
from retrieval.media.roots import confine_path
from retrieval.media.video import read_frames
from retrieval.pairing import match_rows
from retrieval.plugins import Array
from retrieval.records import Segment, Video
from retrieval.settings import Settings
from retrieval.store import read_descriptors, write_atomically
from retrieval.work import catalogue, pairs
from vcl_plugin.claims.claims import list_claims, read_claim
from vcl_plugin.reports.cells import shown
from vcl_plugin.reports.reports import templates

THUMBNAIL = (192, 108)
MOMENTS = 4  # frame pairs shown of each segment
MAP_PIXELS = 512  # longest side of the similarity picture; longer videos are thinned


@dataclass(frozen=True)
class Match:
    """One reference in one claim: all that the page shows of the pair."""

    reference: Video
    player: str | None  # where the page finds the file of the reference
    segments: list[dict[str, Any]]
    similarity: str | None  # data URI; None when the descriptors are gone
    frames: list[dict[str, Any]]
    run: dict[str, Any]  # who compared the pair, when and with what


def write_evidence(
    connection: Connection, path: Path, settings: Settings, claim_ids: Sequence[int] | None = None
) -> Path:
    """A page of these claims, or of all."""
    if claim_ids is None:
        claim_ids = sorted(row["id"] for row in list_claims(connection))
    cases = []
    for claim_id in claim_ids:
        claim = read_claim(connection, claim_id)
        query = catalogue.read_video(connection, claim["query_id"])
        cases.append(
            {
                "claim": claim,
                "query": query,
                "player": _link(query.path, path.parent),
                "rules": _rules(connection, claim_id),
                "matches": _matches(connection, claim, settings, path.parent),
            }
        )
    page = (
        templates()
        .get_template("evidence.html")
        .render(
            cases=cases,
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


def _rules(connection: Connection, claim_id: int) -> list[dict[str, Any]]:
    """The policy that the claim follows, rule by rule: the thresholds it has to pass."""
    rows = connection.execute(
        text("""
        SELECT policies.name AS policy, policy_rules.action, min_seconds, min_query_share,
               min_reference_share, min_score, territories
        FROM claims JOIN policies ON policies.id = claims.policy_id
        JOIN policy_rules ON policy_rules.policy_id = policies.id
        WHERE claims.id = :claim ORDER BY position"""),
        {"claim": claim_id},
    )
    return [dict(row) for row in rows.mappings()]


def _matches(
    connection: Connection, claim: dict[str, Any], settings: Settings, folder: Path
) -> list[Match]:
    matches = []
    for reference_id in dict.fromkeys(each["reference_id"] for each in claim["segments"]):
        segments = [each for each in claim["segments"] if each["reference_id"] == reference_id]
        query = catalogue.read_video(connection, claim["query_id"])
        reference = catalogue.read_video(connection, reference_id)
        run = _read_run(connection, claim["id"], reference_id)
        arrays = _read_arrays(connection, (claim["query_id"], reference_id), run["fingerprint"])
        matches.append(
            Match(
                reference,
                _link(reference.path, folder),
                segments,
                None if arrays is None else draw_similarity(*arrays),
                _frame_pairs(query, reference, segments, settings),
                run,
            )
        )
    return matches


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


def _read_arrays(
    connection: Connection, video_ids: tuple[str, str], fingerprint: str
) -> tuple[Array, Array] | None:
    """The descriptors that were compared; None when a file of them is gone."""
    query, reference = (
        catalogue.find_descriptors(connection, each, fingerprint) for each in video_ids
    )
    if query is None or reference is None:
        return None
    try:
        return match_rows(read_descriptors(query), read_descriptors(reference))
    except RetrievalError:
        return None


def draw_similarity(query: Array, reference: Array) -> str:
    """The map as a PNG data URI: query downwards, reference to the right, bright is similar."""
    step = max(1, -(-max(len(query), len(reference)) // MAP_PIXELS))
    # Thinned before they are multiplied: the whole map of two ten-hour films would take 5 GB.
    picture = np.clip(query[::step] @ reference[::step].T, 0.0, 1.0)
    # From ink over violet to pale gold: dark pages of unrelated footage, a bright line of copy.
    stops = np.array([[16, 12, 40], [86, 42, 120], [210, 82, 92], [252, 231, 164]], dtype=float)
    channels = [np.interp(picture, np.linspace(0, 1, len(stops)), stops[:, i]) for i in range(3)]
    image = Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return _data_uri(buffer.getvalue(), "png")


def _frame_pairs(
    query: Video,
    reference: Video,
    segments: Sequence[dict[str, Any]],
    settings: Settings,
) -> list[dict[str, Any]]:
    """A few moments of each segment, query and reference side by side; none if a file is gone."""
    moments = []
    for found in map(Segment.from_dict, segments):
        for share in (np.arange(MOMENTS) + 0.5) / MOMENTS:
            query_second = found.query.start + found.query.seconds * float(share)
            moments.append((query_second, found.line.reference_at(query_second)))
    try:
        query_frames = _thumbnails(query, [moment[0] for moment in moments], settings)
        reference_frames = _thumbnails(reference, [moment[1] for moment in moments], settings)
    except BadVideo:
        return []
    return [
        {
            "query_second": q,
            "reference_second": r,
            "query": query_frames.get(int(q)),
            "reference": reference_frames.get(int(r)),
        }
        for q, r in moments
    ]


def _thumbnails(video: Video, seconds: Sequence[float], settings: Settings) -> dict[int, str]:
    if video.path is None:
        raise BadVideo(f"video {video.id!r} has no file here", code="missing")
    wanted = {int(second) for second in seconds}
    found: dict[int, str] = {}
    with read_frames(
        confine_path(video.path, settings.roots),
        size=THUMBNAIL,
        max_frames=max(wanted) + 1,
        timeout=settings.decode_timeout,
    ) as reader:
        for times, frames in reader:
            for time, frame in zip(times, frames, strict=True):
                if int(time) in wanted:
                    found[int(time)] = _jpeg(frame)
    return found


def _jpeg(frame: NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "JPEG", quality=80)
    return _data_uri(buffer.getvalue(), "jpeg")


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _link(path: str | None, folder: Path) -> str | None:
    """Where a page in `folder` finds the file: beside it if it can, else by its full path."""
    if path is None or not Path(path).is_file():
        return None
    target = Path(path).resolve()
    beside = folder.resolve()
    if target.is_relative_to(beside):
        return quote(target.relative_to(beside).as_posix())  # `#` and `?` would end the path
    return target.as_uri()
