"""What a command needs before it can work: settings, services, a migrated database.

In: the environment. Out: an engine on a database whose schema fits.
Called by every command that touches the database.
"""

from __future__ import annotations

from retrieval.database import check_schema, connect
from retrieval.engine import RetrievalEngine
from retrieval.services import ensure_services, wait_for_database
from retrieval.settings import load_settings
from vcl_plugin.cli.output import stderr


def open_engine() -> RetrievalEngine:
    """The engine of this command. A database that is down is waited for, and that is said."""
    settings = load_settings()
    with stderr.status("waiting for PostgreSQL and the broker"):
        endpoints = ensure_services(settings)
        wait_for_database(endpoints.database_url, settings.service_timeout)
    database = connect(endpoints.database_url)
    check_schema(database)
    return RetrievalEngine(settings, database)
