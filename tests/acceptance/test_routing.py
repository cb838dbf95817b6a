"""Who answers whom, through the real WebSocket: the rules, strangers, bots and haste.

See docs/decisions.md: routing, access, bots.
"""

import json
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.precedence import Priority
from maestro.intake.messages import BOT, BOT_LOOP, TOO_FAST
from maestro.intake.pairing import AN_OWNER, LET_IN
from tests.support.command import Ended
from tests.support.command import maestro as command
from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port
from tests.support.web_client import web_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("routing")]

KEY = "a key that makes its holder a user and not the owner"
PASSWORD = "the operator's own"
PORT = free_port()
MOST, MOST_OF_A_BOT = 3, 2
AGENTS = [
    {"slug": "boss", "name": "The Boss", "role": "conductor"},
    *({"slug": slug} for slug in ("own", "bound", "board", "last")),
    {"slug": "dev", "name": "C++ Dev (beta)"},
    {"slug": "private", "allowUsers": ["web:somebody-else"]},
]
CHANNELS = [
    {"platform": "web", "channel": "room", "agent": "bound"},
    {"platform": "web", "channel": "robots", "agent": "bound", "allowBots": True},
    {"platform": "web", "channel": "secret", "agent": "private"},
    *({"platform": "web", "channel": channel, "agent": "bound"} for channel in ("hurry", "ours")),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(
        tmp_path_factory.mktemp("routing"),
        agents=AGENTS,
        channels=CHANNELS,
        routing={
            "conductorChannels": ["web:throne"],
            "fallbackAgent": "last",
            "messagesPerMinute": MOST,
            "botMessagesPerMinute": MOST_OF_A_BOT,
        },
        web={"apiKey": KEY, "dmPolicy": "pairing"},
        webui={"enabled": True, "port": PORT, "password": PASSWORD},
    ) as instance:
        yield instance


@pytest.fixture(autouse=True)
def scripted(maestro: Instance) -> None:
    maestro.llm.reset()


def api() -> httpx.AsyncClient:
    """Return a client of the API with the operator's password."""
    return httpx.AsyncClient(base_url=f"http://localhost:{PORT}", auth=("maestro", PASSWORD))


async def as_operator(maestro: Instance, channel: str, content: str) -> None:
    """Say something as who is logged in to the dashboard, and wait for the answer."""
    async with api() as http:
        ticket = (await http.post("/api/web/tickets")).json()["ticket"]
    async with web_client(maestro.loaded.settings.web.port, ticket=ticket, channelId=channel) as client:
        await client.ask(content, patience=60)


def routed(maestro: Instance, job_id: str) -> tuple[str, str]:
    """Return the agent that a job was routed to, and the reason."""
    ((result,),) = maestro.query("SELECT result FROM job_steps WHERE job_id = ? AND step = 'route'", job_id)
    outcome = json.loads(result)
    return outcome["agent"], outcome["reason"]


async def people(maestro: Instance, *arguments: str) -> Ended:
    """Use the command beside the running Maestro."""
    return await command(*arguments, "--config", str(maestro.config_file), folder=maestro.data_dir.parent)


@pytest.mark.parametrize(
    ("channel", "content", "agent", "reason", "priority"),
    [
        ("room", "hello @dev", "bound", "the channel is bound to the agent", Priority.OWNER),
        ("somewhere", "hello @c++ dev (BETA)!", "dev", "the message mentions the agent", Priority.OWNER),
        ("throne", "hello", "boss", "the channel is the conductor's", Priority.OWNER),
        ("dashboard-agent-4", "hello", "board", "the channel is the agent's own on the dashboard", Priority.OWNER),
        ("elsewhere", "hello x@dev", "boss", "a direct message goes to the conductor", Priority.OWNER),
    ],
)
async def test_each_rule_through_the_socket(
    maestro: Instance, channel: str, content: str, agent: str, reason: str, priority: int
) -> None:
    await as_operator(maestro, channel, content)
    (job,) = await maestro.ended(channel, "completed")
    assert (*routed(maestro, job["id"]), job["priority"]) == (agent, reason, priority)


async def test_the_agent_of_the_account_comes_first(maestro: Instance) -> None:
    (own,) = maestro.query("SELECT id FROM agents WHERE slug = 'own'")
    maestro.change(
        "INSERT INTO bot_instances (platform, account, agent_id, configured) VALUES ('web', 'default', ?, false)",
        own["id"],
    )
    await as_operator(maestro, "ours", "whose is this account?")
    maestro.change("DELETE FROM bot_instances")
    (job,) = await maestro.ended("ours", "completed")
    assert routed(maestro, job["id"]) == ("own", "all messages of this account are for the agent")


async def test_without_a_conductor_the_fallback_answers_and_without_both_nobody_until_it_is_restarted(
    maestro: Instance,
) -> None:
    maestro.change("UPDATE agents SET status = 'paused' WHERE slug = 'boss'")
    await as_operator(maestro, "astray", "is anybody there?")
    (job,) = await maestro.ended("astray", "completed")
    assert routed(maestro, job["id"]) == ("last", "no rule names an agent, so the fallback agent answers")

    maestro.change("UPDATE agents SET status = 'paused' WHERE slug = 'last'")
    async with api() as http:
        ticket = (await http.post("/api/web/tickets")).json()["ticket"]
    async with web_client(maestro.loaded.settings.web.port, ticket=ticket, channelId="lost") as client:
        await client.say("and now?")
        (dropped,) = await maestro.ended("lost", "dropped")
        assert dropped["reason"] == "there is no active conductor"
        maestro.change("UPDATE agents SET status = 'active' WHERE slug IN ('boss', 'last')")
        with maestro.operator() as operator:
            await operator.jobs.replay(dropped["id"], ReplayMode.RESTART, "a test")
        assert (await client.wait_for("message", patience=60))["content"]


async def test_a_stranger_is_paired_and_then_answered_the_first_message_too_once_an_operator_restarts_it(
    maestro: Instance,
) -> None:
    async with maestro.client("stranger", user_name="Grace", api_key=KEY) as grace, api() as http:
        await grace.say("what do I cost?")
        told = str((await grace.wait_for("message", patience=60))["content"])
        (dropped,) = (await http.get("/api/jobs", params={"status": "dropped", "q": "what do I cost"})).json()["items"]
        assert "an operator has to approve the user first" in dropped["reason"]
        (wish,) = (await http.get("/api/pairings")).json()["items"]
        assert (wish["person"], wish["userName"], wish["status"]) == (f"web:{grace.user}", "Grace", "pending")
        assert wish["code"] in told

        # A stranger costs nothing, and an operator's restart does not let them in by itself.
        with maestro.operator() as operator:
            await operator.jobs.replay(dropped["id"], ReplayMode.RESTART, "a test")
        second = (await maestro.ended("stranger", "dropped", 2))[-1]
        assert maestro.llm.requests == []
        assert maestro.query("SELECT * FROM llm_calls WHERE job_id = ?", second["id"]) == []
        assert not [channel for channel, _ in maestro.taps.typed if channel == "stranger"]

        approved = await people(maestro, "pairings", "approve", wish["code"].lower())
        assert (approved.code, approved.output) == (0, f"web:{grace.user} has access\n")
        assert (await grace.wait_for("message", patience=60))["content"] == LET_IN
        with maestro.operator() as operator:
            await operator.jobs.replay(second["id"], ReplayMode.RESTART, "a test")
        assert "what do I cost?" in (await grace.wait_for("message", patience=60))["content"]
        (answered,) = maestro.query("SELECT * FROM queue WHERE restarted_from = ?", second["id"])
        assert answered["priority"] == Priority.CONDUCTOR
        assert [one["id"] for one in (await http.get("/api/people")).json()["items"]] == [f"web:{grace.user}"]
        assert (await http.delete(f"/api/people/web:{grace.user}")).status_code == 204
        assert (await http.get("/api/people")).json()["items"] == []


async def test_an_invitation_makes_an_owner(maestro: Instance) -> None:
    invited = await people(maestro, "pairings", "invite", "--owner", "--json")
    code = json.loads(invited.output)["code"]
    async with maestro.client("invited", api_key=KEY) as alan:
        assert await alan.ask(f"/pair {code}", patience=60) == AN_OWNER
        assert await alan.ask("hello", patience=60)
    job = (await maestro.ended("invited", "completed", 2))[-1]
    assert job["priority"] == Priority.OWNER
    assert code not in str(maestro.query("SELECT content FROM inbox WHERE channel = 'invited'")[0]["content"])


async def test_the_list_of_an_agent_keeps_everybody_else_out(maestro: Instance) -> None:
    async with maestro.client("secret", api_key=KEY) as somebody:
        await somebody.say("let me in")
        (dropped,) = await maestro.ended("secret", "dropped")
        assert dropped["reason"] == "the user is not on the list of private (allowUsers)"
        assert maestro.llm.requests == []


async def test_a_bot_is_ignored_unless_the_channel_lets_bots_talk_and_then_cut_off(maestro: Instance) -> None:
    port = maestro.loaded.settings.web.port
    async with web_client(port, apiKey=KEY, channelId="no-robots", bot=True) as robot:
        assert (await robot.say("beep"))["type"] == "ack"
    async with web_client(port, apiKey=KEY, channelId="robots", bot=True) as robot:
        for number in range(MOST_OF_A_BOT):
            await robot.ask(f"beep {number}", patience=60)
        await robot.say("one beep too many")
        token = robot.resume_token
    async with web_client(port, resumeToken=token, channelId="robots") as robot:
        await robot.say("once a bot, always a bot")
    async with api() as http:
        ignored = {
            (row["channel"], row["reason"]): row["count"] for row in (await http.get("/api/ignored")).json()["items"]
        }
        figures = (await http.get("/metrics")).text
    assert ignored == {("no-robots", BOT): 1, ("robots", BOT_LOOP): 2}
    assert f'maestro_messages_ignored_total{{reason="{BOT_LOOP[:80]}"}} 2.0' in figures
    assert len(maestro.jobs("robots")) == MOST_OF_A_BOT
    assert maestro.jobs("no-robots") == []


async def test_haste_is_told_and_what_was_left_is_answered_when_an_operator_restarts_it(maestro: Instance) -> None:
    async with maestro.client("hurry", api_key=KEY) as hasty:
        for number in range(MOST + 2):
            await hasty.say(f"line {number}")
        dropped = await maestro.ended("hurry", "dropped", 2)
        assert {job["reason"] for job in dropped} == {TOO_FAST}
        with maestro.operator() as operator:
            await operator.jobs.replay(dropped[-1]["id"], ReplayMode.RESTART, "a test")
        heard = [str((await hasty.wait_for("message", patience=60))["content"]) for _ in range(MOST + 2)]
        assert sum("at most 3 messages a minute" in one for one in heard) == 1
        assert any(f"line {MOST + 1}" in one for one in heard)
