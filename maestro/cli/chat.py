"""``maestro chat``: talk to an agent from a terminal or a script, over the web connector.

At a terminal, a second thread receives messages while the user types.
"""

import asyncio
import concurrent.futures
import contextlib
import getpass
import json
import readline
import sys
import threading
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from connectors.web_client import (
    ChatAnswer,
    ChatClient,
    ChatFailed,
    ChatVisit,
    ForeignChannel,
    Frame,
    VisitFiles,
    display_text,
    is_failure,
    mention_agent,
    resolve_choice,
    state_folder,
    web_address,
    without_controls,
)
from maestro.cli.framework.commands import Commands, load_settings, reachable_host, validate_input
from maestro.cli.framework.options import Given
from maestro.domain.errors import ConfigurationError
from maestro.domain.settings.process import WebSettings
from maestro.domain.values import Slug
from maestro.settings import read_environment

PROMPT = "> "
CLEAR_LINE = "\r\x1b[K"
AWAY = "Maestro is unreachable; the chat goes on when it is back."


class ChatScreen:
    """The output of a chat, also while the user types a line; safe to use from two threads.

    Messages go to standard output, everything else to standard error, so that a script reads answers only. ``address``
    is the HTTP address from which files are downloaded.
    """

    def __init__(self, as_json: bool, address: str = "") -> None:
        self._address = address
        self._as_json = as_json
        self._drawn = sys.stdout.isatty() and not as_json
        self._lock = threading.Lock()
        self._asking = False
        self._shows_typing = False

    def show_message(self, frame: Frame, *, answers: bool = True, aside: bool = False) -> None:
        """Show a message; ``aside`` writes it to standard error, for messages that do not answer the script."""
        if self._as_json:
            self.write_message(frame, answers=answers)
        elif aside:
            self.show_notice(f"Earlier in this channel: {display_text(frame, self._address)}")
        else:
            self._write(display_text(frame, self._address))

    def write_message(self, frame: Frame, *, answers: bool) -> None:
        """Write a message as JSON if ``--json`` is given, else write nothing."""
        if self._as_json:
            self._write(json.dumps({**frame, "answers": answers}, ensure_ascii=False))

    def show_typing(self) -> None:
        """Show that an agent is typing, unless the user is typing."""
        with self._lock:
            if self._drawn and not self._asking and not self._shows_typing:
                self._shows_typing = True
                typer.echo("\x1b[2mAn agent is typing …\x1b[0m", nl=False)

    def show_notice(self, text: str) -> None:
        """Show a notice about the chat, on standard error."""
        self._write(text, err=True)

    def read_line(self) -> str:
        """Return the next line that the user types; raises ``EOFError`` on Ctrl-D, ``KeyboardInterrupt`` on Ctrl-C."""
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


def run_conversation(client: ChatClient, agent: str, screen: ChatScreen, history: Path) -> None:
    """Run a conversation until Ctrl-D; raises the errors of ``ChatClient.receive_frames``."""
    with _saved_history(history), _channel_listener(client, screen) as listener:
        listener.wait_for(listener.connected.wait())
        screen.show_notice(f"Channel {client.visit.channel}. Ctrl-C stops waiting for an answer, Ctrl-D leaves.")
        for line in _read_lines(screen):
            try:
                listener.wait_for(listener.await_answer(line, agent))
            except KeyboardInterrupt:
                screen.show_notice("No longer waiting; the answer will still come, unless you send /stop.")
        if client.unacknowledged:
            count = len(client.unacknowledged)
            screen.show_notice(f"Maestro has not confirmed {count} of your messages; send them again later.")


def _read_lines(screen: ChatScreen) -> Iterator[str]:
    """Yield the lines that the user types, until the end of the input."""
    while True:
        try:
            line = screen.read_line()
        except KeyboardInterrupt:
            screen.show_notice("")  # as in a shell, Ctrl-C discards the typed line
            continue
        except EOFError:
            screen.show_notice("")
            return
        if line.strip():
            yield line


