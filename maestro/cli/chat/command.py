"""``maestro chat``: talk to an agent from a terminal or a script, over the web connector."""

import asyncio
import contextlib
import getpass
import sys
import uuid
from typing import Annotated
from urllib.parse import urlsplit

import typer

from maestro.cli.chat.client import ChatClient, ChatRefused, ConnectorAddress, ForeignChannel
from maestro.cli.chat.messages import ChatAnswer, is_failure, mention_agent, web_address, without_controls
from maestro.cli.chat.terminal import AWAY, ChatScreen, converse
from maestro.cli.chat.visits import ChatVisit, VisitFiles, state_folder
from maestro.cli.framework.commands import Commands, load_settings, reachable_host
from maestro.cli.framework.inputs import validate_input
from maestro.cli.framework.options import Given
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.fields import Slug
from maestro.settings import WebSettings, read_environment

TIMEOUT = 300.0

HELP = """Talk to an agent over the web connector.

With TEXT, or with text on standard input, it sends one message, prints the answer and ends. Without TEXT, on a
terminal, it starts a conversation: Ctrl-C stops waiting for an answer, Ctrl-D leaves, and /stop, /status and /new do
what they do everywhere. The conversation goes on with the next call, in a channel of your own.
"""

app = Commands()


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is out of range, or the IPv6 address is incomplete
        is_valid = False
    if text and not is_valid:
        raise typer.BadParameter("expected an address such as ws://localhost:5070")
    return parts._replace(path=parts.path or "/").geturl() if text else ""


AgentOption = Annotated[
    str,
    typer.Option(
        metavar="SLUG",
        callback=lambda slug: validate_input(Slug, slug) if slug else "",
        help="The agent that answers, in a channel of its own.",
    ),
]
UrlOption = Annotated[
    str,
    typer.Option(metavar="URL", callback=_check_url, help="The web connector; without it, that of the configuration."),
]


@app.command(help=HELP, json=False)
def chat(
    given: Given,
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="The message; else see above.")] = None,
    agent: AgentOption = "",
    channel: Annotated[str, "ID: Talk in this channel instead of your own."] = "",
    url: UrlOption = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="How long to wait for an answer to TEXT.")
    ] = TIMEOUT,
    as_json: Annotated[bool, "--json: Write what arrives as JSON, a message per line, for programs."] = False,
) -> None:
    """Talk to an agent over the web connector."""
    settings = load_settings(given, accounts=False).settings
    content = " ".join(text) if text else _read_pipe()
    if agent and agent not in {known.slug for known in settings.agents}:
        typer.echo(f"The configuration names no agent {agent!r}; if there is none, the conductor answers.", err=True)
    address = _connector_address(settings.web, url)
    screen = ChatScreen(as_json, web_address(address.url))
    visits, name = VisitFiles(state_folder(read_environment()) / "chat"), f"#{channel}" if channel else f"@{agent}"

    def talk(visit: ChatVisit) -> None:
        client = ChatClient(address, visit, lambda changed: visits.save(name, changed))
        if content is None:
            converse(client, agent, screen, visits.folder / "history")
        else:
            asyncio.run(ask(client, mention_agent(content, agent), timeout, screen))

    try:
        talk(visits.find(address.url, name) or visits.start(address.url, name, address.user_name))
    except ForeignChannel:
        if channel:
            raise
        screen.note("Your earlier channel now belongs to another user, so the chat begins in a new channel.")
        talk(visits.start(address.url, name, address.user_name))


def _read_pipe() -> str | None:
    """Return all of standard input as one message, or None at a terminal."""
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    text = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not text:
        raise typer.BadParameter("there is no message: give TEXT, or text on standard input")
    return text


def _connector_address(web: WebSettings, url: str) -> ConnectorAddress:
    if not url and not web.enabled:
        raise ConfigurationError("web.enabled is false, so there is no web connector here; name another with --url")
    user = ""
    with contextlib.suppress(KeyError, OSError):  # the users of some containers have no name
        user = getpass.getuser()
    return ConnectorAddress(url or f"ws://{reachable_host(web.host)}:{web.port}/", web.api_key.get_secret_value(), user)


class NoAnswer(MaestroError):
    """No complete answer arrived in time; the error message says what happens to the answer."""

    public = "There was no answer in time."


class AnswerFailed(MaestroError):
    """No agent could answer; the message is Maestro's error text."""

    public = "The message could not be answered."


async def ask(client: ChatClient, text: str, limit: float, screen: ChatScreen) -> None:
    """Send a message and show its answer; raises ``NoAnswer`` after ``limit`` seconds, and ``AnswerFailed``.

    Raises the errors of ``ChatClient.frames``, and ``ChatRefused`` when the message is rejected.
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
        raise NoAnswer(outcome) from None


async def _show_answer(client: ChatClient, text: str, answer: ChatAnswer, screen: ChatScreen) -> None:
    """Send the message and return when the whole answer was shown."""
    await client.say(answer.client_id, text)
    async with contextlib.aclosing(client.frames()) as frames:
        async for frame in frames:
            match frame["type"]:
                case "message":
                    answers = answer.includes(frame)
                    if answers and is_failure(text, frame):
                        screen.record(frame, answers=True)
                        raise AnswerFailed(without_controls(frame["content"]))
                    screen.message(frame, answers=answers, aside=not answers)
                    if answers and not answer.more:
                        return
                case "away":
                    screen.note(AWAY)
                case "typing":
                    screen.typing()
                case "error" if frame.get("clientId") == answer.client_id:
                    raise ChatRefused(f"the web connector refused: {frame['message']}")
