"""A conversation at a terminal: a person types in the main thread while another one listens."""

import asyncio
import concurrent.futures
import contextlib
import readline
import threading
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path

from maestro.cli.chat_client import ChatClient, Frame
from maestro.cli.chat_screen import AWAY, Screen
from maestro.cli.chat_texts import Answer, addressed, meant

LINES = 1000
"""Lines of history that are kept."""


def converse(client: ChatClient, agent: str, screen: Screen, history: Path) -> None:
    """Let a person talk until Ctrl-D; raises what ``ChatClient.frames`` raises."""
    with _remembered(history), _listening(client, screen) as listener:
        listener.wait_for(listener.connected())
        screen.note(f"Channel {client.visit.channel}. Ctrl-C stops waiting for an answer, Ctrl-D leaves.")
        for line in _lines(screen):
            try:
                listener.wait_for(listener.answered(line, agent))
            except KeyboardInterrupt:
                screen.note("Not waiting any longer; the answer will still come. /stop stops it.")
        if client.unacknowledged:
            screen.note(f"Maestro has not confirmed {client.unacknowledged} of your messages; say them again later.")


def _lines(screen: Screen) -> Iterator[str]:
    """Yield what a person types, line by line, until the end."""
    while True:
        try:
            line = screen.read()
        except KeyboardInterrupt:
            screen.note("")  # as in a shell: what was typed is dropped
            continue
        except EOFError:
            screen.note("")
            return
        if line.strip():
            yield line


class Listener:
    """Hears everything that is said in the channel and tells who waits for an answer; lives in its own loop."""

    def __init__(self, client: ChatClient, screen: Screen, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._screen = screen
        self._loop = loop
        self._connected = asyncio.Event()
        self._newest: Frame = {}
        self._waiting: dict[str, tuple[Answer, asyncio.Event]] = {}
        self._listening = asyncio.run_coroutine_threadsafe(self._listen(), loop)

    def wait_for(self, something: Coroutine[None, None, None]) -> None:
        """Return when it has happened; raises ``KeyboardInterrupt``, and what made the listening end."""
        waiting = asyncio.run_coroutine_threadsafe(something, self._loop)
        try:
            concurrent.futures.wait((waiting, self._listening), return_when=concurrent.futures.FIRST_COMPLETED)
            if self._listening.done():
                self._listening.result()
        finally:
            waiting.cancel()

    async def connected(self) -> None:
        """Return when the channel is open."""
        await self._connected.wait()

    async def answered(self, line: str, agent: str) -> None:
        """Say something and return when its answer begins, or when it is refused.

        The number of a button below the newest message says what pressing it would, to whoever asks.
        """
        chosen, self._newest = meant(line, self._newest), {}
        text = chosen if chosen != line else addressed(line, agent)
        client_id, told = str(uuid.uuid4()), asyncio.Event()
        self._waiting[client_id] = Answer(client_id), told
        try:
            await self._client.say(client_id, text)
            await told.wait()
        finally:
            del self._waiting[client_id]

    def end(self) -> None:
        """Stop listening."""
        self._listening.cancel()

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._client.frames()) as frames:
            async for frame in frames:
                self._hear(frame)

    def _hear(self, frame: Frame) -> None:
        match frame["type"]:
            case "resumed":
                self._connected.set()
            case "message":
                self._newest = frame
                self._screen.message(frame, answers=self._tell(frame))
            case "typing":
                self._screen.typing()
            case "away":
                self._screen.note(AWAY)
            case "error":
                self._screen.note(f"The web connector refused: {frame['message']}")
                self._release(frame.get("clientId", ""))

    def _tell(self, message: Frame) -> bool:
        answers = [told for answer, told in self._waiting.values() if answer.takes(message)]
        for told in answers:
            told.set()
        return bool(answers)

    def _release(self, client_id: str) -> None:
        if client_id in self._waiting:
            self._waiting[client_id][1].set()


@contextlib.contextmanager
def _listening(client: ChatClient, screen: Screen) -> Iterator[Listener]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="listener", daemon=True)
    thread.start()
    listener = Listener(client, screen, loop)
    try:
        yield listener
    finally:
        listener.end()
        asyncio.run_coroutine_threadsafe(_rest(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _rest() -> None:
    """Return when every other task has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@contextlib.contextmanager
def _remembered(history: Path) -> Iterator[None]:
    """Offer the lines of earlier conversations, and keep those of this one for the person alone."""
    readline.set_history_length(LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            history.touch(mode=0o600)
            readline.write_history_file(history)
