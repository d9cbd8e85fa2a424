"""What a process has one of: the services it made sure of, and the engine on them.

In: the environment. Out: addresses that answered, and an engine whose schema fits the code.
The command line, the tasks and celeryconfig.py ask here, so a search on its way through one process
asks for the servers once. A forked child gets its own: models and sockets do not survive a fork.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from retrieval.database import check_schema, connect
from retrieval.errors import ServiceUnavailable
from retrieval.services import Endpoints, ensure_services
from retrieval.settings import Settings, load_settings

if TYPE_CHECKING:
    from retrieval.engine import RetrievalEngine


def process_services(settings: Settings | None = None) -> Endpoints:
    """Where this process connects to; embedded servers were started when it first asked."""
    return _services_of(settings or load_settings(), os.getpid())


def process_database() -> Engine:
    """The database alone, its schema checked: all that many commands need, and quick to import."""
    try:
        return _database_of(load_settings(), os.getpid())
    except ServiceUnavailable:
        _services_of.cache_clear()
        raise


def process_engine() -> RetrievalEngine:
    """This process's engine. Servers that do not answer are looked for anew at the next call."""
    try:
        return _engine_of(load_settings(), os.getpid())
    except ServiceUnavailable:
        _services_of.cache_clear()
        raise


def forget_process() -> None:
    """Let the next call begin anew, for a process whose servers were taken away."""
    _engine_of.cache_clear()
    _database_of.cache_clear()
    _services_of.cache_clear()


@lru_cache(maxsize=1)
def _services_of(settings: Settings, process: int) -> Endpoints:
    return ensure_services(settings)


@lru_cache(maxsize=1)
def _database_of(settings: Settings, process: int) -> Engine:
    database = connect(_services_of(settings, process).database_url)
    check_schema(database)
    return database


@lru_cache(maxsize=1)
def _engine_of(settings: Settings, process: int) -> RetrievalEngine:
    from retrieval.engine import RetrievalEngine  # with NumPy and the decoder, half a second

    return RetrievalEngine(settings, _database_of(settings, process))
