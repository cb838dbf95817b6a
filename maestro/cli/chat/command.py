"""``maestro chat``: talk to an agent from a terminal or a script, over the web connector."""

import asyncio
import contextlib
import getpass
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import typer

from maestro.cli.chat.client import ChatClient, ChatRefused, ConnectorAddress, ForeignChannel, Frame
from maestro.cli.chat.messages import ChatAnswer, addressed, harmless, is_failure, web_address
from maestro.cli.chat.terminal import AWAY, ChatScreen, converse
from maestro.cli.chat.visits import ChatVisit, VisitFiles, new_channel, state_folder
from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.inputs import fits
from maestro.cli.framework.options import Given
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.fields import Slug
from maestro.settings import Settings, WebSettings, read_environment

TIMEOUT = 300.0
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - the address to connect to when the server is bound to all

HELP = """Talk to an agent over the web connector.

With TEXT, or with something on standard input, it says that as one message, prints the answer and ends. Without,
on a terminal, it is a conversation: Ctrl-C stops waiting for an answer, Ctrl-D leaves, and /stop, /status and /new do
what they do everywhere. The conversation goes on with the next call, in a channel of your own.
"""

app = Commands()


def _slug(text: str) -> str:
    return fits(Slug, text) if text else ""


def _url(text: str) -> str:
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port out of range, or half an IPv6 address
        sound = False
    if not sound:
        raise typer.BadParameter("expected an address such as ws://localhost:5070")
    return parts._replace(path=parts.path or "/").geturl()


@app.command(help=HELP, json=False)
def chat(
    given: Given,
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="What to say; without it see above.")] = None,
    agent: Annotated[
        str, typer.Option(metavar="SLUG", callback=_slug, help="Who is to answer, in a channel of its own.")
    ] = "",
    channel: Annotated[str, "ID: Talk in this channel instead of your own."] = "",
    url: Annotated[
        str,
        typer.Option(metavar="URL", callback=_url, help="The web connector; without it, that of the configuration."),
    ] = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="How long to wait for an answer to TEXT.")
    ] = TIMEOUT,
    as_json: Annotated[bool, "--json: Write what arrives as JSON, a message per line, for programs."] = False,
) -> None:
    """Talk to an agent over the web connector."""
    settings = configured(given, accounts=False).settings
    said = " ".join(text) if text else _piped()
    _tell_unknown(agent, settings)
    visits = VisitFiles(state_folder(read_environment()) / "chat")
    place = _place(settings.web, url)
    talk = TerminalChat(place, visits, agent, channel, ChatScreen(as_json, web_address(place.url)))
    if said is None:
        talk.at_length()
    else:
        talk.once(said, timeout)


@dataclass(frozen=True)
class TerminalChat:
    """One run of ``maestro chat``: its web connector, agent, channel and screen."""

    place: ConnectorAddress
    visits: VisitFiles
    agent: str
    channel: str
    screen: ChatScreen

    def once(self, said: str, timeout: float) -> None:
        """Send one message and show the answer."""
        text = addressed(said, self.agent)
        self._in_a_channel(lambda client: asyncio.run(ask(client, text, timeout, self.screen)))

    def at_length(self) -> None:
        """Run an interactive conversation."""
        history = self.visits.folder / "history"
        self._in_a_channel(lambda client: converse(client, self.agent, self.screen, history))

    def _in_a_channel(self, talk: Callable[[ChatClient], None]) -> None:
        """Chat, in a new channel if the old one has another owner; raises ``ForeignChannel`` for a chosen one."""
        try:
            talk(self._client())
        except ForeignChannel:
            if self.channel:
                raise
            self.screen.note("Your earlier channel is not yours any more, so this is a new one.")
            self._fresh()
            talk(self._client())

    @property
    def _name(self) -> str:
        """Return the name under which the visit is stored: of the channel, of the agent, or the default."""
        return f"#{self.channel}" if self.channel else f"@{self.agent}"

    def _client(self) -> ChatClient:
        visit = self.visits.find(self.place.url, self._name) or self._fresh()
        return ChatClient(self.place, visit, lambda changed: self.visits.keep(self._name, changed))

    def _fresh(self) -> ChatVisit:
        url, token = self.place.url, self.visits.token(self.place.url)
        if self.channel:
            return ChatVisit(url=url, channel=self.channel, resume_token=token)
        channel = new_channel(self.place.user_name, self.agent)
        visit = ChatVisit(url=url, channel=channel, resume_token=token, last_id=0)
        self.visits.keep(self._name, visit)
        return visit


