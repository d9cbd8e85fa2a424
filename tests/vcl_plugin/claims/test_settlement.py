"""Segments become claims by policy, in whatever order they arrive."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import Connection, text

from retrieval.database import connect, transaction
from retrieval.errors import NotFound, Refused
from retrieval.records import Span
from tests.vcl_plugin.world import add_reference, add_upload, record, segment
from vcl_plugin.claims import assets, rights
from vcl_plugin.claims.claims import decide_claim, list_claims, read_claim
from vcl_plugin.claims.policies import Policy, Rule
from vcl_plugin.claims.rehearsal import rehearse_policy
from vcl_plugin.claims.release import release_and_exclude
from vcl_plugin.claims.settlement import (
    find_matching_uploads,
    settle_again,
    settle_claims,
)


def _claims(connection: Connection) -> set[tuple[str, str, str, float]]:
    return {
        (row["owner"], row["query"], row["status"], row["seconds"])
        for row in list_claims(connection)
    }


def _held(connection: Connection, query: str) -> dict[str, str | None]:
    rows = connection.execute(
        text("SELECT reference_id, held FROM segments WHERE query_id = :query"), {"query": query}
    )
    return {row.reference_id: row.held for row in rows}


def _territories(connection: Connection) -> list[tuple[str, str]]:
    rows = connection.execute(
        text("SELECT territory, action FROM claim_territories ORDER BY territory")
    )
    return [(row.territory, row.action) for row in rows]


def _wait_for_a_lock(connection: Connection) -> None:
    """Until another session waits for a lock. `pg_stat_activity` would stay as first read."""
    deadline = time.monotonic() + 120
    while not connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar():
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.02)


def test_a_match_raises_one_claim_that_waits_for_review(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10), segment(5, 20))
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "potential", 20.0)}


def test_two_references_of_one_asset_make_one_claim(database: str) -> None:
    with transaction(connect(database)) as connection:
        for name in ("cut one", "cut two"):
            add_reference(connection, name, "Ana", "The film")
        add_upload(connection, "upload")
        record(connection, "upload", "cut one", segment(0, 10))
        record(connection, "upload", "cut two", segment(5, 15))
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "potential", 15.0)}


def test_short_or_weak_matches_are_kept_but_claim_nothing(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 2), segment(10, 60, score=0.1))
        settle_claims(connection, "upload")
        assert _claims(connection) == set()
        assert connection.execute(text("SELECT count(*) FROM segments")).scalar() == 2


def test_seconds_below_the_score_of_the_rule_that_applies_do_not_count(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        weak = segment(10, 90, at=10, score=0.05)
        record(connection, "upload", "film", segment(0, 5), weak)
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "potential", 5.0)}
        [row] = rehearse_policy(connection, rights.read_policy(connection, "default"))
        assert row["seconds"] == 5.0
        rights.add_policy(connection, Policy("default", (Rule("review", 10),)))
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "potential", 85.0)}


def test_the_excluded_part_of_a_segment_does_not_help_to_reach_a_rule(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.add_policy(connection, Policy("default", (Rule("block", min_seconds=15),)))
        rights.exclude_span(connection, "film", Span(0, 12), "ana")
        for name, end in (("short", 26), ("long", 28)):
            add_upload(connection, name)
            record(connection, name, "film", segment(0, end))
            settle_claims(connection, name)
        assert {query for _, query, _, _ in _claims(connection)} == {"long"}


def test_no_segment_reaches_past_the_end_of_its_videos(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        connection.execute(text("UPDATE videos SET duration = 10.4 WHERE id = 'upload'"))
        record(connection, "upload", "film", segment(0, 11, at=95))
        settle_claims(connection, "upload")
        row = connection.execute(text("SELECT * FROM infringing_segments")).one()
        assert (float(row.query_end), row.reference_end) == (10.4, 100)
        share = connection.execute(text("SELECT infringing_share FROM claims_open")).scalar()
        assert share == 1


def test_a_policy_that_blocks_makes_the_claim_active_where_the_owner_has_rights(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.set_ownership(connection, 1, "Ana", 100, "DE")
        rule = Rule("block", min_seconds=5, territories=frozenset({"DE"}))
        rights.add_policy(connection, Policy("german", (rule, Rule("track"))))
        rights.assign_policy(connection, "german", owner="Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "active", 10.0)}
        assert _territories(connection) == [("DE", "block"), ("WW", "track")]


def test_a_rule_for_a_territory_applies_to_an_asset_that_is_owned_worldwide(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        german = Policy("german", (Rule("block", 5, territories=frozenset({"DE"})),))
        rights.add_policy(connection, german)
        rights.assign_policy(connection, "german", owner="Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "active", 10.0)}
        assert _territories(connection) == [("DE", "block")]
        [row] = rehearse_policy(connection, german)
        assert (row["action"], row["territories"]) == ("block", ["DE"])


def test_whoever_holds_most_of_an_asset_in_a_territory_decides_there(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.set_ownership(connection, 1, "Bo", 60, "DE")
        rights.set_ownership(connection, 1, "Cy", 40, "DE")
        for owner, action in (("Ana", "track"), ("Bo", "block"), ("Cy", "monetize")):
            rights.add_policy(connection, Policy(f"policy of {owner}", (Rule(action),)))
            rights.assign_policy(connection, f"policy of {owner}", owner=owner)
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert _territories(connection) == [("DE", "block"), ("WW", "track")]
        assert read_claim(connection, 1)["events"][0]["note"] == (
            "block in DE; track elsewhere (policy policy of Ana: track, policy policy of Bo: block)"
        )


def test_the_history_keeps_the_rules_that_applied_whatever_the_policy_says_later(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rules = (Rule("block", 5, territories=frozenset({"DE"})), Rule("block", 90), Rule("track"))
        rights.add_policy(connection, Policy("default", rules))
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        decide_claim(connection, 1, "disputed", "ana")
        rights.add_policy(connection, Policy("default", (Rule("block", min_seconds=300),)))
        settle_claims(connection, "upload")
        first, *_ = read_claim(connection, 1)["events"]
        assert first["note"] == (
            "block in DE; track elsewhere (policy default: block seconds=5 in=DE; track)"
        )


def test_an_asset_changes_hands_when_a_share_of_nothing_gives_the_old_one_up(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.add_policy(connection, Policy("strict", (Rule("block"),)))
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        rights.set_ownership(connection, 1, "Ana", 0)
        settle_claims(connection, "upload")
        assert _territories(connection) == [("WW", "review")]
        rights.set_ownership(connection, 1, "Bo", 100)
        rights.assign_policy(connection, "strict", owner="Bo")
        settle_claims(connection, "upload")
        assert _territories(connection) == [("WW", "block")]


def test_any_holder_of_a_share_may_allow_its_use(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.set_ownership(connection, 1, "Bo", 10, "DE")
        for name in ("one", "two"):
            add_upload(connection, name, f"friend {name}")
            record(connection, name, "film", segment(0, 10))
        rights.allow_use(connection, "Bo", "bo", uploader="friend one", asset_id=1)
        rights.allow_use(connection, "Bo", "bo", uploader="friend two")
        for name in ("one", "two"):
            assert settle_claims(connection, name) == []
            assert _held(connection, name) == {"film": "allowed"}


def test_an_assets_own_policy_goes_before_its_owners(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.add_policy(connection, Policy("strict", (Rule("block"),)))
        rights.add_policy(connection, Policy("lenient", (Rule("track", min_seconds=1000),)))
        rights.assign_policy(connection, "strict", owner="Ana")
        rights.assign_policy(connection, "lenient", asset_id=1)
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 50))
        settle_claims(connection, "upload")
        assert _claims(connection) == set()


def test_an_upload_that_is_itself_a_reference_is_a_conflict_and_no_claim(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_reference(connection, "remake", "Bo")
        record(connection, "remake", "film", segment(0, 30, at=40))
        settle_claims(connection, "remake")
        assert _claims(connection) == set()
        conflicts = text("""
            SELECT owner, other_owner, reference_start::int, other_start::int
            FROM reference_conflicts ORDER BY owner""")
        both_sides = [("Ana", "Bo", 40, 0), ("Bo", "Ana", 0, 40)]
        assert [tuple(row) for row in connection.execute(conflicts)] == both_sides
        record(connection, "film", "remake", segment(40, 70))
        settle_claims(connection, "film")
        assert [tuple(row) for row in connection.execute(conflicts)] == both_sides


def test_footage_that_three_owners_hold_claims_for_none_of_them(database: str) -> None:
    with transaction(connect(database)) as connection:
        for name, owner in (("a", "Ana"), ("b", "Bo"), ("c", "Cy")):
            add_reference(connection, name, owner)
        add_upload(connection, "upload")
        for name in "abc":
            record(connection, "upload", name, segment(0, 10))
            settle_claims(connection, "upload")
        assert _held(connection, "upload") == dict.fromkeys("abc", "shared_footage")
        assert {status for _, _, status, _ in _claims(connection)} <= {"expired"}


def test_weak_matches_of_others_do_not_make_footage_shared(database: str) -> None:
    with transaction(connect(database)) as connection:
        for name, owner in (("a", "Ana"), ("b", "Bo"), ("c", "Cy")):
            add_reference(connection, name, owner)
        add_upload(connection, "upload")
        record(connection, "upload", "a", segment(0, 60))
        for name in "bc":
            record(connection, "upload", name, segment(0, 60, score=0.05))
        settle_claims(connection, "upload")
        assert _held(connection, "upload")["a"] is None
        assert _claims(connection) == {("Ana", "upload", "potential", 60.0)}


def test_footage_found_in_pieces_is_shared_all_the_same(database: str) -> None:
    with transaction(connect(database)) as connection:
        for name, owner in (("a", "Ana"), ("b", "Bo"), ("c", "Cy")):
            add_reference(connection, name, owner)
        add_upload(connection, "upload")
        record(connection, "upload", "a", segment(0, 60))
        for name in "bc":
            record(connection, "upload", name, segment(0, 30), segment(30, 60, at=30))
        settle_claims(connection, "upload")
        assert _held(connection, "upload") == dict.fromkeys("abc", "shared_footage")
        assert _claims(connection) == set()


def test_frames_without_information_claim_nothing_and_say_why(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 30), is_empty=True)
        settle_claims(connection, "upload")
        assert _claims(connection) == set()
        reason = connection.execute(text("SELECT reason FROM held_segments")).scalar()
        assert reason == "low_information"


def test_any_order_of_arrival_gives_the_same_standing_claims(database: str) -> None:
    """Four references of four owners: three share an intro, each also has footage of its own."""
    matches = {
        "a": [segment(0, 10), segment(20, 40)],
        "b": [segment(0, 10)],
        "c": [segment(1, 10), segment(60, 62)],
        "d": [segment(50, 58)],
    }
    outcomes = set()
    with transaction(connect(database)) as connection:
        for name in matches:
            add_reference(connection, name, f"owner {name}")
    for order in itertools.permutations(matches):
        with connect(database).connect() as connection:  # rolled back: each order starts anew
            add_upload(connection, "upload")
            for name in order:
                record(connection, "upload", name, *matches[name])
                settle_claims(connection, "upload")
            standing = frozenset(
                claim for claim in _claims(connection) if claim[2] not in ("expired", "released")
            )
            outcomes.add(standing)
    assert outcomes == {
        frozenset(
            {
                ("owner a", "upload", "potential", 20.0),
                ("owner d", "upload", "potential", 8.0),
            }
        )
    }


def test_a_claim_follows_its_evidence_down_and_up_again_in_any_order(database: str) -> None:
    """Two references of one film: what the first shares with two others is nobody's, and the
    second alone is too little to block. Whichever pair comes last, the same must stand."""
    matches = {
        "intro": [segment(0, 12)],
        "middle": [segment(40, 60)],
        "b": [segment(0, 12)],
        "c": [segment(0, 12)],
    }
    policy = Policy("strict", (Rule("block", min_seconds=25), Rule("review", min_seconds=3)))
    with transaction(connect(database)) as connection:
        rights.add_policy(connection, policy)
        for name, owner in (("intro", "Ana"), ("middle", "Ana"), ("b", "Bo"), ("c", "Cy")):
            add_reference(connection, name, owner, f"film of {owner}")
        rights.assign_policy(connection, "strict", owner="Ana")
    outcomes = set()
    for order in itertools.permutations(matches):
        with connect(database).connect() as connection:  # rolled back: each order starts anew
            add_upload(connection, "upload")
            for name in order:
                record(connection, "upload", name, *matches[name])
                settle_claims(connection, "upload")
            outcomes.add(frozenset(each for each in _claims(connection) if each[2] != "expired"))
    assert outcomes == {frozenset({("Ana", "upload", "potential", 20.0)})}


def test_pairs_that_finish_at_the_same_moment_leave_the_claims_of_one_after_the_other(
    database: str,
) -> None:
    matches = {
        "a": [segment(0, 10), segment(20, 40)],
        "b": [segment(0, 10)],
        "c": [segment(1, 10)],
        "d": [segment(50, 58)],
    }
    with transaction(connect(database)) as connection:
        for name in matches:
            add_reference(connection, name, f"owner {name}")
        for round in range(4):
            add_upload(connection, f"upload {round}")

    def finish(upload: str, name: str, start: threading.Barrier) -> None:
        start.wait()
        with transaction(connect(database)) as connection:
            record(connection, upload, name, *matches[name])
            settle_claims(connection, upload)

    for round in range(4):
        start = threading.Barrier(len(matches))
        with ThreadPoolExecutor(len(matches)) as threads:
            at_once = [threads.submit(finish, f"upload {round}", name, start) for name in matches]
        for finished in at_once:
            finished.result()
    with transaction(connect(database)) as connection:
        standing = {claim for claim in _claims(connection) if claim[2] != "expired"}
    assert standing == {
        claim
        for round in range(4)
        for claim in (
            ("owner a", f"upload {round}", "potential", 20.0),
            ("owner d", f"upload {round}", "potential", 8.0),
        )
    }


def test_a_release_waits_for_whoever_settles_the_upload_and_holds_nothing_they_need(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")

    def release() -> list[int]:
        with transaction(connect(database)) as connection:
            return release_and_exclude(connection, 1, "ana", "authorised", None)

    with ThreadPoolExecutor(1) as thread:
        with transaction(connect(database)) as settler:
            settler.execute(text("SELECT 1 FROM videos WHERE id = 'upload' FOR NO KEY UPDATE"))
            released = thread.submit(release)
            _wait_for_a_lock(settler)
            settler.execute(text("SELECT 1 FROM claims WHERE id = 1 FOR UPDATE NOWAIT"))
        assert released.result(timeout=120) == []


def test_a_decision_made_while_a_worker_waits_for_the_claim_is_left_alone(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_reference(connection, "show", "Bo")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")

    def settle() -> None:
        with transaction(connect(database)) as connection:
            record(connection, "upload", "show", segment(60, 70))
            settle_claims(connection, "upload")

    with ThreadPoolExecutor(1) as thread:
        with transaction(connect(database)) as person:
            decide_claim(person, 1, "released", "ana", "misidentified")
            settled = thread.submit(settle)
            _wait_for_a_lock(person)
        settled.result(timeout=120)
    with transaction(connect(database)) as connection:
        claim = read_claim(connection, 1)
        assert [event["actor"] for event in claim["events"]] == ["engine", "ana"]
        assert claim["status"] == "released"


@pytest.mark.parametrize("rule", ["exclusion", "allowance", "policy", "owner", "asset"])
def test_a_match_recorded_while_a_rule_is_made_follows_the_rule(database: str, rule: str) -> None:
    """In whichever order they come: the worker waits here, and reads the rule then."""
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload", "fan club")
        rights.add_policy(connection, Policy("lenient", (Rule("track", 1000),)))
        rights.set_ownership(connection, 1, "Bo", 50, "DE")

    def make_rule(connection: Connection) -> None:
        if rule == "exclusion":
            rights.exclude_span(connection, "film", Span(0, 50), "ana")
        elif rule == "allowance":
            rights.allow_use(connection, "Bo", "bo", uploader="fan club")
        elif rule == "policy":
            rights.add_policy(connection, Policy("default", (Rule("track", 1000),)))
        elif rule == "owner":
            rights.assign_policy(connection, "lenient", owner="Ana")
            rights.assign_policy(connection, "lenient", owner="Bo")
        else:
            rights.assign_policy(connection, "lenient", asset_id=1)

    def finish() -> list[int]:
        with transaction(connect(database)) as connection:
            record(connection, "upload", "film", segment(0, 10))
            return settle_claims(connection, "upload")

    with ThreadPoolExecutor(1) as thread:
        with transaction(connect(database)) as person:
            make_rule(person)
            assert settle_again(person, find_matching_uploads(person, ["film"])) == []
            finished = thread.submit(finish)
            _wait_for_a_lock(person)
        assert finished.result(timeout=120) == []


def test_a_rule_made_while_a_match_is_recorded_waits_for_it_and_finds_it(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")

    def exclude() -> list[int]:
        with transaction(connect(database)) as connection:
            rights.exclude_span(connection, "film", Span(0, 50), "ana")
            uploads = find_matching_uploads(connection, ["film"])
            return settle_again(connection, uploads)

    with ThreadPoolExecutor(1) as thread:
        with transaction(connect(database)) as worker:
            record(worker, "upload", "film", segment(0, 10))
            excluded = thread.submit(exclude)
            _wait_for_a_lock(worker)
            assert settle_claims(worker, "upload") == [1]
        assert excluded.result(timeout=120) == [1]


def test_workers_and_people_who_change_every_rule_at_once_never_wait_in_a_circle(
    database: str,
) -> None:
    """PostgreSQL ends a circle by refusing one of those who wait in it."""
    films, uploads = ("a", "b", "c"), ("one", "two", "three", "four")
    with transaction(connect(database)) as connection:
        for name in films:
            add_reference(connection, name, f"owner {name}", f"film {name}")
        for upload in uploads:
            add_upload(connection, upload, f"uploader {upload}")
            record(connection, upload, "a", segment(0, 30))
            settle_claims(connection, upload)

    def settle_of(connection: Connection, *references: str) -> None:
        settle_again(connection, find_matching_uploads(connection, references))

    def work(connection: Connection, turn: int) -> None:
        upload, film = uploads[turn % 4], films[1 + turn // 4 % 2]
        record(connection, upload, film, segment(40, 60, at=turn % 4))
        settle_claims(connection, upload)

    def change(connection: Connection, turn: int) -> None:
        film, number = films[turn % 3], 1 + turn % 3
        match turn % 7:
            case 0:
                rights.exclude_span(connection, film, Span(turn, turn + 3), "ana")
                settle_of(connection, film)
            case 1:
                rights.allow_use(connection, f"owner {film}", "ana", uploader="uploader one")
                settle_of(connection, film)
            case 2:
                rights.set_ownership(connection, number, "Bo", turn, "DE")
                settle_of(connection, film)
            case 3:
                rights.add_policy(connection, Policy("default", (Rule("block", turn % 5),)))
                settle_of(connection, *films)
            case 4:
                rights.assign_policy(connection, "default", owner=f"owner {film}")
                settle_of(connection, film)
            case 5:
                assets.remove_reference(connection, film)
            case 6:
                claim = min(row["id"] for row in list_claims(connection, status="active"))
                release_and_exclude(connection, claim, "ana", None, None)

    def run(task: Callable[[Connection, int], None], turns: Iterable[int]) -> None:
        for turn in turns:
            # No claim is left to release, or no reference to remove: that is no circle.
            with suppress(Refused, NotFound, ValueError), transaction(connect(database)) as one:
                task(one, turn)

    with ThreadPoolExecutor(6) as threads:
        at_once = [threads.submit(run, work, range(start, 8, 2)) for start in range(2)]
        at_once += [threads.submit(run, change, range(start, 28, 4)) for start in range(4)]
    for done in at_once:
        done.result()


def test_an_expired_claim_shows_what_it_rested_on_and_comes_back_with_its_evidence(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        rights.exclude_span(connection, "film", Span(0, 12), "ana")
        uploads = find_matching_uploads(connection, ["film"])
        assert (uploads, settle_again(connection, uploads)) == (["upload"], [1])
        assert _claims(connection) == {("Ana", "upload", "expired", 10.0)}
        connection.execute(text("DELETE FROM reference_exclusions"))
        assert settle_again(connection, uploads) == []
        assert _claims(connection) == {("Ana", "upload", "potential", 10.0)}


def test_an_upload_is_not_claimed_while_it_is_a_reference(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "remake")
        record(connection, "remake", "film", segment(0, 30))
        settle_claims(connection, "remake")
        assert _claims(connection) == {("Ana", "remake", "potential", 30.0)}
        assets.add_reference(connection, "remake", assets.add_asset(connection, "Bo", "Remake"))
        assert _claims(connection) == {("Ana", "remake", "expired", 30.0)}
        assert [row["other_owner"] for row in assets.list_conflicts(connection, ["film"])] == ["Bo"]
        assets.remove_reference(connection, "remake")
        assert _claims(connection) == {("Ana", "remake", "potential", 30.0)}


def _move(connection: Connection, reference: str, owner: str, asset: str) -> None:
    assets.remove_reference(connection, reference)
    assets.add_reference(connection, reference, assets.add_asset(connection, owner, asset))


def test_a_reference_that_moves_takes_nothing_from_a_claim_that_a_person_decided(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 50))
        settle_claims(connection, "upload")
        decide_claim(connection, 1, "active", "ana")
        _move(connection, "film", "Bo", "Film of Bo")
        assert _claims(connection) == {("Ana", "upload", "active", 50.0)}
        assert len(read_claim(connection, 1)["segments"]) == 1


def test_a_reference_that_moves_takes_its_seconds_from_a_claim_that_nobody_decided(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana", "Film")
        add_reference(connection, "sequel", "Ana", "Film")
        for name in ("one", "two"):
            add_upload(connection, name)
            record(connection, name, "film", segment(0, 50))
        record(connection, "two", "sequel", segment(60, 80))
        for name in ("one", "two"):
            settle_claims(connection, name)
        _move(connection, "film", "Bo", "Film of Bo")
        assert _claims(connection) == {
            ("Ana", "one", "expired", 0.0),
            ("Bo", "one", "potential", 50.0),
            ("Ana", "two", "potential", 20.0),
            ("Bo", "two", "potential", 50.0),
        }


def test_a_claim_keeps_what_was_found_of_a_reference_that_is_removed(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana", "Film")
        add_reference(connection, "sequel", "Ana", "Film")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 50))
        record(connection, "upload", "sequel", segment(60, 61))
        settle_claims(connection, "upload")
        assets.remove_reference(connection, "film")
        settle_claims(connection, "upload")
        assert _claims(connection) == {("Ana", "upload", "potential", 51.0)}


def test_what_is_allowed_stays_so_whenever_the_reference_is_removed(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        for name in ("before", "after"):
            add_upload(connection, name)
            record(connection, name, "film", segment(0, 50))
            settle_claims(connection, name)
        rights.allow_use(connection, "Ana", "ana", upload="before")
        assert settle_again(connection, ["before"]) == [1]
        assets.remove_reference(connection, "film")
        rights.allow_use(connection, "Ana", "ana", upload="after")
        assert settle_again(connection, ["before", "after"]) == [2]
        assert {status for _, _, status, _ in _claims(connection)} == {"expired"}


def test_footage_is_no_longer_shared_when_a_reference_of_it_is_removed(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_upload(connection, "upload")
        for name, owner in (("a", "Ana"), ("b", "Bo"), ("c", "Cy")):
            add_reference(connection, name, owner)
            record(connection, "upload", name, segment(0, 10))
        assert settle_claims(connection, "upload") == []
        assets.remove_reference(connection, "c")
        standing = {claim for claim in _claims(connection) if claim[2] != "expired"}
        assert standing == {
            ("Ana", "upload", "potential", 10.0),
            ("Bo", "upload", "potential", 10.0),
        }


def test_a_claim_on_a_removed_asset_can_only_be_released(database: str) -> None:
    engine = connect(database)
    with transaction(engine) as connection:
        add_reference(connection, "film", "Ana", "The film")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        assert assets.remove_asset(connection, 1) == ["film"]
        add_upload(connection, "later")
        record(connection, "later", "film", segment(0, 10))
        settle_claims(connection, "later")
        assert _claims(connection) == {("Ana", "upload", "potential", 10.0)}
    refusal = "claim 1 is on asset 1 'The film', which was removed on .* only released"
    with pytest.raises(Refused, match=refusal), transaction(engine) as connection:
        decide_claim(connection, 1, "active", "ana")
    with transaction(engine) as connection:
        claim = read_claim(connection, 1)
        assert (claim["status"], len(claim["events"])) == ("potential", 1)
        with pytest.raises(Refused, match="asset 1 'The film' was removed on"):
            assets.find_asset(connection, "The film")
        decide_claim(connection, 1, "released", "ana")
        assert assets.add_asset(connection, "Ana", "The film") == 1
        assert assets.find_asset(connection, "The film") == 1


def test_nobody_decides_in_the_engines_name(database: str) -> None:
    """It would make a person's decision look like one that the engine may take back."""
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        with pytest.raises(Refused, match="in your own name"):
            decide_claim(connection, 1, "released", "engine")


