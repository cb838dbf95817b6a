"""What the tests of the API share: a store with an agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.job_rows import JobRows


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()
