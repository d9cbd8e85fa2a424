"""Every way a pair can end has an answer of its own, with the numbers behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, text

from retrieval.database import connect, transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import NotFound
from retrieval.records import Segment
from retrieval.work import catalogue, searches
from retrieval.work.pairs import Method
from tests.retrieval.test_engine import make_engine
from tests.retrieval.test_store import unit_rows
from tests.vcl_plugin import world
from tests.vcl_plugin.cli.conftest import Said, vcl  # noqa: F401
from vcl_plugin.claims import assets, claims, settlement
from vcl_plugin.cli import why as why_command
from vcl_plugin.reports import inquiry
from vcl_plugin.reports.inquiry import Answer, explain_pair


@pytest.fixture
def db(database: str) -> Engine:
    return connect(database)


@pytest.fixture
def engine(db: Engine, tmp_path: Path) -> RetrievalEngine:
    """An upload `up` that was searched, and references that have nothing to do with it."""
    engine = make_engine(db, tmp_path, top_k=2, localizer="tn")
    describe(engine, "up", unit_rows(40, seed=0))
    for number in range(4):
        name = f"film{number}"
        with transaction(db) as connection:
            world.add_reference(connection, name, "Acme")
        describe(engine, name, unit_rows(40, seed=10 + number))
    with transaction(db) as connection:
        searches.create_search(connection, "up")
    return engine


def describe(engine: RetrievalEngine, name: str, rows: np.ndarray) -> None:
    kind = engine.descriptor.fingerprint.key
    path = engine.store.write(name, kind, rows)
    with transaction(engine.database) as connection:
        catalogue.register_foreign(connection, name, None, float(len(rows)))
        catalogue.record_descriptors(connection, name, kind, str(path), len(rows), 256)


def ask(engine: RetrievalEngine, query: str = "up", reference: str = "film1") -> Answer:
    with transaction(engine.database) as connection:
        videos = [catalogue.find_video(connection, each) for each in (query, reference)]
    return explain_pair(engine, *videos)


def compared(engine: RetrievalEngine, *segments: Segment, is_empty: bool = False) -> None:
    """The pair of `up` and `film1` as a worker leaves it."""
    with transaction(engine.database) as connection:
        world.record(connection, "up", "film1", *segments, is_empty=is_empty)
        connection.execute(text("UPDATE pairs SET status = 'done'"))
        settlement.settle_claims(connection, "up")


def set_pair(engine: RetrievalEngine, changes: str) -> None:
    compared(engine)
    with transaction(engine.database) as connection:
        connection.execute(text(f"UPDATE pairs SET {changes}"))


def test_a_video_that_nobody_registered_is_named(engine: RetrievalEngine):
    with pytest.raises(NotFound, match="no video has 'nobody' as id, title or path") as error:
        ask(engine, "nobody")
    assert error.value.code == "not_registered"


def test_a_video_that_could_not_be_described_tells_its_reason(engine: RetrievalEngine):
    with transaction(engine.database) as connection:
        connection.execute(
            text("""UPDATE videos SET status = 'failed', reason = 'truncated',
                    message = 'it ends in the middle' WHERE id = 'film1'""")
        )
    answer = ask(engine)
    assert answer.code == "not_ingested"
    assert answer.facts["reason"] == "truncated"
    assert "it ends in the middle" in answer.sentence


def test_a_video_that_is_no_reference_says_so(engine: RetrievalEngine):
    describe(engine, "other", unit_rows(9, seed=3))
    assert ask(engine, reference="other").code == "not_a_reference"


def test_an_upload_that_was_never_searched_says_so(engine: RetrievalEngine):
    describe(engine, "new", unit_rows(9, seed=3))
    assert ask(engine, "new").code == "not_searched"


def test_a_reference_that_was_no_candidate_has_the_rank_it_would_have(engine: RetrievalEngine):
    answers = [ask(engine, reference=f"film{number}") for number in range(4)]
    assert {each.code for each in answers} == {"not_a_candidate"}
    assert sorted(each.facts["rank"] for each in answers) == [1, 2, 3, 4]
    last = max(answers, key=lambda each: each.facts["rank"])
    assert last.facts["ranks_kept"] == 2
    assert last.facts["score"] <= last.facts["score_of_last_kept"]
    assert "searched again, it has rank 4" in last.sentence
    first = min(answers, key=lambda each: each.facts["rank"])
    assert "is one now: rank 1" in first.sentence


def test_a_reference_out_of_sight_is_said_to_be_beyond_the_ranks_looked_at(
    engine: RetrievalEngine, monkeypatch: pytest.MonkeyPatch
):
    ranks = {number: ask(engine, reference=f"film{number}").facts["rank"] for number in range(4)}
    last = max(ranks, key=lambda number: ranks[number])
    monkeypatch.setattr(inquiry, "DEEPEST_RANK", 2)
    answer = ask(engine, reference=f"film{last}")
    assert (answer.code, answer.facts["rank"]) == ("not_a_candidate", None)
    assert "not among the first 2" in answer.sentence


def test_a_pair_under_way_is_not_compared_yet(engine: RetrievalEngine):
    set_pair(engine, "status = 'waiting'")
    answer = ask(engine)
    assert (answer.code, answer.facts) == ("not_compared_yet", {"rank": 1, "score": 0.5})


def test_a_pair_that_was_set_aside_tells_its_reason(engine: RetrievalEngine):
    set_pair(engine, "status = 'quarantined', reason = 'no_descriptors', message = 'gone'")
    answer = ask(engine)
    assert (answer.code, answer.facts["reason"]) == ("set_aside", "no_descriptors")
    assert answer.sentence.endswith("gone")


def test_a_pair_without_segments_is_below_the_threshold(engine: RetrievalEngine):
    compared(engine)
    answer = ask(engine)
    assert (answer.code, answer.facts["best_score"]) == ("below_threshold", None)
    assert answer.facts["localizer"] == world.METHOD.model


def test_a_claim_by_an_earlier_comparison_is_not_forgotten_when_a_later_one_finds_nothing(
    engine: RetrievalEngine,
):
    compared(engine, world.segment(0, 5))
    with transaction(engine.database) as connection:
        world.record(connection, "up", "film1", method=Method("tn-newer", "lite0-test"))
        connection.execute(text("UPDATE pairs SET status = 'done'"))
        settlement.settle_claims(connection, "up")
    answer = ask(engine)
    assert answer.code == "claimed"
    assert "stands (potential): 1 segments of 5.0 s were found" in answer.sentence


def test_what_two_comparisons_found_is_told_once(engine: RetrievalEngine):
    compared(engine, world.segment(0, 5))
    with transaction(engine.database) as connection:
        newer = Method("tn-newer", "lite0-test")
        world.record(connection, "up", "film1", world.segment(0, 6), method=newer)
        connection.execute(text("UPDATE pairs SET status = 'done'"))
        settlement.settle_claims(connection, "up")
    answer = ask(engine)
    assert answer.code == "claimed"
    assert [each["query_end"] for each in answer.facts["segments"]] == [6]


def test_a_localizer_with_a_threshold_is_asked_again_without_it(
    engine: RetrievalEngine, monkeypatch: pytest.MonkeyPatch
):
    class Lenient:
        name, fingerprint = "lenient", "lenient-1"

        def localize(self, query: Any, reference: Any) -> list[Segment]:
            return [world.segment(3, 9, score=0.11), world.segment(20, 30, score=0.21)]

        def localize_many(self, query: Any, references: Any) -> list[list[Segment]]:
            return [self.localize(query, each) for each in references]

    asked: dict[str, Any] = {}

    def load(name: str, **options: Any) -> Lenient:
        asked.update(options, name=name)
        return Lenient()

    monkeypatch.setattr(inquiry, "load_localizer", load)
    compared(engine)
    answer = ask(engine)
    assert (answer.facts["best_score"], asked["min_score"]) == (0.21, 0.0)
    assert "the best one scores 0.210" in answer.sentence


def test_segments_of_black_frames_are_held_by_the_guard(engine: RetrievalEngine):
    compared(engine, world.segment(3, 20), is_empty=True)
    answer = ask(engine)
    assert (answer.code, answer.facts["held"]) == ("held_by_guard", ["low_information"])
    assert "title cards" in answer.sentence


def test_a_match_that_no_rule_covers_is_held_by_policy(engine: RetrievalEngine):
    compared(engine, world.segment(3, 5))
    answer = ask(engine)
    assert answer.code == "held_by_policy"
    assert "1 segments of 2.0 s" in answer.sentence
    assert "`vcl policy list`" in answer.sentence


def test_a_match_of_a_reference_without_an_asset_claims_nothing(engine: RetrievalEngine):
    with transaction(engine.database) as connection:
        connection.execute(text("DELETE FROM reference_videos WHERE video_id = 'film1'"))
    compared(engine, world.segment(3, 20))
    assert ask(engine).code == "no_asset"


def test_a_claim_that_stands_is_named(engine: RetrievalEngine):
    compared(engine, world.segment(3, 20))
    answer = ask(engine)
    assert (answer.code, answer.facts["claim_status"]) == ("claimed", "potential")
    assert f"claim {answer.facts['claim_id']} on 'film1 the film' stands" in answer.sentence


def test_a_claim_that_stands_is_named_though_its_reference_was_removed(engine: RetrievalEngine):
    compared(engine, world.segment(3, 20))
    with transaction(engine.database) as connection:
        assets.remove_reference(connection, "film1")
    answer = ask(engine)
    assert (answer.code, answer.facts["claim_status"]) == ("claimed", "potential")


def test_a_claim_that_was_released_is_told_as_closed(engine: RetrievalEngine):
    compared(engine, world.segment(3, 20))
    with transaction(engine.database) as connection:
        claims.decide_claim(connection, ask(engine).facts["claim_id"], "released", "ana")
    answer = ask(engine)
    assert (answer.code, answer.facts["claim_status"]) == ("claim_closed", "released")


def test_a_title_that_two_videos_have_is_asked_back(engine: RetrievalEngine):
    with transaction(engine.database) as connection:
        connection.execute(text("UPDATE videos SET title = 'Film' WHERE id LIKE 'film%'"))
    with pytest.raises(NotFound, match="4 videos are called 'Film'; name one by its id"):
        ask(engine, reference="Film")


def test_a_video_is_found_by_title_and_by_path(engine: RetrievalEngine, tmp_path: Path):
    path = tmp_path / "up.mp4"
    with transaction(engine.database) as connection:
        connection.execute(
            text("UPDATE videos SET title = 'My trip', path = :path WHERE id = 'up'"),
            {"path": str(path)},
        )
        names = ("up", "My trip", str(path))
        assert {catalogue.find_video(connection, name).id for name in names} == {"up"}


def test_the_command_prints_a_sentence_or_json(
    engine: RetrievalEngine,
    vcl: Callable[..., Said],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
):
    compared(engine, world.segment(3, 20))
    monkeypatch.setattr(why_command, "open_engine", lambda: engine)
    said = vcl("why", "up", "film1")
    assert said.code == 0
    assert said.out.startswith("claim 1 on 'film1 the film' stands (potential)")
    assert said.out.rstrip().endswith("(claimed)")
    found = json.loads(vcl("why", "up", "film1", "--json").out)
    assert (found["code"], found["rank"], found["claim_id"]) == ("claimed", 1, 1)
    assert found["segments"][0]["query_end"] == 20
    missing = vcl("why", "up", "nobody")
    assert (missing.code, "not_registered" in missing.err) == (1, True)
