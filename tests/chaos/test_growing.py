"""Maestro is killed while an answer grows on Slack: one message is left, it says the answer, and that is paid once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from maestro.domain.drafts import PLACEHOLDER
from tests.chaos.conftest import ANN
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-growing")]

WORDS = "one two three four five six seven eight nine ten"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    slack: SlackServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    account = {"botToken": BOT_TOKEN, "appToken": APP_TOKEN, "baseUrl": slack.api_url}
    growing = {"streaming": True, "streamingSeconds": 0.2, "paceSeconds": 0, "historySeconds": 0}
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "helper"}],
        connectors={"slack": {"enabled": True, **growing, **account}},
    ) as started:
        await slack.connected()
        yield started


def texts(slack: SlackServer, channel: str) -> list[str]:
    """Return what the messages of a channel say now."""
    return [str(post["text"]) for post in slack.posted(channel)]


async def one_message(slack: SlackServer, evidence: Evidence, channel: str, ts: str) -> Row:
    """Assert that there is one message with the answer, paid once, and nothing else of it; return its job."""
    sql = (
        "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = 'completed'"
    )
    await until(lambda: bool(evidence.rows(sql, ts)), what=f"an answer in {channel}")
    [job] = evidence.rows(sql, ts)
    [post] = slack.posted(channel)
    assert post["text"] == WORDS
    assert [(row["state"], row["platform_message_id"]) for row in evidence.deliveries(job["id"])] == [
        ("sent", post["ts"])
    ]
    assert evidence.calls(job["id"])["answered"] == 1
    assert evidence.rows("SELECT * FROM drafts") == []
    return job


async def test_killed_in_the_middle_of_the_stream(
    maestro: Maestro, evidence: Evidence, slack: SlackServer, llm: LLMServer
) -> None:
    llm.script(reply=WORDS)
    llm.script(reply=WORDS, pause=6, times=1)
    said = await slack.say("CSTREAM", ANN, "@helper count")
    await until(lambda: any("two" in text for text in texts(slack, "CSTREAM")), what="a growing answer")
    await maestro.kill()
    await maestro.start()
    job = await one_message(slack, evidence, "CSTREAM", said)
    assert evidence.calls(job["id"])["interrupted"] == 1


@pytest.mark.parametrize(
    "point",
    [
        "before draft",
        "after draft",
        "before placeholder",
        "after placeholder",
        "before placeholder receipt",
        "after placeholder receipt",
    ],
)
async def test_killed_around_the_message_that_shows_it(
    maestro: Maestro, evidence: Evidence, slack: SlackServer, llm: LLMServer, point: str
) -> None:
    """The model waits in the middle of its answer, and is asked once more."""
    channel = f"C{point.title().replace(' ', '')}"
    llm.script(reply=WORDS)
    llm.script(reply=WORDS, pause=6, times=1)
    maestro.arm(point)
    said = await slack.say(channel, ANN, "@helper count")
    await maestro.crash_at(point)
    assert len(texts(slack, channel)) <= 1
    assert all(text == PLACEHOLDER or WORDS.startswith(text) for text in texts(slack, channel))
    job = await one_message(slack, evidence, channel, said)
    assert evidence.calls(job["id"])["interrupted"] == 1


@pytest.mark.parametrize("point", ["before deliver done", "before chunks", "after chunks"])
async def test_killed_around_the_last_edit(
    maestro: Maestro, evidence: Evidence, slack: SlackServer, llm: LLMServer, point: str
) -> None:
    channel = f"C{point.title().replace(' ', '')}"
    llm.script(reply=WORDS, pause=6)
    maestro.arm(point)
    said = await slack.say(channel, ANN, "@helper count")
    await until(lambda: any("two" in text for text in texts(slack, channel)), what="a growing answer")
    llm.go_on()
    await maestro.crash_at(point)
    job = await one_message(slack, evidence, channel, said)
    assert evidence.calls(job["id"])["interrupted"] == 0
