"""A conversation at a terminal: the screen on which a user types while a second thread receives."""

import asyncio
import concurrent.futures
import contextlib
import json
import readline
import sys
import threading
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import typer

from maestro.cli.chat.client import ChatClient, Frame
from maestro.cli.chat.messages import ChatAnswer, display_text, mention_agent, resolve_choice

PROMPT = "> "
CLEAR_LINE = "\r\x1b[K"
AWAY = "Maestro is unreachable; the chat goes on when it is back."
HISTORY_LINES = 1000


class ChatScreen:
    """The output of a chat, also while the user types a line; safe to use from two threads.

    Messages go to standard output, everything else to standard error, so that a script reads answers only. ``address``
    is the server from which files are downloaded.
    """

    def __init__(self, as_json: bool, address: str = "") -> None:
        self._address = address
        self._as_json = as_json
        self._drawn = sys.stdout.isatty() and not as_json
        self._lock = threading.Lock()
        self._asking = False
        self._shows_typing = False

    def message(self, frame: Frame, *, answers: bool = True, aside: bool = False) -> None:
        """Show a message; ``aside`` writes it to standard error, because it does not answer the script's message."""
        if self._as_json:
            self.record(frame, answers=answers)
        elif aside:
            self.note(f"Earlier in this channel: {display_text(frame, self._address)}")
        else:
            self._write(display_text(frame, self._address))

    def record(self, frame: Frame, *, answers: bool) -> None:
        """Write a message for programs; a user at a terminal sees nothing."""
        if self._as_json:
            self._write(json.dumps({**frame, "answers": answers}, ensure_ascii=False))

    def typing(self) -> None:
        """Show that an agent is typing, unless the user is."""
        with self._lock:
            if self._drawn and not self._asking and not self._shows_typing:
                self._shows_typing = True
                typer.echo("\x1b[2mAn agent is typing …\x1b[0m", nl=False)

    def note(self, text: str) -> None:
        """Show a notice that is not a message."""
        self._write(text, err=True)

    def read(self) -> str:
        """Return the next line that the user types; raises ``EOFError`` at the end and ``KeyboardInterrupt``."""
        with self._lock:
            self._erase_typing()
            self._asking = True
        try:
            return input(PROMPT if self._drawn else "")
        finally:
            self._asking = False

    def _write(self, text: str, *, err: bool = False) -> None:
        with self._lock:
            self._erase_typing()
            if self._asking and self._drawn:
                typer.echo(CLEAR_LINE, nl=False)
            typer.echo(text, err=err)
            if self._asking and self._drawn:
                typer.echo(PROMPT + readline.get_line_buffer(), nl=False)

    def _erase_typing(self) -> None:
        if self._shows_typing:
            self._shows_typing = False
            typer.echo(CLEAR_LINE, nl=False)


def converse(client: ChatClient, agent: str, screen: ChatScreen, history: Path) -> None:
    """Run a conversation until Ctrl-D; raises the errors of ``ChatClient.frames``."""
    with _saved_history(history), _channel_listener(client, screen) as listener:
        listener.wait_for(listener.connected.wait())
        screen.note(f"Channel {client.visit.channel}. Ctrl-C stops waiting for an answer, Ctrl-D leaves.")
        for line in _read_lines(screen):
            try:
                listener.wait_for(listener.answer(line, agent))
            except KeyboardInterrupt:
                screen.note("No longer waiting; the answer will still come, unless you send /stop.")
        if client.unacknowledged:
            count = len(client.unacknowledged)
            screen.note(f"Maestro has not confirmed {count} of your messages; send them again later.")


def _read_lines(screen: ChatScreen) -> Iterator[str]:
    """Yield the lines that the user types, until the end."""
    while True:
        try:
            line = screen.read()
        except KeyboardInterrupt:
            screen.note("")  # as in a shell, Ctrl-C discards the typed line
            continue
        except EOFError:
            screen.note("")
            return
        if line.strip():
            yield line


class ChannelListener:
    """A receiver of all messages of the channel, in its own event loop; it wakes the waiting thread."""

    def __init__(self, client: ChatClient, screen: ChatScreen, loop: asyncio.AbstractEventLoop) -> None:
        self.connected = asyncio.Event()
        self._client = client
        self._screen = screen
        self._loop = loop
        self._newest: Frame = {}
        self._waiting: dict[str, tuple[ChatAnswer, asyncio.Event]] = {}
        self.listening = asyncio.run_coroutine_threadsafe(self._listen(), loop)

    def wait_for(self, work: Coroutine[None, None, Any]) -> None:
        """Return when the work is done; raises ``KeyboardInterrupt``, and the error that ended the listener."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            concurrent.futures.wait((waiting, self.listening), return_when=concurrent.futures.FIRST_COMPLETED)
            if self.listening.done():
                self.listening.result()
        finally:
            waiting.cancel()

    async def answer(self, line: str, agent: str) -> None:
        """Send a message, and return when its answer begins or the message is refused.

        The number of a button below the newest message stands for the value of that button.
        """
        chosen, self._newest = resolve_choice(line, self._newest), {}
        text = chosen if chosen != line else mention_agent(line, agent)
        client_id, settled = str(uuid.uuid4()), asyncio.Event()
        self._waiting[client_id] = ChatAnswer(client_id), settled
        try:
            await self._client.say(client_id, text)
            await settled.wait()
        finally:
            del self._waiting[client_id]

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._client.frames()) as frames:
            async for frame in frames:
                self._show_frame(frame)

    def _show_frame(self, frame: Frame) -> None:
        match frame["type"]:
            case "resumed":
                self.connected.set()
            case "message":
                self._newest = frame
                answered = [settled for answer, settled in self._waiting.values() if answer.includes(frame)]
                for settled in answered:
                    settled.set()
                self._screen.message(frame, answers=bool(answered))
            case "typing":
                self._screen.typing()
            case "away":
                self._screen.note(AWAY)
            case "error":
                self._screen.note(f"The web connector refused: {frame['message']}")
                if waiting := self._waiting.get(frame.get("clientId", "")):
                    waiting[1].set()


@contextlib.contextmanager
def _channel_listener(client: ChatClient, screen: ChatScreen) -> Iterator[ChannelListener]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="listener", daemon=True)
    thread.start()
    listener = ChannelListener(client, screen, loop)
    try:
        yield listener
    finally:
        listener.listening.cancel()
        asyncio.run_coroutine_threadsafe(_finish_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _finish_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@contextlib.contextmanager
def _saved_history(history: Path) -> Iterator[None]:
    """Load the history of earlier conversations, and store it on exit, readable by its user only."""
    readline.set_history_length(HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            history.touch(mode=0o600)
            readline.write_history_file(history)
