"""Answers grow where another process calls the model than the one that shows them, and whichever of them dies."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.evidence import Evidence
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.separate import Separate
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("growing-apart")]

ANN = "UANN"
WORDS = "one two three four five six seven eight nine ten"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer.running() as server:
        server.workspace.person(ANN, "Ann")
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(
    llm: LLMServer, slack: SlackServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Separate]:
    account = {"botToken": BOT_TOKEN, "appToken": APP_TOKEN, "baseUrl": slack.api_url, "enabled": True}
    growing = {"streaming": True, "streamingSeconds": 0.2, "paceSeconds": 0, "historySeconds": 0}
    sections = {"agents": [{"slug": "helper"}], "connectors": {"slack": {**account, **growing}}}
    apart = Separate(tmp_path_factory.mktemp("apart"), llm, sections)
    apart.connect = apart.another("connect", "web", "slack")
    try:
        await apart.start()
        await slack.connected()
        sql = "SELECT * FROM connectors WHERE platform = 'slack' AND edit_interval > 0"
        await until(lambda: bool(Evidence(apart.data).rows(sql)), what="a connector that shows answers as they grow")
        yield apart
    finally:
        await apart.end()


@pytest.mark.parametrize("dies", ["", "worker", "connect"])
async def test_an_answer_grows(maestro: Separate, llm: LLMServer, slack: SlackServer, dies: str) -> None:
    llm.reset()
    llm.script(reply=WORDS)
    llm.script(reply=WORDS, pause=6, times=1)
    channel = f"C{dies.upper()}"
    said = await slack.say(channel, ANN, "@helper count")
    await until(lambda: any("two" in post["text"] for post in slack.posted(channel)), what="a growing answer")
    if dies:
        await maestro.parts[dies].end()
        await maestro.revive(dies)
    llm.go_on()
    evidence = Evidence(maestro.data)
    ended = "message_id = ? AND completed_at IS NOT NULL"
    sql = f"SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE {ended}"
    await until(lambda: bool(evidence.rows(sql, said)), what="an end")
    [job] = evidence.rows(sql, said)
    [post] = slack.posted(channel)
    assert (job["status"], post["text"]) == ("completed", WORDS)
    [row] = evidence.deliveries(job["id"])
    assert (row["state"], row["platform_message_id"], row["edits"]) == ("sent", post["ts"], post["ts"])
    assert evidence.calls(job["id"])["answered"] == 1
    assert evidence.rows("SELECT * FROM drafts") == []
