"""One ground for the tests of a file: starting a site costs more than most of its faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.ground import Ground, open_ground


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with open_ground(pace=0.02, VCL_MAX_ATTEMPTS="3", VCL_TASK_SECONDS="30") as ground:
        yield ground
