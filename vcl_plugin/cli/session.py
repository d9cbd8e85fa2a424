"""What a command needs before it can work: settings, services, a migrated database.

In: the environment. Out: an engine on a database whose schema fits.
"""

from __future__ import annotations

import getpass
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from retrieval.errors import Refused
from retrieval.process import process_database, process_engine, process_services
from retrieval.services import wait_for_database
from retrieval.settings import Settings, load_settings
from vcl_plugin.cli.output import stderr

if TYPE_CHECKING:
    from retrieval.engine import RetrievalEngine

PATIENCE = 10.0  # seconds in which a worker would have taken the work
LISTS = (".csv", ".tsv", ".txt", ".json", ".xlsx")


@dataclass(frozen=True)
class Site:
    """What a command works with that reads and writes rows alone."""

    settings: Settings
    database: Engine


def open_site() -> Site:
    """The database of this command, without the engine, which is slow to import."""
    settings = load_settings()
    _wait_for_services(settings)
    return Site(settings, process_database())


def open_engine() -> RetrievalEngine:
    """The engine of this command. A database that is down is waited for, and that is said."""
    _wait_for_services(load_settings())
    return process_engine()


def _wait_for_services(settings: Settings) -> None:
    with stderr.status("waiting for PostgreSQL"):
        endpoints = process_services(settings)
        wait_for_database(endpoints.database_url, settings.service_timeout)


def require_film(path: Path) -> Path:
    """The path, unless it is plainly no video file: nothing is registered then."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)) and not path.exists():
        address = str(path).replace(":/", "://", 1)  # a path keeps one slash of two
        raise Refused(f"{address} is an address; download the video and name the file")
    if path.suffix.lower() in LISTS:
        raise Refused(
            f"{path} is a list and no video; name the video files themselves, or take a folder of "
            "them with `vcl ingest FOLDER --asset ASSET`"
        )
    return path


def current_user() -> str:
    """Who decides, for the history of a claim; an account without a name is told by its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


class WorkerHint:
    """Says once that no worker seems to run, when nothing has moved for a while."""

    def __init__(self) -> None:
        self._asked = time.monotonic()
        self._is_said = False

    def watch(self, is_taken: bool) -> None:
        if is_taken:
            self._is_said = True
        elif not self._is_said and time.monotonic() - self._asked > PATIENCE:
            stderr.print("no worker has taken this yet; is one running? start it: vcl worker")
            self._is_said = True