class ChannelListener:
    """A receiver of the channel's messages in a second thread; it wakes the thread that waits for an answer."""

    def __init__(self, client: ChatClient, screen: ChatScreen, loop: asyncio.AbstractEventLoop) -> None:
        self.connected = asyncio.Event()
        self._client = client
        self._screen = screen
        self._loop = loop
        self._newest: Frame = {}
        self._waiting: dict[str, tuple[ChatAnswer, asyncio.Event]] = {}
        self.listening = asyncio.run_coroutine_threadsafe(self._listen(), loop)

    def wait_for(self, work: Coroutine[None, None, Any]) -> None:
        """Wait until ``work`` is done; raises ``KeyboardInterrupt``, and the error that ended the listener."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            concurrent.futures.wait((waiting, self.listening), return_when=concurrent.futures.FIRST_COMPLETED)
            if self.listening.done():
                self.listening.result()
        finally:
            waiting.cancel()

    async def await_answer(self, line: str, agent: str) -> None:
        """Send a message, and return when its answer begins or the message is refused.

        For a line that is the number of a button below the newest message, the value of that button is sent.
        """
        chosen, self._newest = resolve_choice(line, self._newest), {}
        text = chosen if chosen != line else mention_agent(line, agent)
        client_id, settled = str(uuid.uuid4()), asyncio.Event()
        self._waiting[client_id] = ChatAnswer(client_id), settled
        try:
            await self._client.send_message(client_id, text)
            await settled.wait()
        finally:
            del self._waiting[client_id]

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._client.receive_frames()) as frames:
            async for frame in frames:
                self._show_frame(frame)

    def _show_frame(self, frame: Frame) -> None:
        match frame["type"]:
            case "resumed":
                self.connected.set()
            case "message":
                self._newest = frame
                answered = [settled for answer, settled in self._waiting.values() if answer.includes_message(frame)]
                for settled in answered:
                    settled.set()
                self._screen.show_message(frame, answers=bool(answered))
            case "typing":
                self._screen.show_typing()
            case "away":
                self._screen.show_notice(AWAY)
            case "error":
                self._screen.show_notice(f"The web connector refused: {frame['message']}")
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
    """Load the history of typed lines, and store it on exit in a file that only this user can read."""
    readline.set_history_length(1000)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            history.touch(mode=0o600)
            readline.write_history_file(history)


app = Commands()


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # The entered port is out of range, or the IPv6 address is incomplete.
        is_valid = False
    if text and not is_valid:
        raise typer.BadParameter("expected an address such as ws://localhost:5070")
    return parts._replace(path=parts.path or "/").geturl() if text else ""


AgentOption = Annotated[
    str,
    typer.Option(
        metavar="SLUG",
        callback=lambda slug: validate_input(Slug, slug) if slug else "",
        help="The agent that answers; each agent has its own channel.",
    ),
]
UrlOption = Annotated[
    str,
    typer.Option(metavar="URL", callback=_check_url, help="The web connector's address; default: the configured one."),
]


@app.command(json=False)
def chat(
    given: Given,
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="The one message to send.")] = None,
    agent: AgentOption = "",
    channel: Annotated[str, "ID: Talk in this channel instead of your own."] = "",
    url: UrlOption = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="How long to wait for an answer to TEXT.")
    ] = 300.0,
    as_json: Annotated[bool, "--json: Write each received message as a line of JSON, for programs."] = False,
) -> None:
    """Talk to an agent over the web connector.

    With TEXT, or with text on standard input, the command sends one message, prints the answer and ends. Otherwise it
    starts a conversation at the terminal: Ctrl-C stops waiting for an answer, Ctrl-D leaves, and /stop, /status and
    /new work as on every platform. The next call continues the conversation, in a channel of your own.
    """
    settings = load_settings(given, accounts=False).settings
    content = " ".join(text) if text else _read_pipe()
    if agent and agent not in {known.slug for known in settings.agents}:
        typer.echo(f"The configuration names no agent {agent!r}; if there is none, the conductor answers.", err=True)
    url, user = url or _local_url(settings.web), _user_name()
    credentials = {"apiKey": settings.web.api_key.get_secret_value(), "userName": user}
    screen = ChatScreen(as_json, web_address(url))
    visits, name = VisitFiles(state_folder(read_environment()) / "chat"), f"#{channel}" if channel else f"@{agent}"

    def talk(visit: ChatVisit) -> None:
        client = ChatClient(url, credentials, visit, lambda changed: visits.save_visit(name, changed))
        if content is None:
            run_conversation(client, agent, screen, visits.folder / "history")
        else:
            asyncio.run(ask_once(client, mention_agent(content, agent), timeout, screen))

    try:
        talk(visits.find_visit(url, name) or visits.start_visit(url, name, user))
    except ForeignChannel:
        if channel:
            raise
        screen.show_notice("Your earlier channel now belongs to another user, so the chat begins in a new channel.")
        talk(visits.start_visit(url, name, user))


def _local_url(web: WebSettings) -> str:
    if not web.enabled:
        raise ConfigurationError("web.enabled is false, so there is no web connector here; name another with --url")
    return f"ws://{reachable_host(web.host)}:{web.port}/"


def _user_name() -> str:
    with contextlib.suppress(KeyError, OSError):  # Some containers run under a user id without a user name.
        return getpass.getuser()
    return ""


def _read_pipe() -> str | None:
    """Return all of standard input as one message, or None at a terminal."""
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    text = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not text:
        raise typer.BadParameter("there is no message: give TEXT, or text on standard input")
    return text


async def ask_once(client: ChatClient, text: str, limit: float, screen: ChatScreen) -> None:
    """Send a message and show its answer; raises ``ChatFailed`` if no answer arrives within ``limit`` seconds.

    Raises ``ChatFailed`` also for a refused message or an error as the answer, and the errors of ``receive_frames``.
    """
    answer = ChatAnswer(str(uuid.uuid4()))
    try:
        async with asyncio.timeout(limit):
            await _show_answer(client, text, answer, screen)
    except TimeoutError:
        within = f"within {limit:g} s"
        outcome = f"no answer {within}; it will still come to this channel, and the next `maestro chat` shows it"
        if answer.more:
            outcome = f"only a part of the answer {within}; the next `maestro chat` shows the rest that has come"
        elif client.unacknowledged:
            outcome = f"Maestro has not confirmed the message {within}; the message may be lost, so send it again"
        raise ChatFailed(outcome) from None


async def _show_answer(client: ChatClient, text: str, answer: ChatAnswer, screen: ChatScreen) -> None:
    """Send the message and return when the whole answer was shown."""
    await client.send_message(answer.client_id, text)
    async with contextlib.aclosing(client.receive_frames()) as frames:
        async for frame in frames:
            match frame["type"]:
                case "message":
                    answers = answer.includes_message(frame)
                    if answers and is_failure(text, frame):
                        screen.write_message(frame, answers=True)
                        raise ChatFailed(without_controls(frame["content"]))
                    screen.show_message(frame, answers=answers, aside=not answers)
                    if answers and not answer.more:
                        return
                case "away":
                    screen.show_notice(AWAY)
                case "typing":
                    screen.show_typing()
                case "error" if frame.get("clientId") == answer.client_id:
                    raise ChatFailed(f"the web connector refused: {frame['message']}")
