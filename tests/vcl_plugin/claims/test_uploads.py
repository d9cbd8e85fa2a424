"""The same bytes by two people are two uploads: what one may, the other may not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, text

from retrieval.database import connect, migrate, transaction
from retrieval.errors import NotFound, Refused
from retrieval.records import Upload
from retrieval.work.uploads import UNKNOWN, find_uploads, note_upload, read_upload
from tests.vcl_plugin.world import add_reference, add_upload, record, segment
from vcl_plugin.claims import rights
from vcl_plugin.claims.claims import decide_claim, list_claims, read_claim
from vcl_plugin.claims.settlement import settle_again, settle_claims
from vcl_plugin.reports.reports import read_report

# Columns of a claim that came after uploads were events.
NEWER = ("upload_id", "uploads", "stake", "staked_on", "assignee", "manual_spans")


def states(connection: Connection) -> list[str]:
    return [claim["status"] for claim in list_claims(connection)]


def rows(connection: Connection, report: str) -> list[dict[str, Any]]:
    found = read_report(connection, report)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def copy_of_the_film(connection: Connection, *uploaders: str | None) -> None:
    add_reference(connection, "film", "Ana")
    for uploader in uploaders:
        add_upload(connection, "upload", uploader)
    record(connection, "upload", "film", segment(0, 10))
    settle_claims(connection, "upload")


def test_a_licensee_with_the_same_bytes_does_not_end_the_pirate_s_claim(database: str) -> None:
    with transaction(connect(database)) as connection:
        copy_of_the_film(connection, "pirate")
        rights.allow_use(connection, "Ana", "ana", uploader="licensee")
        add_upload(connection, "upload", "licensee")
        settle_claims(connection, "upload")
        assert states(connection) == ["potential"]
        [claim] = rows(connection, "claims_open")
        assert (claim["uploader"], claim["times_uploaded"]) == ("pirate", 1)


def test_a_licensee_alone_is_not_claimed_until_somebody_else_comes(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "other film", "Ana")
        rights.allow_use(connection, "Ana", "ana", uploader="licensee")
        copy_of_the_film(connection, "licensee")
        assert states(connection) == []
        add_upload(connection, "upload", "pirate")
        settle_claims(connection, "upload")
        assert [each["uploader"] for each in read_claim(connection, 1)["uploads"]] == ["pirate"]
        rights.allow_use(connection, "Ana", "ana", uploader="pirate")
        assert settle_again(connection, ["upload"]) == [1]


def test_every_upload_of_a_copy_is_a_row_of_the_reports(database: str) -> None:
    with transaction(connect(database)) as connection:
        copy_of_the_film(connection, "one", "two", "two")
        assert {row["uploader"] for row in rows(connection, "uploads_by_infringing_share")} == {
            *("one", "two")
        }
        assert [row["uploader"] for row in rows(connection, "infringing_uploads")] == ["one", "two"]
        [total] = rows(connection, "infringing_seconds_by_owner")
        assert (total["uploads"], total["times_uploaded"]) == (1, 2)
        assert total["infringing_seconds"] == 10


def test_what_was_released_as_authorised_is_claimed_when_others_upload_it(database: str) -> None:
    with transaction(connect(database)) as connection:
        copy_of_the_film(connection, "partner")
        decide_claim(connection, 1, "released", "ana", "authorised")
        settle_claims(connection, "upload")
        assert states(connection) == ["released"]
        add_upload(connection, "upload", "pirate")
        settle_claims(connection, "upload")
        claim = read_claim(connection, 1)
        assert claim["status"] == "potential"
        assert [each["uploader"] for each in claim["uploads"]] == ["pirate"]
        assert claim["events"][-1]["note"].startswith("uploaded again by others; policy default")
        settle_claims(connection, "upload")
        assert len(read_claim(connection, 1)["events"]) == 3
        decide_claim(connection, 1, "released", "ana", "misidentified")
        add_upload(connection, "upload", "a third")
        settle_claims(connection, "upload")
        assert states(connection) == ["released"]  # what it shows is not the film, whoever has it


def test_one_upload_is_allowed_by_the_platform_s_id_and_no_other(database: str) -> None:
    with transaction(connect(database)) as connection:
        copy_of_the_film(connection, "pirate")
        note_upload(connection, "upload", Upload("pirate", "yt-7", "https://example.org/7"))
        rights.allow_use(connection, "Ana", "ana", upload="yt-7")
        settle_claims(connection, "upload")
        assert [each["external_id"] for each in read_claim(connection, 1)["uploads"]] == [None]
        rights.allow_use(connection, "Ana", "ana", upload="upload")
        assert settle_again(connection, ["upload"]) == [1]
        add_upload(connection, "upload", "another")
        settle_claims(connection, "upload")
        assert states(connection) == ["potential"]  # what was allowed is what was known


def test_an_upload_told_of_twice_is_one_and_gains_what_was_unknown(database: str) -> None:
    march = datetime(2026, 3, 1, tzinfo=UTC)
    with transaction(connect(database)) as connection:
        add_upload(connection, "v")
        assert note_upload(connection, "v", UNKNOWN)
        assert not note_upload(connection, "v", UNKNOWN)
        assert note_upload(connection, "v", Upload("bo"))
        assert not note_upload(connection, "v", Upload("bo"))
        assert not note_upload(connection, "v", UNKNOWN)
        assert note_upload(connection, "v", Upload("bo", uploaded_at=march))
        assert note_upload(connection, "v", Upload(external_id="7"))
        assert not note_upload(connection, "v", Upload("cy", "7", "https://x.org", march))
        assert not note_upload(connection, "v", Upload("somebody else", "7"))
        last = connection.execute(text("SELECT * FROM uploads ORDER BY id DESC LIMIT 1")).one()
        assert (last.uploader, last.url, last.uploaded_at) == ("cy", "https://x.org", march)
        assert len(find_uploads(connection, "v")) == 4
        assert find_uploads(connection, "7") == {last.id: "v"}
        with pytest.raises(NotFound, match="no upload has 'w'"):
            find_uploads(connection, "w")
    with pytest.raises(Refused, match="uploaded_at is 'yesterday'"):
        read_upload(uploaded_at="yesterday")


def test_claims_and_allowances_from_before_uploads_are_kept(database: str) -> None:
    """As the schema was: one uploader a video, allowances for videos."""
    with transaction(connect(database)) as connection:
        for number, (owner, uploader) in enumerate(
            [("Ana", "pirate"), ("Ana", None), ("Bo", "friend"), ("Cy", "partner")]
        ):
            add_reference(connection, f"film {number}", owner)
            add_upload(connection, f"upload {number}", uploader)
            record(connection, f"upload {number}", f"film {number}", segment(0, 10))
            settle_claims(connection, f"upload {number}")
        rights.allow_use(connection, "Bo", "bo", upload="upload 2")
        settle_claims(connection, "upload 2")
        decide_claim(connection, 4, "released", "cy", "authorised")
    migrate(database, "0009")
    before = "SELECT claims.*, videos.uploader FROM claims JOIN videos ON videos.id = query_id"
    with transaction(connect(database)) as connection:
        earlier = connection.execute(text(f"{before} ORDER BY claims.id")).mappings().all()
        # The release is all that says so, from before.
        connection.execute(text("DELETE FROM allowances WHERE note LIKE '%authorised'"))
    migrate(database)
    with transaction(connect(database)) as connection:
        for number in range(4):
            settle_claims(connection, f"upload {number}")
        later = connection.execute(text("SELECT * FROM claims ORDER BY id")).mappings().all()
        assert [{name: row[name] for name in row if name != "uploader"} for row in earlier] == [
            {name: row[name] for name in row if name not in NEWER} for row in later
        ]
        assert [row["uploader"] for row in earlier] == ["pirate", None, "friend", "partner"]
        named = [
            [each["uploader"] for each in read_claim(connection, row["id"])["uploads"]]
            for row in later
        ]
        assert named == [["pirate"], [None], ["friend"], ["partner"]]
        assert [row["status"] for row in later] == [*("potential",) * 2, "expired", "released"]


def test_every_claim_from_before_uploads_keeps_its_own(database: str) -> None:
    """In whatever state, two of one content, and on what became a reference since."""
    ways = {
        "potential": (),
        "active": ("active",),
        "disputed": ("active", "disputed"),
        "upheld": ("active", "disputed", "upheld"),
        "released": ("released",),
        "became a reference": ("active",),
    }
    with transaction(connect(database)) as connection:
        for film in ("one", "two"):
            add_reference(connection, film, "Ana")
        for number, (name, decisions) in enumerate(ways.items()):
            add_upload(connection, name, None if number % 2 else f"uploader of {name}")
            for film in ("one", "two"):
                record(connection, name, film, segment(0, 10))
            for claim in settle_claims(connection, name):
                for status in decisions:
                    decide_claim(connection, claim, status, "ana")
        add_reference(connection, "became a reference", "Ana")
    migrate(database, "0009")
    kept = "SELECT id, asset_id, query_id, status, action, seconds FROM claims ORDER BY id"
    with transaction(connect(database)) as connection:
        before = connection.execute(text(kept)).all()
        videos = connection.execute(text("SELECT id, uploader FROM videos")).all()
        uploaders = {row.id: row.uploader for row in videos}
    migrate(database)
    with transaction(connect(database)) as connection:
        assert connection.execute(text(kept)).all() == before
        assert len(before) == 2 * len(ways)
        for claim in before:
            [upload] = read_claim(connection, claim.id)["uploads"]
            assert upload["uploader"] == uploaders[claim.query_id], claim