def _piped() -> str | None:
    """Return all of standard input as one message, or None at a terminal."""
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    text = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not text:
        raise typer.BadParameter("there is nothing to say: give TEXT, or something on standard input")
    return text


def _place(web: WebSettings, url: str) -> ConnectorAddress:
    if not url and not web.enabled:
        raise ConfigurationError("web.enabled is false, so there is no web connector here; name another with --url")
    host = ANYWHERE.get(web.host, web.host)
    configured_url = f"ws://{f'[{host}]' if ':' in host else host}:{web.port}/"
    return ConnectorAddress(url or configured_url, web.api_key.get_secret_value(), _user())


def _user() -> str:
    """Return the name of this terminal's user; some containers have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _tell_unknown(agent: str, settings: Settings) -> None:
    if agent and agent not in {known.slug for known in settings.agents}:
        typer.echo(f"The configuration names no agent {agent!r}; if there is none, the conductor answers.", err=True)


class NoAnswer(MaestroError):
    """No complete answer arrived in time; the message explains what happens to it."""

    public = "There was no answer in time."


class AnswerFailed(MaestroError):
    """No agent could answer; the message is Maestro's error text."""

    public = "The message could not be answered."


async def ask(client: ChatClient, text: str, limit: float, screen: ChatScreen) -> None:
    """Send a message and show its answer; raises ``NoAnswer`` after ``limit`` seconds, and ``AnswerFailed``.

    Raises the errors of ``ChatClient.frames``, and ``ChatRefused`` when the message is rejected.
    """
    question = _ChatRequest(client, screen, text)
    try:
        async with asyncio.timeout(limit):
            await question.put()
    except TimeoutError:
        raise NoAnswer(_without_answer(client, limit, question.answer)) from None


class _ChatRequest:
    """A message, and the part of its answer that has arrived."""

    def __init__(self, client: ChatClient, screen: ChatScreen, text: str) -> None:
        self._client = client
        self._screen = screen
        self._text = text
        self._id = str(uuid.uuid4())
        self.answer = ChatAnswer(self._id)

    async def put(self) -> None:
        """Send the message and return when the answer is complete."""
        await self._client.say(self._id, self._text)
        async with contextlib.aclosing(self._client.frames()) as frames:
            async for frame in frames:
                if frame["type"] == "message" and self._answered(frame):
                    return
                self._mind(frame)

    def _answered(self, message: Frame) -> bool:
        """Show a message; true if it ended the answer. Raises ``AnswerFailed``."""
        answers = self.answer.takes(message)
        if answers and is_failure(self._text, message):
            self._screen.record(message, answers=True)
            raise AnswerFailed(harmless(message["content"]))
        self._screen.message(message, answers=answers, aside=not answers)
        return answers and not self.answer.more

    def _mind(self, frame: Frame) -> None:
        if frame["type"] == "away":
            self._screen.note(AWAY)
        elif frame["type"] == "typing":
            self._screen.typing()
        elif frame["type"] == "error" and frame.get("clientId") == self._id:
            raise ChatRefused(f"the web connector refused: {frame['message']}")


def _without_answer(client: ChatClient, limit: float, answer: ChatAnswer) -> str:
    if answer.more:
        return f"only a part of the answer within {limit:g} s; the next `maestro chat` shows the rest that has come"
    if client.unacknowledged:
        return f"Maestro has not taken the message within {limit:g} s; it may never have had it, so say it again"
    return f"no answer within {limit:g} s; it will still come to this channel, and the next `maestro chat` shows it"
