"""Whose eyes see which video: an owner's people see its references and what is claimed for it.

In: the id of a video, the owners whose claims somebody may see, and their name. Out: the video.
A video that may not be seen answers like one that is not there.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, text

from retrieval.errors import NotFound
from retrieval.records import Video
from retrieval.work import catalogue


def read_visible(
    connection: Connection,
    video_id: str,
    owners: Collection[str] | None,
    asker: str | None = None,
) -> Video:
    """A video that may be seen by whom these owners confine; None: by nobody.

    Whoever asked for a search sees its upload, too.
    """
    is_visible = connection.execute(
        text("""
        SELECT EXISTS (SELECT 1 FROM videos WHERE id = :video) AND (
            CAST(:owners AS text[]) IS NULL
            OR EXISTS (SELECT 1 FROM reference_videos
                       JOIN assets ON assets.id = reference_videos.asset_id
                       JOIN owners ON owners.id = assets.owner_id
                       WHERE video_id = :video AND owners.name = ANY(:owners))
            OR EXISTS (SELECT 1 FROM claims JOIN assets ON assets.id = claims.asset_id
                       JOIN owners ON owners.id = assets.owner_id
                       WHERE query_id = :video AND owners.name = ANY(:owners))
            OR EXISTS (SELECT 1 FROM searches WHERE query_id = :video AND asked_by = :asker))"""),
        {
            **{"video": video_id, "asker": asker},
            "owners": None if owners is None else sorted(owners),
        },
    ).scalar_one()
    if not is_visible:
        raise NotFound(f"there is no video {video_id!r}")
    return catalogue.read_video(connection, video_id)
