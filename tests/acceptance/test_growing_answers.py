"""Answers that grow: people on Slack see them while the model writes, in one message, and nothing is promised less."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.drafts import PLACEHOLDER, STOPPED
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.llm_server import Failure
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, Fault, SlackServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("growing")]

ADA = "UADA"
WORDS = "one two three four five six seven eight nine ten"
OTHERS = "uno dos tres cuatro cinco seis siete ocho nueve diez"
PARAGRAPH = "The quick brown fox jumps over the lazy dog. " * 80
LONG = "\n\n".join(f"{n}: {PARAGRAPH}" for n in range(3))


class Town:
    """A workspace in which answers grow."""

    def __init__(self, slack: SlackServer) -> None:
        self.slack = slack
        slack.workspace.person(ADA, "Ada")
        self.maestro: Instance

    def texts(self, channel: str) -> list[str]:
        """Return what the messages of a channel say now."""
        return [str(post["text"]) for post in self.slack.posted(channel)]

    def written(self, channel: str) -> list[str]:
        """Return every text that was ever written in a channel, in order."""
        calls = [one for one in self.slack.calls if one.method in ("chat.postMessage", "chat.update")]
        return [str(one.arguments["text"]) for one in calls if one.arguments["channel"] == channel]

    async def shows(self, channel: str, word: str) -> str:
        """Return what the first message of a channel says, once it has a word."""
        await until(lambda: any(word in text for text in self.texts(channel)[:1]), what=f"{word} in {channel}")
        return self.texts(channel)[0]

    async def job(self, ts: str, status: str = "completed") -> Row:
        """Return the one job of a message once it has ended this way."""
        sql = "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = ?"
        [job] = await self.maestro.until(sql, ts, status)
        return job

    async def say(self, text: str, channel: str, **fields: Any) -> str:
        """Let Ada say something to the helper; returns the message's time."""
        return await self.slack.say(channel, ADA, f"@helper {text}", **fields)

    def script(self, **script: Any) -> None:
        """Tell the model what to do next."""
        self.maestro.llm.script(**script)


