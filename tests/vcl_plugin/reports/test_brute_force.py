"""Random worlds of uploads, matches, rules and decisions: every view is what brute force says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from retrieval.database import connect, transaction
from retrieval.errors import NotFound, Refused
from retrieval.records import Segment, Span, Upload
from retrieval.work.pairs import Method
from retrieval.work.uploads import find_uploads, note_upload
from tests.vcl_plugin.reports.brute_force import BruteForce
from tests.vcl_plugin.reports.facts import Row
from tests.vcl_plugin.world import add_reference, add_upload, record
from vcl_plugin.claims import assets, rights
from vcl_plugin.claims.claims import REASONS, TRANSITIONS, decide_claim
from vcl_plugin.claims.release import release_and_exclude
from vcl_plugin.claims.settlement import find_matching_uploads, settle_again, settle_claims
from vcl_plugin.reports.reports import REPORTS, read_report

FILMS = {"a": "Ana", "b": "Ana", "c": "Bo", "d": "Bo", "e": "Cy", "f": "Dia"}
CONTENTS = ("u", "v", "w")
UPLOADERS = (None, "pirate", "licensee", "fan")
STEPS = 50
MARCH = datetime(2026, 3, 1, tzinfo=UTC)


class World:
    """Steps that people and workers take, chosen by a seed; each is a transaction."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.runs = 0
        steps: dict[Callable[[Connection], None], int] = {
            self.find: 10,
            self.find_back: 2,
            self.upload: 4,
            self.exclude: 2,
            self.allow: 2,
            self.decide: 6,
            self.release_and_exclude: 1,
            self.move_reference: 2,
            self.share: 1,
            self.fail: 2,
        }
        self.steps, self.weights = list(steps), list(steps.values())

    def begin(self, connection: Connection) -> None:
        for film, owner in FILMS.items():
            add_reference(connection, film, owner)
        for content in CONTENTS:
            add_upload(connection, content)

    def step(self, connection: Connection) -> str:
        [step] = self.dice.choices(self.steps, self.weights)
        step(connection)
        return step.__name__

    def find(self, connection: Connection) -> None:
        query = self.dice.choice([*CONTENTS, *CONTENTS, *CONTENTS, *FILMS])
        reference = self.dice.choice([film for film in FILMS if film != query])
        found = [self.segment() for _ in range(self.dice.randint(1, 3))]
        self.record(connection, query, reference, *found)

    def find_back(self, connection: Connection) -> None:
        """Of two references that share footage, the one in the other: the same, or a part."""
        held = connection.execute(
            text("""
            SELECT query_id, reference_id, lower(query_span)::float AS at,
                   lower(reference_span)::float AS start, upper(reference_span)::float AS stop
            FROM segments WHERE held = 'reference' ORDER BY id""")
        ).all()
        if held:
            row = self.dice.choice(held)
            seconds = self.dice.choice([1.0, row.stop - row.start])
            span = Span(row.start, row.start + seconds)
            back = Segment(span, Span(row.at, row.at + seconds), 0.9)
            self.record(connection, row.reference_id, row.query_id, back)

    def record(self, connection: Connection, query: str, reference: str, *found: Segment) -> None:
        self.runs += 1
        is_empty = self.dice.random() < 0.1
        method = Method(f"model {self.runs}", "kind")
        record(connection, query, reference, *found, is_empty=is_empty, method=method)
        settle_claims(connection, query)

    def segment(self) -> Segment:
        length, pace = 2 * self.dice.randint(2, 12), self.dice.choice([0.5, 1.0, 1.0, 2.0])
        start, at = self.dice.randint(0, 50), self.dice.randint(0, 70)
        return Segment(
            Span(start, start + length * pace),
            Span(at, at + length),
            self.dice.choice([0.1, 0.5, 0.9]),
            self.dice.random() < 0.3,
            1 / pace,
        )

    def upload(self, connection: Connection) -> None:
        number = self.dice.choice([None, *range(9)])
        when = self.dice.choice([None, MARCH + timedelta(days=self.dice.randint(0, 9))])
        where = None if number is None else f"https://example.org/{number}"
        name = None if number is None else f"id {number}"
        content = self.dice.choice(CONTENTS)
        note_upload(connection, content, Upload(self.dice.choice(UPLOADERS), name, where, when))
        settle_claims(connection, content)

    def exclude(self, connection: Connection) -> None:
        film, start = self.dice.choice(list(FILMS)), self.dice.randint(0, 80)
        rights.exclude_span(connection, film, Span(start, start + self.dice.randint(1, 20)), "ana")
        settle_again(connection, find_matching_uploads(connection, [film]))

    def allow(self, connection: Connection) -> None:
        owner = self.dice.choice(list(FILMS.values()))
        uploader = self.dice.choice([*UPLOADERS, None])
        name = None if uploader else self.dice.choice(CONTENTS)
        asset_id = self.dice.choice([None, self.dice.randint(1, len(FILMS))])
        rights.allow_use(connection, owner, "ana", uploader, name, asset_id)
        contents = (
            list(set(find_uploads(connection, name).values()))
            if name
            else find_matching_uploads(connection, uploader=uploader)
        )
        settle_again(connection, contents)

    def decide(self, connection: Connection) -> None:
        if claim := self.any_claim(connection):
            ways = sorted(TRANSITIONS[claim.status] - {"expired"})
            status = self.dice.choice(ways or ["released"])
            reason = self.dice.choice(REASONS) if status == "released" else None
            decide_claim(connection, claim.id, status, "ana", reason)

    def release_and_exclude(self, connection: Connection) -> None:
        if claim := self.any_claim(connection):
            release_and_exclude(connection, claim.id, "ana", "original", None)

    def any_claim(self, connection: Connection) -> Any:
        claims = connection.execute(text("SELECT id, status FROM claims ORDER BY id")).all()
        return self.dice.choice(claims) if claims else None

    def move_reference(self, connection: Connection) -> None:
        video = self.dice.choice([*FILMS, "w"])
        known = text("SELECT 1 FROM reference_videos WHERE video_id = :video")
        if connection.execute(known, {"video": video}).scalar():
            assets.remove_reference(connection, video)
        else:
            assets.add_reference(connection, video, self.dice.randint(1, len(FILMS)))

    def share(self, connection: Connection) -> None:
        asset_id, owner = self.dice.randint(1, len(FILMS)), self.dice.choice(["Ana", "Bo", "Cy"])
        share, territory = self.dice.choice([0, 40]), self.dice.choice(["DE", "FR"])
        rights.set_ownership(connection, asset_id, owner, share, territory)
        settle_again(connection, find_matching_uploads(connection, asset_ids=[asset_id]))

    def fail(self, connection: Connection) -> None:
        connection.execute(
            text("""
            UPDATE pairs SET status = 'quarantined', reason = 'not_found', message = 'gone'
            WHERE id = (SELECT max(id) FROM pairs)""")
        )
        connection.execute(
            text("""
            UPDATE searches SET status = 'failed', reason = 'not_found', message = 'gone',
                   finished_at = created_at + :took * interval '1s'
            WHERE id = (SELECT id FROM searches ORDER BY created_at DESC, id LIMIT 1)"""),
            {"took": self.dice.randint(1, 90)},
        )


