"""One message and its answer, for scripts."""

import asyncio
import contextlib
import uuid

from maestro.cli.chat_client import ChatClient, Frame, Refused
from maestro.cli.chat_screen import AWAY, Screen
from maestro.cli.chat_texts import Answer, may_go_on
from maestro.domain.errors import MaestroError

QUIET_SECONDS = 3.0
"""How long a long answer may pause between two chunks."""


class NoAnswer(MaestroError):
    """Nobody has answered in time; the message says what becomes of the answer."""

    public = "There was no answer in time."


async def ask(client: ChatClient, text: str, limit: float, screen: Screen) -> None:
    """Say one thing, show the answer and return; raises ``NoAnswer`` after ``limit`` seconds.

    Raises what ``ChatClient.frames`` raises, and ``Refused`` when the message is not taken.
    """
    question = _Question(client, screen)
    try:
        async with asyncio.timeout(limit) as clock:
            await question.put(text, clock)
    except TimeoutError:
        if not question.answered:
            raise NoAnswer(_without_answer(client, limit)) from None


class _Question:
    """What was said, and how much of its answer is there."""

    def __init__(self, client: ChatClient, screen: Screen) -> None:
        self.answered = False
        self._client = client
        self._screen = screen
        self._id = str(uuid.uuid4())
        self._answer = Answer(self._id)

    async def put(self, text: str, clock: asyncio.Timeout) -> None:
        """Return when the answer is there; ends with the clock after the last chunk of a long one."""
        await self._client.say(self._id, text)
        async with contextlib.aclosing(self._client.frames()) as frames:
            async for frame in frames:
                if frame["type"] == "message" and self._shown(frame):
                    if not may_go_on(frame):
                        return
                    clock.reschedule(asyncio.get_running_loop().time() + QUIET_SECONDS)
                self._mind(frame)

    def _shown(self, message: Frame) -> bool:
        """Show a message, and say whether it is a part of the answer."""
        answers = self._answer.takes(message)
        self._screen.message(message, answers=answers, aside=not answers)
        self.answered = self.answered or answers
        return answers

    def _mind(self, frame: Frame) -> None:
        if frame["type"] == "away":
            self._screen.note(AWAY)
        elif frame["type"] == "typing":
            self._screen.typing()
        elif frame["type"] == "error" and frame.get("clientId") == self._id:
            raise Refused(f"the web connector refused: {frame['message']}")


def _without_answer(client: ChatClient, limit: float) -> str:
    if client.unacknowledged:
        return f"Maestro has not taken the message within {limit:g} s; it may never have had it, so say it again"
    return f"no answer within {limit:g} s; it will still come to this channel, and the next `maestro chat` shows it"
