"""Every record of a worker is one line of key=value, found by the ids of its work."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator

import pytest
from celery import Celery
from celery.app.trace import LOG_SUCCESS

from retrieval.work import journal


@pytest.fixture(autouse=True)
def no_work() -> Iterator[None]:
    yield
    journal.lay_down()


def line(message: str, *arguments: object, error: BaseException | None = None) -> str:
    record = logging.LogRecord(
        "retrieval.engine",
        logging.INFO,
        "engine.py",
        7,
        message,
        arguments,
        (type(error), error, error.__traceback__) if error is not None else None,
    )
    return journal.LineFormatter().format(record)


def facts(text: str) -> dict[str, str]:
    assert "\n" not in text
    return dict(each.split("=", 1) for each in shlex.split(text))


def test_a_message_of_pairs_becomes_an_event_and_its_pairs() -> None:
    found = facts(line("localized pair=%d segments=%d", 7, 2))
    assert (found["event"], found["pair"], found["segments"]) == ("localized", "7", "2")
    assert found["level"] == "info"
    assert found["time"].endswith("Z")


def test_a_sentence_is_quoted_whole() -> None:
    found = facts(line("the broker does not answer (%s); it waits", 'a "closed" door'))
    assert found["event"] == "retrieval.engine"
    assert found["message"] == 'the broker does not answer (a "closed" door); it waits'


def test_every_line_of_a_task_names_its_search_and_none_after_it() -> None:
    journal.take_up(kwargs={"search_id": "s-1", "query_id": "q 2", "reference_ids": ["a"]})
    found = facts(line("localized pair=%d", 7))
    assert (found["search"], found["query"]) == ("s-1", "q 2")
    assert facts(line("something happened"))["search"] == "s-1"
    journal.lay_down()
    assert "search" not in facts(line("localized pair=%d", 7))


def test_what_the_message_says_itself_is_not_said_twice() -> None:
    journal.take_up(kwargs={"search_id": "s-1"})
    assert line("search search=%s messages=%d", "s-1", 3).count("s-1") == 1


def test_an_error_is_on_the_same_line_with_the_places_it_came_through() -> None:
    def fail() -> None:
        raise ValueError("two\nlines")

    try:
        fail()
    except ValueError as error:
        text = line("localize pair=%d failed", 7, error=error)
    assert "\n" not in text
    assert r'error="ValueError: two\nlines"' in text
    assert text.count("test_journal.py:") == 2


@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[2Jb", "a\u202eb", "a\u2028b", '"', "a b", "="])
def test_an_id_of_somebody_elses_breaks_no_line_and_moves_no_cursor(hostile: str) -> None:
    journal.take_up(kwargs={"video_id": hostile})
    for text in (line("ingest video=%s status=ready", hostile), line("loaded")):
        assert text.isprintable()
        assert text.isascii()


def test_a_worker_starts_with_the_journal_and_without_celerys_chatter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, alembic = logging.getLogger(), logging.getLogger("alembic")
    before = (root.level, root.handlers[:], alembic.level)
    trace = logging.getLogger("celery.app.trace")
    task = {"name": "retrieval.search", "id": "7", "runtime": 0.1, "return_value": None}

    def say() -> str:
        trace.info(LOG_SUCCESS, task)
        trace.info("Task %(name)s[%(id)s] raised expected: refused", task)
        return capsys.readouterr().err

    try:
        journal.start(loglevel="INFO", logfile=None)
        said = say()
        assert "raised expected: refused" in said
        assert len(said.splitlines()) == 1
        journal.start(loglevel=logging.DEBUG)
        assert len(say().splitlines()) == 2
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        alembic.setLevel(before[2])


def test_workers_import_it_before_they_set_up_logging(celery_app: Celery) -> None:
    assert "retrieval.work.journal" in celery_app.conf.imports
