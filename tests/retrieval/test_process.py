"""One engine a process, on services that were asked for once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retrieval import process
from retrieval.errors import ServiceUnavailable
from retrieval.process import forget_process, process_engine, process_services
from retrieval.services import Endpoints
from retrieval.settings import Settings, load_settings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Settings]]:
    """Each time that somebody makes sure of the services."""
    seen: list[Settings] = []
    original = process.ensure_services

    def count(settings: Settings) -> Endpoints:
        seen.append(settings)
        return original(settings)

    monkeypatch.setattr(process, "ensure_services", count)
    forget_process()
    yield seen
    forget_process()


@pytest.mark.usefixtures("site_environment")
def test_whoever_asks_in_a_process_gets_the_same_engine(asked: list[Settings]) -> None:
    assert process_services().database_url == process_services(load_settings()).database_url
    assert process_engine() is process_engine()
    assert len(asked) == 1


@pytest.mark.usefixtures("site_environment")
def test_services_that_did_not_answer_are_looked_for_again(
    asked: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(database: object) -> None:
        raise ServiceUnavailable("nobody answers")

    with monkeypatch.context() as away:
        away.setattr(process, "check_schema", refuse)
        with pytest.raises(ServiceUnavailable):
            process_engine()
    process_engine()
    assert len(asked) == 2


@pytest.mark.usefixtures("site_environment")
def test_other_settings_have_an_engine_of_their_own(
    asked: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = process_engine()
    monkeypatch.setenv("VCL_TOP_K", "7")
    assert process_engine() is not first
    assert process_engine().settings.top_k == 7
    assert len(asked) == 2