def alike(row: Row) -> tuple[Any, ...]:
    """A row as it can be counted: numbers to the microsecond, whatever their type."""
    return tuple(
        (name, round(float(value), 6) if isinstance(value, int | float | Decimal) else value)
        for name, value in sorted(row.items())
    )


def check_views(connection: Connection, last_found: dict[int, datetime], told: str) -> set[str]:
    """Compare every report; returns those that have rows."""
    facts = BruteForce(connection, last_found)
    filled = set()
    for name in REPORTS:
        expected: list[Row] = getattr(facts, name)()
        report = read_report(connection, name)
        columns = set(expected[0]) if expected else set(report.columns)
        assert columns <= set(report.columns), f"{name} lacks {columns - set(report.columns)}"
        found = [dict(zip(report.columns, row, strict=True)) for row in report.rows]
        seen = Counter(alike({each: row[each] for each in columns}) for row in found)
        wanted = Counter(map(alike, expected))
        assert seen == wanted, f"{told}: {name} has {seen - wanted}, should have {wanted - seen}"
        if found:
            filled.add(name)
    return filled


@pytest.mark.parametrize("seed", range(3))
def test_every_view_equals_brute_force_in_a_random_world(database: str, seed: int) -> None:
    engine: Engine = connect(database)
    world, last_found, filled = World(seed), dict[int, datetime](), set[str]()
    with transaction(engine) as connection:
        world.begin(connection)
    for number in range(STEPS):
        told = f"seed {seed}, step {number}"
        try:
            with transaction(engine) as connection:
                told += f" ({world.step(connection)})"
        except (NotFound, Refused):
            continue  # as a person would be: nothing has changed
        with transaction(engine) as connection:
            filled |= check_views(connection, last_found, told)
    assert filled == set(REPORTS), "the world is too poor to tell"
