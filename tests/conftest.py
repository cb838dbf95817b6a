"""What every test starts from: an environment without the developer's keys and settings, and a worker to run in."""

import gc
import os
import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support import postgresql
from tests.support.fresh_store import copy_new_databases
from tests.support.one_dialect import share_compiled_statements
from tests.support.one_template_code import share_compiled_templates
from tests.support.one_trust_store import share_trusted_certificates

MOST_WORKERS = 8
"""A limit for the memory: a worker with its browser, Temporal server and copies of Maestro takes up to 2 GB."""

GO = {"GOGC": "off", "GOMEMLIMIT": "400MiB"}
"""Temporal servers of tests collect garbage when they have this much: it took a quarter of their CPU time."""

OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Python's own 700 cost an eighth of the CPU time of a test: it makes many objects, and lives shortly."""


def pytest_configure() -> None:
    """Remove the variables of providers and our own, so that no test ever pays or depends on who runs it.

    A hook and not a fixture: servers that live for a whole session start before any function-scoped fixture.
    """
    for name in tuple(os.environ):
        ours = name.startswith("MAESTRO_") and not name.startswith("MAESTRO_TEST_")
        if ours or re.search(r"_(API_KEY|BASE_URL)(_\d+)?$", name):
            del os.environ[name]
    os.environ.update(GO)
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and with them all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if postgresql.wanted():
        postgresql.prepare()  # before the workers start, so that they inherit the address of the server
    share_compiled_statements()
    share_compiled_templates()
    copy_new_databases()
    share_trusted_certificates()
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that are about the other database than that of this run; their markers say why."""
    unfit, advice = (
        ("sqlite_only", "SQLite only") if postgresql.wanted() else ("postgresql_only", "`make test-postgresql` runs it")
    )
    for item in items:
        for mark in item.iter_markers(unfit):
            item.add_marker(pytest.mark.skip(reason=f"{advice}: {mark.kwargs['reason']}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Drop the databases of a test that ended: each takes 11 MB, and connections that the test did not close."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    try:
        return (yield)
    finally:
        if postgresql.wanted() and folder is not None:
            postgresql.drop_databases(folder)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Drop what modules and sessions shared, on a server that outlives the tests."""
    folders = getattr(session.config, "_tmp_path_factory", None)
    if postgresql.wanted() and folders is not None and folders._basetemp is not None:
        postgresql.drop_databases(folders._basetemp)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lasts as long as the tests: all modules and thousands of tests.

    While these come into being there is no garbage to look for, so it was off.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    gc.enable()


class OneWorkerPerServer(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Keeps the tests of a file that share one costly server in one worker; all others go wherever there is room.

    Such a file says ``xdist_group``. xdist's own ``loadgroup`` marks node ids in a way that pytest 9.2 no longer sees.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if _shares_a_server(Path(self.config.rootpath, path)) else nodeid


@cache
def _shares_a_server(path: Path) -> bool:
    return "xdist_group" in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return two workers more than there are cores: while some tests wait for a process or a timeout, others work."""
    return min((os.cpu_count() or 1) + 2, MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneWorkerPerServer | None:
    """Choose the scheduler for ``--dist loadgroup``."""
    return OneWorkerPerServer(config, log) if config.getvalue("dist") == "loadgroup" else None
