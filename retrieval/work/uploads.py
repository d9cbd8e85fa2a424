"""Uploads: who put which content where and when. The same bytes by two people are two uploads.

In: what a sender tells of an upload. Out: rows in `uploads`, each told of once.
Every function is one step of the caller's transaction.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from sqlalchemy import Connection, text

from retrieval.errors import NotFound, Refused
from retrieval.records import Upload
from retrieval.work import catalogue

UNKNOWN = Upload()


def read_upload(
    uploader: str | None = None,
    external_id: str | None = None,
    url: str | None = None,
    uploaded_at: str | None = None,
) -> Upload:
    """An upload as a message or a command tells of it; a time without a zone is UTC's.

    >>> read_upload("bo", uploaded_at="2026-03-01T12:00").uploaded_at
    datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.timezone.utc)
    """
    when = None
    if uploaded_at is not None:
        try:
            when = datetime.fromisoformat(uploaded_at)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            when = when.astimezone(UTC)
        except (ValueError, OverflowError):
            raise Refused(
                f"uploaded_at is {uploaded_at[:40]!a}; it must be a time as of ISO 8601, such "
                "as 2026-03-01T12:00:00Z",
                code="bad_arguments",
            ) from None
    return Upload(uploader or None, external_id or None, url or None, when)


def note_upload(connection: Connection, query_id: str, upload: Upload) -> bool:
    """Write an upload down; returns whether it is new.

    The platform's id says which it is, else all that is known of it does. Told again it stays as it
    was, and what was not known of it is filled in. About nobody and nowhere there is nothing to
    tell: it is one of the uploads that are known, or the first, of somebody unknown.
    """
    values = {"query": query_id, **asdict(upload)}
    is_new = connection.execute(
        text("""
        INSERT INTO uploads (query_id, uploader, external_id, url, uploaded_at)
        SELECT :query, :uploader, :external_id, :url, CAST(:uploaded_at AS timestamptz)
        WHERE :is_known OR NOT EXISTS (SELECT 1 FROM uploads WHERE query_id = :query)
        ON CONFLICT DO NOTHING"""),
        values | {"is_known": upload != UNKNOWN},
    ).rowcount
    if not is_new and upload.external_id is not None:
        connection.execute(
            text("""
            UPDATE uploads SET uploader = coalesce(uploader, :uploader), url = coalesce(url, :url),
                   uploaded_at = coalesce(uploaded_at, :uploaded_at)
            WHERE query_id = :query AND md5(external_id) = md5(:external_id)"""),
            values,
        )
    return bool(is_new)


def find_uploads(connection: Connection, name: str) -> dict[int, str]:
    """The uploads that a person names, each with its content: by the platform's id or by URL, or
    all that are known of a video by its id; if none is, one of somebody unknown is noted.
    """
    if catalogue.read_videos(connection, [name]):
        note_upload(connection, name, UNKNOWN)
    found = connection.execute(
        text("""
        SELECT id, query_id, coalesce(:name IN (external_id, url), false) AS is_named FROM uploads
        WHERE external_id = :name OR url = :name OR query_id = :name ORDER BY id"""),
        {"name": name},
    ).all()
    named = [row for row in found if row.is_named] or found
    if not named:
        raise NotFound(
            f"no upload has {name!r} as the platform's id, as URL or as the id of its video; "
            "`vcl search` tells of one"
        )
    return {row.id: row.query_id for row in named}
