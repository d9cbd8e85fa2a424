"""What the tables say, for brute force: half seconds as sets, no sums that somebody kept.

In: the rows of the tables. Out: what infringes, who uploaded it, and how a report names it.
Of claims only their state is believed, and which segments they rest on; seconds, counts and
uploads are worked out from segments, exclusions, uploads and allowances.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, text

Row = dict[str, Any]
TABLES = {
    name: f"SELECT * FROM {name}"
    for name in (
        *("owners", "assets", "asset_owners", "reference_videos", "uploads", "allowances"),
        *("claims", "claim_events", "pairs", "searches", "videos"),
        *("claim_territories", "policies", "policy_versions"),
    )
} | {
    "segments": """
        SELECT id, claim_id, query_id, reference_id, score, is_reversed, speed, held, created_at,
               lower(query_span)::float AS query_start, upper(query_span)::float AS query_end,
               lower(reference_span)::float AS reference_start,
               upper(reference_span)::float AS reference_end FROM segments""",
    "exclusions": """
        SELECT video_id, lower(span)::float AS low, upper(span)::float AS high
        FROM reference_exclusions""",
}


def halves(start: float, end: float) -> set[int]:
    """The half seconds of a stretch, by number."""
    return set(range(round(2 * start), round(2 * end)))


class Facts:
    """The tables as lists of rows."""

    def __init__(self, connection: Connection, last_found: dict[int, datetime]) -> None:
        """`last_found` remembers when a claim that has lost all segments last had one."""
        self.rows: dict[str, list[Row]] = {
            name: [dict(row) for row in connection.execute(text(query)).mappings()]
            for name, query in TABLES.items()
        }
        self.videos = {row["id"]: row for row in self.rows["videos"]}
        self.owners = {row["id"]: row["name"] for row in self.rows["owners"]}
        self.assets = {row["id"]: row for row in self.rows["assets"]}
        self.asset_of = {row["video_id"]: row["asset_id"] for row in self.rows["reference_videos"]}
        self.last_found = last_found
        for claim in self.rows["claims"]:
            if found := [row["created_at"] for row in self.segments_of(claim)]:
                last_found[claim["id"]] = max(found)

    @cached_property
    def standing(self) -> list[Row]:
        return [row for row in self.rows["claims"] if row["status"] not in ("released", "expired")]

    def segments_of(self, claim: Row) -> list[Row]:
        return [row for row in self.rows["segments"] if row["claim_id"] == claim["id"]]

    def infringing(self, segment: Row) -> set[int]:
        """Half seconds of the upload, looked up one by one in the reference."""
        pace = (segment["reference_end"] - segment["reference_start"]) / (
            segment["query_end"] - segment["query_start"]
        )
        excluded = [
            row for row in self.rows["exclusions"] if row["video_id"] == segment["reference_id"]
        ]
        left = set()
        for half in halves(segment["query_start"], segment["query_end"]):
            inside = (half / 2 + 0.25 - segment["query_start"]) * pace
            if segment["is_reversed"]:
                second = segment["reference_end"] - inside
            else:
                second = segment["reference_start"] + inside
            if not any(row["low"] <= second < row["high"] for row in excluded):
                left.add(half)
        return left

    def infringing_of(self, *claims: Row) -> set[int]:
        found = (self.infringing(row) for claim in claims for row in self.segments_of(claim))
        return set().union(*found)

    def uploads_of(self, claim: Row) -> list[Row]:
        """Those of the claim's content that no holder of its asset allowed."""
        asset_id = claim["asset_id"]
        holders = {self.assets[asset_id]["owner_id"]} | {
            row["owner_id"] for row in self.rows["asset_owners"] if row["asset_id"] == asset_id
        }
        allowances = [
            row
            for row in self.rows["allowances"]
            if row["owner_id"] in holders and row["asset_id"] in (None, asset_id)
        ]
        return [
            upload
            for upload in self.all_uploads(claim["query_id"])
            if not any(
                row["upload_id"] == upload["id"]
                or (row["uploader"] is not None and row["uploader"] == upload["uploader"])
                for row in allowances
            )
        ]

    def all_uploads(self, query_id: str) -> list[Row]:
        found = [row for row in self.rows["uploads"] if row["query_id"] == query_id]
        return sorted(found, key=lambda row: row["id"])

    def describe(self, claim: Row) -> Row:
        return {
            "claim_id": claim["id"],
            "claim_status": claim["status"],
            "claim_action": claim["action"],
            "query_id": claim["query_id"],
            "query": self.videos[claim["query_id"]]["title"],
            **self.name_asset(claim["asset_id"]),
        }

    def name_asset(self, asset_id: int | None) -> Row:
        if asset_id is None:
            return {"owner": None, "asset": None}
        asset = self.assets[asset_id]
        return {"owner": self.owners[asset["owner_id"]], "asset": asset["title"]}

    def name_upload(self, upload: Row | None) -> Row:
        upload = upload or dict.fromkeys(("id", "uploader", "external_id", "url", "uploaded_at"))
        names = ("uploader", "external_id", "url", "uploaded_at")
        return {"upload_id": upload["id"], **{name: upload[name] for name in names}}

    def first(self, uploads: list[Row]) -> Row:
        named = self.name_upload(uploads[0] if uploads else None)
        return {**named, "times_uploaded": len(uploads)}

    def place(self, segment: Row) -> Row:
        names = ("query_start", "query_end", "reference_start", "reference_end", "score")
        return {
            **{name: segment[name] for name in (*names, "query_id", "reference_id")},
            "query": self.videos[segment["query_id"]]["title"],
            "reference": self.videos[segment["reference_id"]]["title"],
            "found_at": segment["created_at"],
        }
