"""An engine on each test's own database."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from retrieval.database import connect


@pytest.fixture
def db(database: str) -> Engine:
    """SQLAlchemy's engine on a migrated, empty database."""
    return connect(database)
