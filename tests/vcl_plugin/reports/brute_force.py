"""Every report once more, in plain Python, from what the tables say.

In: the rows of the tables. Out: by report the rows that its view must have.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC
from typing import Any

import numpy as np

from tests.vcl_plugin.reports.facts import Facts, Row, halves


class BruteForce(Facts):
    """A method for each report, of its name."""

    def infringing_segments(self) -> list[Row]:
        return [
            {
                **self.describe(claim),
                **self.place(segment),
                **self.first(self.uploads_of(claim)),
                "is_reversed": segment["is_reversed"],
                "speed": segment["speed"],
                "infringing_seconds": len(self.infringing(segment)) / 2,
            }
            for claim in self.standing
            for segment in self.segments_of(claim)
        ]

    def infringing_uploads(self) -> list[Row]:
        return [
            {
                **self.describe(claim),
                **self.name_upload(upload),
                "told_at": upload["created_at"],
                "infringing_seconds": len(self.infringing_of(claim)) / 2,
            }
            for claim in self.standing
            for upload in self.uploads_of(claim)
        ]

    def infringing_seconds_by_asset(self) -> list[Row]:
        groups: dict[int, list[Row]] = defaultdict(list)
        for claim in self.standing:
            groups[claim["asset_id"]].append(claim)
        return [
            {
                **self.name_asset(asset_id),
                "uploads": len(claims),
                "segments": sum(len(self.segments_of(claim)) for claim in claims),
                "infringing_seconds": sum(len(self.infringing_of(claim)) for claim in claims) / 2,
                "last_found_at": max(self.last_found[claim["id"]] for claim in claims),
                "times_uploaded": sum(len(self.uploads_of(claim)) for claim in claims),
            }
            for asset_id, claims in groups.items()
        ]

    def infringing_seconds_by_owner(self) -> list[Row]:
        groups: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for claim in self.standing:
            owner = self.name_asset(claim["asset_id"])["owner"]
            groups[owner][claim["query_id"]].append(claim)
        return [
            {
                "owner": owner,
                "uploads": len(contents),
                "claims": sum(map(len, contents.values())),
                "infringing_seconds": sum(
                    len(self.infringing_of(*claims)) / 2 for claims in contents.values()
                ),
                "last_found_at": max(
                    self.last_found[claim["id"]] for claims in contents.values() for claim in claims
                ),
                "times_uploaded": len(
                    {
                        upload["id"]
                        for claims in contents.values()
                        for claim in claims
                        for upload in self.uploads_of(claim)
                    }
                ),
            }
            for owner, contents in groups.items()
        ]

    def claims_open(self) -> list[Row]:
        found = []
        for claim in self.standing:
            if claim["status"] == "upheld":
                continue
            seconds = len(self.infringing_of(claim)) / 2
            found.append(
                {
                    **self.describe(claim),
                    **self.first(self.uploads_of(claim)),
                    "infringing_seconds": seconds,
                    "infringing_share": seconds / self.videos[claim["query_id"]]["duration"],
                    "score": max((row["score"] for row in self.segments_of(claim)), default=0),
                    "raised_at": claim["created_at"],
                }
            )
        return found

    def claims_by_territory(self) -> list[Row]:
        names = {row["id"]: row["name"] for row in self.rows["policies"]}
        authors = {
            (row["policy_id"], row["version"]): row["author"]
            for row in self.rows["policy_versions"]
        }
        found = []
        for claim in self.standing:
            places = [r for r in self.rows["claim_territories"] if r["claim_id"] == claim["id"]]
            nowhere = {"territory": "WW", "action": claim["action"]}
            for place in places or [nowhere | {"policy_id": None, "policy_version": None}]:
                version = place["policy_version"]
                row = {
                    **self.describe(claim),
                    "territory": place["territory"],
                    "action": place["action"],
                    "policy": names.get(place["policy_id"]),
                    "policy_version": version,
                    "policy_author": authors.get((place["policy_id"], version)),
                    "raised_at": claim["created_at"],
                }
                del row["claim_action"]
                found.append(row)
        return found

    def claims_daily(self) -> list[Row]:
        kinds = ("raised", "confirmed", "disputed", "upheld", "released", "expired")
        days: dict[tuple[Any, str], Row] = defaultdict(lambda: dict.fromkeys(kinds, 0))
        claims = {row["id"]: row for row in self.rows["claims"]}
        for event in self.rows["claim_events"]:
            owner = self.name_asset(claims[event["claim_id"]]["asset_id"])["owner"]
            day = days[event["at"].astimezone(UTC).date(), owner]
            if event["from_status"] is None:
                day["raised"] += 1
            elif event["to_status"] == "active" and event["actor"] != "engine":
                day["confirmed"] += 1
            if event["to_status"] in kinds:
                day[event["to_status"]] += 1
        return [{"day": day, "owner": owner, **row} for (day, owner), row in days.items()]

    def uploads_by_infringing_share(self) -> list[Row]:
        groups: dict[tuple[str, int | None], list[Row]] = defaultdict(list)
        for claim in self.standing:
            for upload in self.uploads_of(claim) or [{"id": None}]:
                groups[claim["query_id"], upload["id"]].append(claim)
        uploads = {row["id"]: row for row in self.rows["uploads"]}
        return [
            {
                **self.name_upload(uploads.get(upload_id)),
                "query_id": query_id,
                "query": self.videos[query_id]["title"],
                "duration": self.videos[query_id]["duration"],
                "infringing_seconds": len(self.infringing_of(*claims)) / 2,
                "infringing_share": len(self.infringing_of(*claims))
                / 2
                / self.videos[query_id]["duration"],
                "claims": len(claims),
                "last_found_at": max(self.last_found[claim["id"]] for claim in claims),
            }
            for (query_id, upload_id), claims in groups.items()
        ]

    def segments_by_transformation(self) -> list[Row]:
        groups: dict[tuple[bool, str], list[Row]] = defaultdict(list)
        for row in self.rows["segments"]:
            if row["claim_id"] is not None:
                speed = row["speed"]
                tempo = "slower" if speed < 0.9 else "faster" if speed > 1.1 else "as it was"
                groups[row["is_reversed"], tempo].append(row)
        return [
            {
                "is_reversed": is_reversed,
                "tempo": tempo,
                "segments": len(found),
                "seconds": sum(row["query_end"] - row["query_start"] for row in found),
                "mean_score": sum(row["score"] for row in found) / len(found),
            }
            for (is_reversed, tempo), found in groups.items()
        ]

    def held_segments(self) -> list[Row]:
        return [
            {
                **self.place(row),
                **self.name_asset(self.asset_of.get(row["reference_id"])),
                **self.first(self.all_uploads(row["query_id"])),
                "segment_id": row["id"],
                "reason": row["held"],
            }
            for row in self.rows["segments"]
            if row["held"] is not None
        ]

    def reference_conflicts(self) -> list[Row]:
        held = [row for row in self.rows["segments"] if row["held"] == "reference"]
        found = []
        for row in held:
            mine, theirs = (self.asset_of.get(row[f"{each}_id"]) for each in ("query", "reference"))
            if mine is None or theirs is None:
                continue
            if self.assets[mine]["owner_id"] == self.assets[theirs]["owner_id"]:
                continue
            found.append(self.side(row, "query", "reference"))
            wanted = halves(row["reference_start"], row["reference_end"])
            again: set[int] = set()
            for other in held:
                if (other["query_id"], other["reference_id"]) == (
                    row["reference_id"],
                    row["query_id"],
                ) and halves(other["reference_start"], other["reference_end"]) & halves(
                    row["query_start"], row["query_end"]
                ):
                    again |= wanted & halves(other["query_start"], other["query_end"])
            if 10 * len(again) < 8 * len(wanted):
                found.append(self.side(row, "reference", "query"))
        return found

    def side(self, segment: Row, mine: str, other: str) -> Row:
        named = self.name_asset(self.asset_of[segment[f"{other}_id"]])
        return {
            **self.name_asset(self.asset_of[segment[f"{mine}_id"]]),
            "reference_id": segment[f"{mine}_id"],
            "reference": self.videos[segment[f"{mine}_id"]]["title"],
            "other_owner": named["owner"],
            "other_asset": named["asset"],
            "other_reference_id": segment[f"{other}_id"],
            "other_reference": self.videos[segment[f"{other}_id"]]["title"],
            "reference_start": segment[f"{mine}_start"],
            "reference_end": segment[f"{mine}_end"],
            "other_start": segment[f"{other}_start"],
            "other_end": segment[f"{other}_end"],
            "score": segment["score"],
            "found_at": segment["created_at"],
        }

    def quarantined_pairs(self) -> list[Row]:
        names = ("query_id", "reference_id", "attempts", "reason", "message")
        return [
            {
                **{name: row[name] for name in names},
                "pair_id": row["id"],
                "opened_at": row["created_at"],
                "query": self.videos[row["query_id"]]["title"],
                "reference": self.videos[row["reference_id"]]["title"],
            }
            for row in self.rows["pairs"]
            if row["status"] == "quarantined"
        ]

    def search_turnaround(self) -> list[Row]:
        days: dict[Any, list[Row]] = defaultdict(list)
        for row in self.rows["searches"]:
            days[row["created_at"].astimezone(UTC).date()].append(row)
        found = []
        for day, rows in days.items():
            took = [
                (row["finished_at"] - row["created_at"]).total_seconds()
                for row in rows
                if row["finished_at"] is not None
            ]
            found.append(
                {
                    "day": day,
                    "searches": len(rows),
                    "done": sum(row["status"] == "done" for row in rows),
                    "failed": sum(row["status"] == "failed" for row in rows),
                    "median_seconds": float(np.percentile(took, 50)) if took else None,
                    "slow_seconds": float(np.percentile(took, 95)) if took else None,
                    "pairs": sum(row["pairs_total"] or 0 for row in rows),
                }
            )
        return found
