"""Every lock is a table that its owner alone can lock, and strangers do not wait for each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from retrieval.work import locks
from retrieval.work.locks import Lock
from vcl_plugin.claims.turns import share_rules, take_everybody, take_references

ROOT = Path(__file__).parents[3]


def test_no_advisory_lock_is_taken_but_to_migrate() -> None:
    sources = [*(ROOT / "retrieval").rglob("*.py"), *(ROOT / "vcl_plugin").rglob("*.py")]
    holders = {path.name for path in sources if "pg_advisory" in path.read_text()}
    assert holders == {"locks.py"}
    assert len(re.findall("pg_.*advisory", (ROOT / "retrieval/work/locks.py").read_text())) == 1


def test_every_lock_has_its_tables_and_every_table_its_lock(db: Engine) -> None:
    named = (locks.name_table(each, str(n)) for each in Lock if each.is_named for n in range(999))
    single = (locks.name_table(each) for each in Lock if not each.is_named)
    with db.begin() as connection:
        found = connection.execute(
            text("SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname = 'turns'")
        ).scalars()
        assert set(found) == {*named, *single}


def test_who_changes_an_index_does_not_wait_for_a_rule_about_a_reference_of_its_name(
    db: Engine,
) -> None:
    with db.begin() as one, db.begin() as other:
        take_references(one, ["name"])
        other.execute(text("SET LOCAL lock_timeout = '2s'"))
        locks.take(other, Lock.INDEX, "name")


def test_one_at_a_time_has_a_lock_and_who_does_not_get_it_goes_on(db: Engine) -> None:
    with db.begin() as one, db.begin() as other:
        assert locks.try_take(one, Lock.SWEEP)
        assert not locks.try_take(other, Lock.SWEEP)
        assert other.execute(text("SELECT 1")).scalar() == 1
        assert locks.try_take(one, Lock.SWEEP), "its holder has it already"
    with db.begin() as other:
        assert locks.try_take(other, Lock.SWEEP)


def test_workers_share_the_rules_and_a_rule_waits_for_all_of_them(db: Engine) -> None:
    with db.begin() as one, db.begin() as other, db.begin() as ruler:
        for each in (one, other):
            each.execute(text("SET LOCAL lock_timeout = '2s'"))
            share_rules(each, "film")
        assert not locks.try_take(ruler, Lock.COMMON_RULES)
        assert not locks.try_take(ruler, Lock.REFERENCE_RULES, "film")
    with db.begin() as ruler, db.begin() as one:
        take_everybody(ruler)
        one.execute(text("SET LOCAL lock_timeout = '100ms'"))
        with pytest.raises(Exception, match="lock timeout"):
            share_rules(one, "film")


def test_a_lock_by_name_wants_a_name(db: Engine) -> None:
    with pytest.raises(ValueError, match="by name"):
        locks.name_table(Lock.PAIRS)
    with pytest.raises(ValueError, match="without a name"):
        locks.name_table(Lock.SWEEP, "name")


def test_an_analysts_role_can_lock_nothing_that_a_worker_waits_for(db: Engine) -> None:
    with db.begin() as connection:
        tables = list(
            connection.execute(
                text("""
                SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
                WHERE schemaname IN ('turns', 'public')""")
            ).scalars()
        )
        connection.execute(text("SET LOCAL ROLE vcl_analyst"))
        for table in tables:
            for mode in ("ROW SHARE", "EXCLUSIVE"):
                attempt = connection.begin_nested()
                with pytest.raises(ProgrammingError, match="permission denied"):
                    connection.execute(text(f"LOCK TABLE {table} IN {mode} MODE NOWAIT"))
                attempt.rollback()
