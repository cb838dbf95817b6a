"""What the tests of the command line share: a data folder with jobs, and a way to run a command."""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from maestro.cli.main import run
from maestro.observability.logs import OURS
from tests.support.job_rows import JobRows


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote for programs."""
        return json.loads(self.out)


Maestro = Callable[..., Ran]


@pytest.fixture(autouse=True)
def log_of_the_tests() -> Iterator[None]:
    """Take back what a command did to the log: it runs in our process, where it has the log to itself otherwise."""
    root = logging.getLogger()
    level, handlers, before = root.level, root.handlers[:], structlog.get_config()
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
    for name in OURS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.configure(**before)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open the store of a data folder."""
    rows = JobRows.at(tmp_path / "data")
    yield rows
    rows.store.close()


@pytest.fixture
def maestro(
    rows: JobRows, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Maestro:
    """Return a function that runs ``maestro`` on the data folder."""
    monkeypatch.chdir(tmp_path)  # where there is no maestro.json

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run([*arguments])
        written = capsys.readouterr()
        return Ran(code, written.out, written.err)

    return ran
