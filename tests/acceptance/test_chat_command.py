"""``maestro chat``: a person or a script talks to an agent from a terminal."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.job import FAILURE_NOTICE
from tests.support.command import Ended, maestro
from tests.support.database import query
from tests.support.instance import until
from tests.support.llm_server import Failure, LLMServer
from tests.support.ports import free_port
from tests.support.running import Maestro, running
from tests.support.terminal import CTRL_D, UP, Terminal, terminal

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chat")]

LATER = 30.0
"""Seconds a model thinks whose answer a test does not wait for."""
AGENTS = [{"slug": "conductor", "role": "conductor"}, {"slug": "ada"}]


@dataclass
class Chatter:
    """Somebody with a terminal, who remembers where they talked."""

    maestro: Maestro
    folder: Path

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.maestro.web_port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(self.folder / "state")}

    async def chat(self, *arguments: str, url: str = "", piped: str | None = None) -> Ended:
        """Run the command to its end."""
        options = ("--url", url or self.url)
        return await maestro(
            "chat", *options, *arguments, folder=self.folder, environment=self.environment, piped=piped
        )

    def jobs(self) -> list[Any]:
        """Return every job, in the order they came, with its channel, its agent and what was said."""
        return query(
            self.maestro.data / "maestro.db",
            "SELECT queue.id, queue.status, queue.channel, agents.slug, inbox.content FROM queue "
            "JOIN inbox ON inbox.id = queue.inbox_id LEFT JOIN agents ON agents.id = queue.agent_id ORDER BY inbox.id",
        )

    def about(self, text: str) -> list[Any]:
        """Return the jobs whose message contains a text."""
        return [job for job in self.jobs() if text in job["content"]]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    async with running(tmp_path_factory.mktemp("maestro"), llm, agents=AGENTS) as started:
        yield started


@pytest.fixture
def chatter(lasting: Maestro, llm: LLMServer, tmp_path: Path) -> Chatter:
    llm.reset()
    llm.script(reply="you said {last}")
    return Chatter(lasting, tmp_path)


@pytest_asyncio.fixture(loop_scope="module")
async def screen(chatter: Chatter) -> AsyncIterator[Terminal]:
    """A conversation at a terminal, ready for the first line."""
    options = ("--url", chatter.url)
    async with terminal("chat", *options, folder=chatter.folder, environment=chatter.environment) as opened:
        await opened.shows("Ctrl-D leaves.")
        await opened.shows("> ")
        yield opened


# In scripts


async def test_a_question_is_answered_on_standard_output(chatter: Chatter) -> None:
    ended = await chatter.chat("what", "is", "up")
    assert (ended.code, ended.output, ended.errors) == (0, "you said what is up\n", "")


async def test_the_conversation_goes_on_with_the_next_call(chatter: Chatter, llm: LLMServer) -> None:
    await chatter.chat("my name is Grace")
    ended = await chatter.chat("what is my name")
    assert ended.output == "you said what is my name\n"
    first, second = chatter.about("my name")[-2:]
    assert first["channel"] == second["channel"]
    assert any("my name is Grace" in text for text in llm.matching("what is my name")[0].texts)


async def test_another_person_has_another_channel(chatter: Chatter, tmp_path: Path) -> None:
    await chatter.chat("it is me")
    await Chatter(chatter.maestro, tmp_path / "state").chat("it is me too")
    assert len({job["channel"] for job in chatter.about("it is me")}) == 2


async def test_what_makes_the_channel_theirs_is_for_their_eyes_only(chatter: Chatter) -> None:
    await chatter.chat("hello")
    (kept,) = (chatter.folder / "state" / "maestro" / "chat").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert json.loads(kept.read_text())["resume_token"]


async def test_all_of_standard_input_is_one_message(chatter: Chatter) -> None:
    ended = await chatter.chat(piped="first line\n\nsecond line\n")
    assert (ended.code, ended.output) == (0, "you said first line\n\nsecond line\n")


async def test_nothing_to_say_is_wrong_usage(chatter: Chatter) -> None:
    ended = await chatter.chat(piped=" \n")
    assert (ended.code, ended.output) == (2, "")
    assert "there is no message" in ended.errors


async def test_programs_read_a_json_object_per_line(chatter: Chatter) -> None:
    ended = await chatter.chat("hello", "--json")
    (line,) = ended.output.splitlines()
    frame = json.loads(line)
    assert (frame["type"], frame["content"], frame["answers"]) == ("message", "you said hello", True)


async def test_an_agent_is_addressed_in_a_channel_of_its_own(chatter: Chatter) -> None:
    await chatter.chat("who is there?")
    ended = await chatter.chat("who are you?", "--agent", "ada")
    assert ended.output == "you said @ada who are you?\n"
    conductors, adas = chatter.about("who is there")[-1], chatter.about("who are you")[-1]
    assert (conductors["slug"], adas["slug"]) == ("conductor", "ada")
    assert conductors["channel"] != adas["channel"]


async def test_an_agent_that_the_configuration_does_not_name_is_told(chatter: Chatter) -> None:
    ended = await chatter.chat("hello", "--agent", "nobody")
    assert ended.code == 0
    assert "names no agent 'nobody'" in ended.errors


async def test_a_channel_is_chosen_and_its_history_is_not_told_again(chatter: Chatter, tmp_path: Path) -> None:
    await chatter.chat("the first", "--channel", "chosen")
    ended = await Chatter(chatter.maestro, tmp_path / "state").chat("the second", "--channel", "chosen")
    assert (ended.output, ended.errors) == ("you said the second\n", "")
    assert [job["channel"] for job in chatter.about("the ") if job["channel"] == "chosen"] == ["chosen"] * 2


async def test_a_control_word_is_obeyed(chatter: Chatter) -> None:
    assert (await chatter.chat("/status", "--agent", "ada")).output == "Nothing is running here.\n"


async def test_a_terminal_is_not_moved_by_what_a_model_says(chatter: Chatter, llm: LLMServer) -> None:
    llm.script("colours", reply="\x1b[31mred\x07 é 👩‍🚀")
    assert (await chatter.chat("colours")).output == "[31mred é 👩‍🚀\n"


async def test_an_answer_in_several_chunks_is_whole(chatter: Chatter, llm: LLMServer) -> None:
    told = [f"This is line {number} of a story of five." + " It goes on." * 3 for number in range(5)]
    llm.script("a story", reply="\n".join(told))
    assert (await chatter.chat("tell me a story")).output.splitlines() == told


# When something is wrong


async def test_a_message_that_cannot_be_answered_is_a_failure(chatter: Chatter, llm: LLMServer) -> None:
    llm.script("impossible", failure=Failure.status(400))
    ended = await chatter.chat("the impossible")
    assert (ended.code, ended.output, ended.errors) == (1, "", f"maestro: {FAILURE_NOTICE}\n")
    ended = await chatter.chat("the impossible", "--json")
    frame = json.loads(ended.output)
    assert (ended.code, frame["notice"], frame["content"]) == (1, True, FAILURE_NOTICE)
    assert (await chatter.chat("go on")).errors == ""


async def test_without_a_web_connector_it_says_how_to_start_one(chatter: Chatter) -> None:
    ended = await chatter.chat("hello", url=f"ws://127.0.0.1:{free_port()}")
    assert (ended.code, ended.output, ended.errors.count("\n")) == (1, "", 1)
    assert ended.errors.startswith("maestro: the web connector does not answer")
    assert "maestro up" in ended.errors


async def test_what_is_too_long_is_refused_in_a_line(chatter: Chatter) -> None:
    for length, words in ((300_001, "the limit is 300000"), (4_300_000, "web.maxFrameBytes")):
        ended = await chatter.chat(piped="x" * length)
        assert (ended.code, ended.output, ended.errors.count("\n")) == (1, "", 1)
        assert words in ended.errors


async def test_a_wrong_address_is_wrong_usage(chatter: Chatter) -> None:
    for url in ("http://localhost:5070", "ws://localhost:99999", "ws://[::1"):
        ended = await chatter.chat("hello", url=url)
        assert (ended.code, ended.output) == (2, "")
        assert "such as ws://localhost:5070" in ended.errors


async def test_an_answer_that_comes_too_late_is_shown_by_the_next_call(chatter: Chatter, llm: LLMServer) -> None:
    llm.script("think", delay=3.0, reply="thought")
    ended = await chatter.chat("think", "--timeout", "1")
    assert (ended.code, ended.output, ended.errors.count("\n")) == (1, "", 1)
    assert "it will still come" in ended.errors
    await until(lambda: chatter.about("think")[-1]["status"] == "completed")
    ended = await chatter.chat("go on")
    assert (ended.code, ended.output, ended.errors) == (0, "you said go on\n", "Earlier in this channel: thought\n")


async def test_a_kill_in_the_middle_loses_and_doubles_nothing(chatter: Chatter, llm: LLMServer) -> None:
    llm.script("survive", delay=LATER, times=1)
    asking = asyncio.create_task(chatter.chat("survive this"))
    await until(lambda: len(llm.matching("survive")) == 1)
    await chatter.maestro.kill()
    await chatter.maestro.start()
    ended = await asking
    assert (ended.code, ended.output) == (0, "you said survive this\n")
    assert ended.errors == "Maestro is unreachable; the chat goes on when it is back.\n"
    # The answer is here before the step that sent it has written so.
    await until(lambda: [job["status"] for job in chatter.about("survive")] == ["completed"])
    assert (await chatter.chat("and then?")).errors == ""


# At a terminal


async def test_a_person_talks_line_by_line_and_leaves_with_ctrl_d(screen: Terminal, chatter: Chatter) -> None:
    await screen.type("hello\r")
    await screen.shows("you said hello")
    await screen.shows("> ")
    await screen.type(UP + "again\r")
    await screen.shows("you said helloagain")
    await screen.shows("> ")
    await screen.type(CTRL_D)
    assert await screen.ended() == 0
    history = chatter.folder / "state" / "maestro" / "chat" / "history"
    assert history.read_text().splitlines()[-2:] == ["hello", "helloagain"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


async def test_a_number_presses_the_button_below_the_newest_message(
    screen: Terminal, chatter: Chatter, llm: LLMServer
) -> None:
    question = ("ask_question", '{"question": "Which one?", "choices": ["Red", "Dark blue"]}')
    llm.script("paint the shed", calls=(question,), rounds=0)
    llm.script("paint the shed", reply="it came to {results}", rounds=1)
    await screen.type("paint the shed\r")
    await screen.shows("[1] Red  [2] Dark blue")
    await screen.shows("> ")
    await screen.type("2\r")
    await screen.shows("it came to Dark blue")
    await screen.shows("> ")
    assert [job["content"].partition(" #")[0] for job in chatter.about("Dark blue #")] == ["Dark blue"]
    await screen.type(CTRL_D)
    assert await screen.ended() == 0


async def test_ctrl_c_stops_the_waiting_and_stop_the_answer(screen: Terminal, chatter: Chatter, llm: LLMServer) -> None:
    llm.script("for ever", delay=LATER)
    await screen.type("think for ever\r")
    await screen.shows("An agent is typing")
    await screen.interrupt()
    await screen.shows("No longer waiting")
    await screen.shows("> ")
    await screen.type("/stop\r")
    await screen.shows("Stopped.")
    await screen.shows("> ")
    await screen.type("half a line")
    await screen.shows("half a line")
    await screen.interrupt()
    await screen.shows("> ")
    await screen.type(CTRL_D)
    assert await screen.ended() == 0
    await until(lambda: chatter.about("for ever")[-1]["status"] == "cancelled")
    assert chatter.about("half a line") == []


async def test_a_late_answer_appears_above_the_line_that_is_being_typed(
    screen: Terminal, chatter: Chatter, llm: LLMServer
) -> None:
    llm.script("late", delay=2.0, reply="here it is")
    await screen.type("this is late\r")
    await until(lambda: len(llm.matching("late")) == 1)
    await screen.interrupt()
    await screen.shows("> ")
    await screen.type("meanwh")
    await screen.shows("meanwh")
    await screen.shows("here it is")
    await screen.shows("> meanwh")
    await screen.type("ile\r")
    await screen.shows("you said meanwhile")


async def test_a_conversation_goes_on_after_a_restart(screen: Terminal, chatter: Chatter) -> None:
    await screen.type("before\r")
    await screen.shows("you said before")
    await chatter.maestro.kill()
    await screen.shows("Maestro is unreachable")
    await screen.type("meanwhile\r")
    await chatter.maestro.start()
    await screen.shows("you said meanwhile")
    await screen.shows("> ")  # a key that comes before the prompt may be lost with the terminal's change of mode
    await screen.type(CTRL_D)
    assert await screen.ended() == 0
    await until(lambda: chatter.about("meanwhile")[-1]["status"] == "completed")
    assert screen.screen.count("you said meanwhile") == 1
