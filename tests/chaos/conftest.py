"""One Maestro per module and worker; its process may be dead and alive again between two tests."""

import json
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
import pytest_asyncio

from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.slack_server import SlackServer

LONG = "{last}: " + "The quick brown fox jumps over the lazy dog. " * 5
"""An answer of three chunks."""

HELPER = {"slug": "helper"}
"""The only agent: a message that does not mention it is dropped."""


ANN = "UANN"
"""A person on Slack."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer.running() as server:
        server.workspace.person(ANN, "Ann")
        yield server


@pytest.fixture(scope="module")
def llm() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    request: pytest.FixtureRequest, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    """A module may have agents of its own, in ``AGENTS``."""
    agents = getattr(request.module, "AGENTS", [HELPER])
    async with running(tmp_path_factory.mktemp("maestro"), llm, agents=agents) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def maestro(lasting: Maestro, llm: LLMServer) -> Maestro:
    """The process, alive, with nothing armed, and a model that gives long answers."""
    await lasting.revive()
    llm.reset()
    llm.script(reply=LONG)
    return lasting


@pytest.fixture
def evidence(lasting: Maestro) -> Evidence:
    return Evidence(lasting.data)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the process logged and what the store knows of its newest jobs."""
    report = yield
    process = getattr(item, "funcargs", {}).get("maestro")
    if report.failed and isinstance(process, Maestro):
        evidence = Evidence(process.data)
        tables = {
            "inbox": "SELECT id, platform, content, job_id FROM inbox ORDER BY id DESC LIMIT 8",
            "queue": "SELECT * FROM queue ORDER BY created_at DESC LIMIT 4",
            "job_steps": "SELECT * FROM job_steps ORDER BY id DESC LIMIT 8",
            "deliveries": "SELECT * FROM deliveries ORDER BY id DESC LIMIT 4",
            "connectors": "SELECT * FROM connectors",
        }
        found = {name: evidence.rows(statement) for name, statement in tables.items()}
        report.sections.append(("The store", json.dumps(found, indent=1, default=str)))
        report.sections.append(("Log of Maestro", process.log.read_text()[-6000:]))
    return report
