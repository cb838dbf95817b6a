"""Where messages come from and answers arrive: web clients, senders of webhooks, schedules, and the four platforms."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from tests.support.chatting import Person, person
from tests.support.four_platforms import OnDiscord, OnSlack, OnTelegram, OnWhatsApp, Platforms
from tests.support.hooks import new_webhook, post, signature
from tests.torture.plan import Message, Plan

ACCEPTED = (202,)
CREATED = (201, 409)
"""The answers to a request that creates something, whether or not an earlier one did already."""
RESEND = 0.1
"""Seconds until a program sends again what was not accepted."""
LEAD = "in 1s"
"""When a scheduled message is due, counted from its creation."""
PHONE = 491_700_000_000
CHAT = 7_000_000


class Correspondent(Protocol):
    """The other end of a lane, outside of Maestro."""

    async def send(self, message: Message) -> None:
        """Send a message."""
        ...

    def texts(self) -> Sequence[str]:
        """Return what has arrived, in order, repeats included."""
        ...


@dataclass
class WebClient:
    """A client of the web connector that reconnects, and sends again what was not acknowledged."""

    person: Person

    async def send(self, message: Message) -> None:
        """Send a message; again, if it is one that is sent twice."""
        await self.person.say(message.text, message.id)
        if message.again:
            await self.person.acknowledged(message.id)
            await self.person.say(message.text, message.id)

    def texts(self) -> Sequence[str]:
        """Return the content of each frame."""
        return [str(frame["content"]) for frame in self.person.replies]


@dataclass
class PlatformUser:
    """A user of a platform."""

    place: OnDiscord | OnSlack | OnTelegram | OnWhatsApp

    async def send(self, message: Message) -> None:
        """Write."""
        await self.place.say(message.text)

    def texts(self) -> Sequence[str]:
        """Return what our account has posted, as it reads now."""
        return self.place.texts()


@dataclass
class WebhookSender(WebClient):
    """A program that calls a webhook until its event is accepted."""

    http: httpx.AsyncClient

    async def send(self, message: Message) -> None:
        """Create the webhook, and call it until it is accepted; each call has the id of the same event."""
        fields = {"agent": "helper", "channel": self.person.channel, "promptTemplate": message.text}
        await insist(lambda: self.http.post("/api/webhooks", json=new_webhook(message.id, **fields)), *CREATED)
        body = b'{"build": 1}'
        for _ in range(1 + message.again):
            await insist(lambda: post(self.http, body, signature(body, message.id), message.id), *ACCEPTED)


@dataclass
class ScheduleClient(WebClient):
    """A channel in which a schedule answers once."""

    http: httpx.AsyncClient

    async def send(self, message: Message) -> None:
        """Create a schedule that is due once; its name makes a second one impossible."""
        about = {"kind": "cron", "agent": "helper", "name": message.id, "platform": "web", "schedule": LEAD}
        fields = {**about, "channel": self.person.channel, "prompt": message.text}
        await insist(lambda: self.http.post("/api/schedules", json=fields), *CREATED)


async def insist(request: Callable[[], Awaitable[httpx.Response]], *accepted: int) -> None:
    """Make a request until its answer is one of these."""
    while not await _succeeds(request, accepted):  # noqa: ASYNC110 - the server sends no event when it is back
        await asyncio.sleep(RESEND)


async def _succeeds(request: Callable[[], Awaitable[httpx.Response]], accepted: Sequence[int]) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return (await request()).status_code in accepted
    return False


@dataclass
class Clients:
    """The clients of an episode, by lane."""

    plan: Plan
    lanes: dict[str, Correspondent] = field(default_factory=dict)
    releases: list[asyncio.Event] = field(default_factory=list)

    def release(self, place: int) -> None:
        """Let the messages be sent that belong to this disturbance, or to one before."""
        for event in self.releases[: place + 1]:
            event.set()

    async def talk(self) -> None:
        """Send every message, each lane at its own pace."""
        async with asyncio.TaskGroup() as talking:
            for name in self.lanes:
                talking.create_task(self._talk(name))

    def hang_up(self) -> None:
        """Cut the connection of each web client without a word."""
        for one in self.lanes.values():
            if isinstance(one, WebClient):
                one.person.hang_up()

    async def _talk(self, lane: str) -> None:
        for message in self.plan.lane(lane):
            await self.releases[message.release].wait()
            await asyncio.sleep(message.pause)
            await self.lanes[lane].send(message)


@asynccontextmanager
async def clients_of(plan: Plan, web_port: int, api_port: int, platforms: Platforms) -> AsyncIterator[Clients]:
    """Connect the clients of an episode, each with a channel and a user of its own."""
    async with AsyncExitStack() as stack:
        clients = Clients(plan)
        clients.releases = [asyncio.Event() for _ in range(1 + max(message.release for message in plan.messages))]
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{api_port}", timeout=10)
        await stack.enter_async_context(http)
        for lane in plan.lanes:
            if lane in PLATFORM_LANES:
                clients.lanes[lane] = PlatformUser(_place(lane, plan.number, platforms))
                continue
            client = await stack.enter_async_context(person(web_port, channel(plan.number, lane)))
            clients.lanes[lane] = {"webhook": WebhookSender, "schedule": ScheduleClient}.get(lane, _web_client)(
                client, http
            )
        yield clients


PLATFORM_LANES = ("slack", "discord", "telegram", "whatsapp")
WITHOUT_KEYS = ("telegram", "whatsapp")
"""The platforms that cannot recognise a repeat: one more is what the promise allows, where it is marked."""
UNORDERED = ("webhook", "schedule")
"""Lanes whose jobs have no position in an inbound lane."""
WAITS_FOR_AGENT = ("web-ada",)
"""Lanes whose jobs release their inbound lane while another agent works."""
ORDERED_BY_PLATFORM = ("discord", "telegram")
"""Lanes whose platform tells the order of its messages, also of those that were sent in an outage."""


def channel(number: int, lane: str) -> str:
    """Return the channel of a web lane."""
    return f"episode-{number}-{lane}"


def _web_client(client: Person, _: httpx.AsyncClient) -> WebClient:
    return WebClient(client)


def _place(lane: str, number: int, platforms: Platforms) -> OnDiscord | OnSlack | OnTelegram | OnWhatsApp:
    match lane:
        case "slack":
            platforms.slack.workspace.person(f"U{number}", "Ann")
            return OnSlack(platforms.slack, f"U{number}", f"D{number}")
        case "discord":
            discord = platforms.discord
            return OnDiscord(discord, discord.user("ann"), discord.channel(f"episode-{number}"))
        case "telegram":
            return OnTelegram(platforms.telegram, CHAT + number)
        case _:
            return OnWhatsApp(platforms.whatsapp, str(PHONE + number))
