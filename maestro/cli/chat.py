"""``maestro chat``: talk to an agent from a terminal or a script, over the web connector."""

import asyncio
import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import typer

from maestro.cli.chat_client import ChannelTaken, ChatClient, Place
from maestro.cli.chat_once import ask
from maestro.cli.chat_prompt import converse
from maestro.cli.chat_screen import Screen
from maestro.cli.chat_texts import addressed, web_address
from maestro.cli.chat_visits import Visit, Visits, new_channel, state_folder
from maestro.cli.checked import fits
from maestro.cli.commands import Commands
from maestro.cli.configured import configured
from maestro.cli.options import Given
from maestro.domain.errors import ConfigurationError
from maestro.domain.words import Slug
from maestro.settings import Settings, WebSettings, read_environment

TIMEOUT = 300.0
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where we connect when the server is bound to all

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
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="What to say; without it, see above.")
    ] = None,
    agent: Annotated[
        str, typer.Option(metavar="SLUG", callback=_slug, help="Who is to answer, in a channel of its own.")
    ] = "",
    channel: Annotated[str, typer.Option(metavar="ID", help="Talk in this channel instead of your own.")] = "",
    url: Annotated[
        str,
        typer.Option(metavar="URL", callback=_url, help="The web connector; without it, that of the configuration."),
    ] = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="How long to wait for an answer to TEXT.")
    ] = TIMEOUT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write what arrives as JSON, a message per line, for programs.")
    ] = False,
) -> None:
    """Talk to an agent over the web connector."""
    settings = configured(given, accounts=False).settings
    said = " ".join(text) if text else _piped()
    _tell_unknown(agent, settings)
    visits = Visits(state_folder(read_environment()) / "chat")
    place = _place(settings.web, url)
    talk = Talk(place, visits, agent, channel, Screen(as_json, web_address(place.url)))
    if said is None:
        talk.at_length()
    else:
        talk.once(said, timeout)


@dataclass(frozen=True)
class Talk:
    """One use of the command: with whom, where, and what shows it."""

    place: Place
    visits: Visits
    agent: str
    channel: str
    screen: Screen

    def once(self, said: str, timeout: float) -> None:
        """Say one thing and show the answer."""
        text = addressed(said, self.agent)
        self._in_a_channel(lambda client: asyncio.run(ask(client, text, timeout, self.screen)))

    def at_length(self) -> None:
        """Have a conversation."""
        history = self.visits.folder / "history"
        self._in_a_channel(lambda client: converse(client, self.agent, self.screen, history))

    def _in_a_channel(self, talk: Callable[[ChatClient], None]) -> None:
        """Talk, in a new channel where the old one is not ours any more; raises ``ChannelTaken`` for a chosen one."""
        try:
            talk(self._client())
        except ChannelTaken:
            if self.channel:
                raise
            self.screen.note("Your earlier channel is not yours any more, so this is a new one.")
            self._fresh()
            talk(self._client())

    @property
    def _name(self) -> str:
        """What the visit is kept under: a channel of one's choice, an agent's own, or the usual one."""
        return f"#{self.channel}" if self.channel else f"@{self.agent}"

    def _client(self) -> ChatClient:
        visit = self.visits.find(self.place.url, self._name) or self._fresh()
        return ChatClient(self.place, visit, lambda changed: self.visits.keep(self._name, changed))

    def _fresh(self) -> Visit:
        url, token = self.place.url, self.visits.token(self.place.url)
        if self.channel:
            return Visit(url=url, channel=self.channel, resume_token=token)
        channel = new_channel(self.place.user_name, self.agent)
        visit = Visit(url=url, channel=channel, resume_token=token, last_id=0)
        self.visits.keep(self._name, visit)
        return visit


def _piped() -> str | None:
    """Return all of standard input as one message, or None when a person types there."""
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    text = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not text:
        raise typer.BadParameter("there is nothing to say: give TEXT, or something on standard input")
    return text


def _place(web: WebSettings, url: str) -> Place:
    if not url and not web.enabled:
        raise ConfigurationError("web.enabled is false, so there is no web connector here; name another with --url")
    host = ANYWHERE.get(web.host, web.host)
    ours = f"ws://{f'[{host}]' if ':' in host else host}:{web.port}/"
    return Place(url or ours, web.api_key.get_secret_value(), _user())


def _user() -> str:
    """Return the name of who uses this terminal; some containers have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _tell_unknown(agent: str, settings: Settings) -> None:
    if agent and agent not in {known.slug for known in settings.agents}:
        typer.echo(f"The configuration names no agent {agent!r}; if there is none, the conductor answers.", err=True)