def test_a_dry_run_shows_what_would_be_claimed_beside_what_is_and_writes_nothing(
    database: str,
) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        add_reference(connection, "show", "Bo")
        rights.set_ownership(connection, 1, "Ana", 100, "DE")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10), segment(5, 12))
        record(connection, "upload", "show", segment(50, 52))
        settle_claims(connection, "upload")
        policy = Policy("try", (Rule("block", 5, territories=frozenset({"DE"})), Rule("track", 1)))
        rows = rehearse_policy(connection, policy)
        facts = [
            (row["owner"], row["action"], row["territories"], row["seconds"], row["claim_today"])
            for row in rows
        ]
        assert facts == [
            ("Ana", "block", ["DE", "WW"], 12.0, "potential"),
            ("Bo", "track", ["DE", "WW"], 2.0, None),
        ]
        assert rehearse_policy(connection, policy, owner="Bo") == rows[1:]
        assert rehearse_policy(connection, policy, asset_id=1) == rows[:1]
        assert _claims(connection) == {("Ana", "upload", "potential", 12.0)}


def test_an_allowed_uploader_is_not_claimed(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.allow_use(connection, "Ana", "ana@example", uploader="fan club")
        for uploader in ("fan club", "somebody"):
            add_upload(connection, f"by {uploader}", uploader)
            record(connection, f"by {uploader}", "film", segment(0, 10))
            settle_claims(connection, f"by {uploader}")
        assert _claims(connection) == {("Ana", "by somebody", "potential", 10.0)}


def test_what_a_person_decided_survives_every_later_settling(database: str) -> None:
    with transaction(connect(database)) as connection:
        for name in ("film", "sequel"):
            add_reference(connection, name, "Ana", "The film")
        add_upload(connection, "upload")
        record(connection, "upload", "film", segment(0, 10))
        settle_claims(connection, "upload")
        decide_claim(connection, 1, "released", "reviewer", "fair_use")
        record(connection, "upload", "sequel", segment(30, 90))
        settle_claims(connection, "upload")
        assert [row["status"] for row in list_claims(connection)] == ["released"]
        assert connection.execute(text("SELECT count(*) FROM infringing_segments")).scalar() == 0


def test_release_with_exclusion_closes_siblings_that_rest_on_nothing_else(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        for name in ("one", "two", "three"):
            add_upload(connection, name)
        record(connection, "one", "film", segment(0, 10, at=5))
        record(connection, "two", "film", segment(40, 50, at=5))
        record(connection, "three", "film", segment(0, 10, at=5), segment(20, 40, at=60))
        for name in ("one", "two", "three"):
            settle_claims(connection, name)
        siblings = release_and_exclude(connection, 1, "reviewer", "authorised", "licensed music")
        assert len(siblings) == 1
        # A closed claim keeps what it rested on, one that stands loses the excluded footage.
        assert _claims(connection) == {
            ("Ana", "one", "released", 10.0),
            ("Ana", "two", "released", 10.0),
            ("Ana", "three", "potential", 20.0),
        }
        standing = connection.execute(text("SELECT query, query_start FROM infringing_segments"))
        assert [tuple(row) for row in standing] == [("three", 20)]
        add_upload(connection, "four")
        record(connection, "four", "film", segment(0, 10, at=5))
        settle_claims(connection, "four")
        assert ("four" in {query for _, query, _, _ in _claims(connection)}) is False


def test_ownership_beyond_a_hundred_per_cent_is_refused_and_nothing_is_written(
    database: str,
) -> None:
    engine = connect(database)
    with transaction(engine) as connection:
        add_reference(connection, "film", "Ana")
        rights.set_ownership(connection, 1, "Ana", 51, "US")
    with (
        pytest.raises(Refused, match=r"111 % in US.*at most 49 %"),
        transaction(engine) as connection,
    ):
        rights.set_ownership(connection, 1, "Bo", 60, "US")
    with transaction(engine) as connection:
        rows = connection.execute(text("SELECT territory, share FROM asset_owners ORDER BY 1"))
        assert [(row.territory, float(row.share)) for row in rows] == [("US", 51.0), ("WW", 100.0)]


@pytest.mark.parametrize("code", ["XX", "de", "Germany", ""])
def test_a_territory_that_does_not_exist_is_refused_by_name(database: str, code: str) -> None:
    with (
        pytest.raises(Refused, match=f"no territory {code!r}"),
        transaction(connect(database)) as connection,
    ):
        rights.add_policy(connection, Policy("p", (Rule("block", territories=frozenset({code})),)))


def test_things_that_do_not_exist_are_named(database: str) -> None:
    with transaction(connect(database)) as connection:
        with pytest.raises(NotFound, match="no policy 'none'"):
            rights.read_policy(connection, "none")
        with pytest.raises(NotFound, match="no asset 7"):
            rights.assign_policy(connection, "default", asset_id=7)
        with pytest.raises(NotFound, match="no owner 'Zoe'"):
            rights.allow_use(connection, "Zoe", "me", uploader="x")
        with pytest.raises(Refused, match="either an uploader or one upload"):
            rights.allow_use(connection, "Zoe", "me")


def test_an_excluded_stretch_holds_what_it_covers_and_nothing_else(database: str) -> None:
    with transaction(connect(database)) as connection:
        add_reference(connection, "film", "Ana")
        rights.exclude_span(connection, "film", Span(0, 12), "ana@example", "the intro")
        for name, at in (("intro", 0), ("middle", 40), ("across", 8)):
            add_upload(connection, name)
            record(connection, name, "film", segment(0, 10, at=at))
            settle_claims(connection, name)
        assert _held(connection, "intro") == {"film": "excluded"}
        assert {query for _, query, _, _ in _claims(connection)} == {"middle", "across"}
