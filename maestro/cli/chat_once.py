"""One message and its answer, for scripts."""

import asyncio
import contextlib
import uuid

from maestro.cli.chat_client import ChatClient, Frame, Refused
from maestro.cli.chat_screen import AWAY, Screen
from maestro.cli.chat_texts import Answer, harmless, is_failure
from maestro.domain.errors import MaestroError


class NoAnswer(MaestroError):
    """There is no whole answer in time; the message says what becomes of it."""

    public = "There was no answer in time."


class Failed(MaestroError):
    """No agent could answer; the message is what Maestro says instead."""

    public = "The message could not be answered."


async def ask(client: ChatClient, text: str, limit: float, screen: Screen) -> None:
    """Say one thing, show the answer and return; raises ``NoAnswer`` after ``limit`` seconds, and ``Failed``.

    Raises what ``ChatClient.frames`` raises, and ``Refused`` when the message is not taken.
    """
    question = _Question(client, screen, text)
    try:
        async with asyncio.timeout(limit):
            await question.put()
    except TimeoutError:
        raise NoAnswer(_without_answer(client, limit, question.answer)) from None


class _Question:
    """What was said, and how much of its answer is there."""

    def __init__(self, client: ChatClient, screen: Screen, text: str) -> None:
        self._client = client
        self._screen = screen
        self._text = text
        self._id = str(uuid.uuid4())
        self.answer = Answer(self._id)

    async def put(self) -> None:
        """Return when the whole answer is there."""
        await self._client.say(self._id, self._text)
        async with contextlib.aclosing(self._client.frames()) as frames:
            async for frame in frames:
                if frame["type"] == "message" and self._answered(frame):
                    return
                self._mind(frame)

    def _answered(self, message: Frame) -> bool:
        """Show a message, and say whether it was the end of the answer; raises ``Failed``."""
        answers = self.answer.takes(message)
        if answers and is_failure(self._text, message):
            self._screen.record(message, answers=True)
            raise Failed(harmless(message["content"]))
        self._screen.message(message, answers=answers, aside=not answers)
        return answers and not self.answer.more

    def _mind(self, frame: Frame) -> None:
        if frame["type"] == "away":
            self._screen.note(AWAY)
        elif frame["type"] == "typing":
            self._screen.typing()
        elif frame["type"] == "error" and frame.get("clientId") == self._id:
            raise Refused(f"the web connector refused: {frame['message']}")


def _without_answer(client: ChatClient, limit: float, answer: Answer) -> str:
    if answer.more:
        return f"only a part of the answer within {limit:g} s; the next `maestro chat` shows the rest that has come"
    if client.unacknowledged:
        return f"Maestro has not taken the message within {limit:g} s; it may never have had it, so say it again"
    return f"no answer within {limit:g} s; it will still come to this channel, and the next `maestro chat` shows it"