def accounts(maestro: Instance) -> list[dict[str, Any]]:
    """Two accounts, of which the first is asked first."""
    common = {"provider": "openai", "model": "gpt-4o-mini", "baseUrl": maestro.llm.base_url("openai")}
    return [
        {**common, "name": name, "apiKey": f"key-{name}", "priority": priority}
        for priority, name in enumerate(("first", "second"))
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    async with SlackServer.running() as slack:
        town = Town(slack)
        socket = {"enabled": True, "botToken": BOT_TOKEN, "appToken": APP_TOKEN, "baseUrl": slack.api_url}
        growing = {"streaming": True, "streamingSeconds": 0.2}
        async with running_instance(
            tmp_path_factory.mktemp("growing"),
            start=False,
            agents=[{"slug": "chief", "role": "conductor"}, {"slug": "helper", "tools": ["get_time"]}],
            owner={"ids": [f"slack:{ADA}"]},
            connectors={"slack": {**socket, **growing, "paceSeconds": 0, "historySeconds": 0}},
        ) as maestro:
            await maestro.restart(llm={"accounts": accounts(maestro), "breaker": {"failures": 1000}})
            town.maestro = maestro
            await slack.connected()
            await maestro.until("SELECT * FROM connectors WHERE platform = 'slack' AND edit_interval > 0")
            yield town


@pytest.fixture(autouse=True)
def mended(town: Town) -> None:
    town.maestro.llm.reset()


async def one_message(town: Town, channel: str, text: str, ts: str) -> None:
    """Assert that the answer is one message, known as its delivery says, and that nothing of it is kept apart."""
    job = await town.job(ts)
    [post] = town.slack.posted(channel)
    assert post["text"] == text
    rows = town.maestro.query("SELECT * FROM deliveries WHERE job_id = ?", job["id"])
    assert [(row["state"], row["platform_message_id"], row["edits"]) for row in rows] == [
        ("sent", post["ts"], post["ts"])
    ]
    assert town.maestro.query("SELECT * FROM drafts WHERE job_id = ?", job["id"]) == []


async def test_an_answer_grows_in_one_message(town: Town) -> None:
    town.script(reply=WORDS, pause=6)
    said = await town.say("count", "CGROWS")
    shown = await town.shows("CGROWS", "two")
    assert WORDS.startswith(shown)
    assert "ten" not in shown
    town.maestro.llm.go_on()
    await one_message(town, "CGROWS", WORDS, said)
    assert town.written("CGROWS")[0] == PLACEHOLDER
    assert all(WORDS.startswith(text) for text in town.written("CGROWS")[1:])
    assert town.maestro.llm.matching("count")[0].body["stream"] is True
    assert {post["thread_ts"] for post in town.slack.posted("CGROWS")} == {said}


async def test_no_tag_is_ever_shown(town: Town) -> None:
    town.script(reply=f"{WORDS} [MEMORY:tea] Ada likes tea [/MEMORY] {OTHERS}", slow=0.05)
    said = await town.say("remember", "CTAGS")
    await one_message(town, "CTAGS", f"{WORDS} {OTHERS}", said)
    assert len(town.written("CTAGS")) > 2
    assert not any("[" in text or "tea" in text for text in town.written("CTAGS"))


def keys(town: Town, text: str) -> list[str]:
    """Return which accounts were asked about a text, in order."""
    return [request.key.removeprefix("key-") for request in town.maestro.llm.matching(text)]


async def test_a_call_that_was_cut_and_repeated_shows_its_text_once(town: Town) -> None:
    town.script(reply=OTHERS)
    town.script(reply=WORDS, failure=Failure.cut(8), times=1)
    town.script(reply=WORDS, pause=6, failure=Failure.cut(8), times=1)
    said = await town.say("again", "CAGAIN")
    await town.shows("CAGAIN", "two")
    town.maestro.llm.go_on()
    await one_message(town, "CAGAIN", OTHERS, said)
    shown = town.written("CAGAIN")[1:]
    assert all(WORDS.startswith(text) or OTHERS.startswith(text) for text in shown)
    assert keys(town, "again") == ["first", "second", "first"]


async def test_another_account_takes_over_in_the_middle(town: Town) -> None:
    town.script(account="first", reply=WORDS, pause=6, failure=Failure.cut(8))
    town.script(account="second", reply=OTHERS, slow=0.05)
    said = await town.say("fail over", "COVER")
    await town.shows("COVER", "two")
    town.maestro.llm.go_on()
    await town.shows("COVER", "dos")
    await one_message(town, "COVER", OTHERS, said)
    assert keys(town, "fail over") == ["first", "second"]


async def test_an_edit_without_an_end_keeps_no_answer_waiting(town: Town) -> None:
    town.slack.fail("chat.update", Fault.silence(stores=False))
    town.script(reply=WORDS, pause=6)
    said = await town.say("silence", "CSILENCE")
    await town.slack.until_called("chat.update", len(town.slack.called("chat.update")) + 1)
    town.maestro.llm.go_on()
    await one_message(town, "CSILENCE", WORDS, said)


async def test_tools_between_the_calls(town: Town) -> None:
    town.script(reply=f"It is {WORDS}", rounds=1)
    town.script(reply="let me look at the clock", calls=[("get_time", {})], rounds=0, slow=0.1)
    said = await town.say("what time is it", "CTOOLS")
    await town.shows("CTOOLS", "clock")
    await one_message(town, "CTOOLS", f"It is {WORDS}", said)


async def test_a_stop_leaves_what_was_shown_and_says_so(town: Town) -> None:
    town.script(reply=WORDS, failure=Failure.stalled(6))
    said = await town.say("for ever", "CSTOP")
    await town.shows("CSTOP", "two")
    await town.slack.say("CSTOP", ADA, "/stop", thread=said)
    job = await town.job(said, "cancelled")
    await until(lambda: town.texts("CSTOP")[0].endswith(STOPPED), what="the end of what was shown")
    assert WORDS.startswith(town.texts("CSTOP")[0].removesuffix(STOPPED))
    await until(lambda: not town.maestro.query("SELECT * FROM drafts WHERE job_id = ?", job["id"]))


async def test_what_failed_gives_its_place_to_the_notice(town: Town) -> None:
    town.script(reply=WORDS, failure=Failure.cut(8), pause=6)
    said = await town.say("fail", "CFAIL")
    await town.shows("CFAIL", "two")
    town.maestro.llm.go_on()
    job = await town.job(said, "failed")
    [text] = town.texts("CFAIL")
    assert "one" not in text.split()
    [row] = town.maestro.query("SELECT * FROM deliveries WHERE job_id = ?", job["id"])
    assert (row["purpose"], row["state"]) == ("notice", "sent")


async def test_the_first_part_of_a_long_answer_takes_the_place(town: Town) -> None:
    town.script(reply=LONG, pause=100)
    said = await town.say("much", "CLONG")
    await town.shows("CLONG", "quick")
    town.maestro.llm.go_on()
    await town.job(said)
    texts = town.texts("CLONG")
    assert len(texts) == 3
    assert " ".join(texts).split() == LONG.split()


async def test_a_message_that_somebody_deleted_is_sent_anew(town: Town) -> None:
    town.script(reply=WORDS, pause=6)
    said = await town.say("gone", "CGONE")
    await town.shows("CGONE", "two")
    [post] = town.slack.posted("CGONE")
    messages = town.slack.workspace.messages["CGONE"]
    messages[:] = [one for one in messages if one["ts"] != post["ts"]]
    town.maestro.llm.go_on()
    job = await town.job(said)
    [again] = town.slack.posted("CGONE")
    assert again["text"] == WORDS
    [row] = town.maestro.query("SELECT * FROM deliveries WHERE job_id = ?", job["id"])
    assert (row["state"], row["platform_message_id"], row["edits"]) == ("sent", again["ts"], "")


@pytest.mark.parametrize(
    "fault", [Fault.limited(1), Fault.broken(503), Fault.cut_after(), Fault.refused("internal_error")], ids=repr
)
async def test_an_edit_that_fails_costs_the_answer_nothing(town: Town, fault: Fault) -> None:
    channel = f"CEDIT{fault.status}{fault.cut}{fault.error}"
    town.slack.fail("chat.update", fault)
    town.script(reply=WORDS, slow=0.1)
    said = await town.say("edit", channel)
    await one_message(town, channel, WORDS, said)


@pytest.mark.parametrize("fault", [Fault.cut_after(), Fault.cut_before(), Fault.broken(503, stores=True)], ids=repr)
async def test_a_placeholder_of_which_nobody_heard_is_found_again(town: Town, fault: Fault) -> None:
    channel = f"CPLACE{fault.status}{fault.stores}"
    town.slack.fail("chat.postMessage", fault)
    town.script(reply=WORDS, slow=0.1)
    said = await town.say("place", channel)
    await one_message(town, channel, WORDS, said)


async def test_where_answers_come_whole_nothing_is_streamed_or_kept(town: Town) -> None:
    async with town.maestro.client("whole", user_name="ada") as client:
        assert await client.ask("on the web") == "answer to: on the web"
    [request] = town.maestro.llm.matching("on the web")
    assert not request.body.get("stream")
    [job] = town.maestro.jobs("whole")
    assert town.maestro.query("SELECT * FROM drafts WHERE job_id = ?", job["id"]) == []
