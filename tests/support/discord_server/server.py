"""The server as a test uses it: who says what, what the bot sent, and what goes wrong."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from aiohttp import web

from tests.support.discord_server.faults import Fault, Scripted
from tests.support.discord_server.gateway import Gateway
from tests.support.discord_server.interactions import COMMAND, interaction, pressed
from tests.support.discord_server.rest import PREFIX, Asked, Rest
from tests.support.discord_server.world import BOT, Channel, Json, Message, User, World, snowflake

T = TypeVar("T")
PATIENCE = 10.0


class DiscordServer:
    """Runs in a thread of its own; every method may be called from any thread."""

    def __init__(self) -> None:
        self._world = World()
        self._gateway = Gateway(self._world)
        self._rest = Rest(self._world, self._gateway)
        self._loop = asyncio.new_event_loop()
        self._files: dict[str, bytes] = {}
        self._signature = 1
        self._expiring = 0
        self.downloads: list[str] = []
        self.port = 0

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator["DiscordServer"]:
        """Run a server on a free port."""
        server = cls()
        ready, stopped = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=lambda: server._loop.run_until_complete(server._serve(ready, stopped)))
        thread.start()
        assert ready.wait(PATIENCE)
        try:
            yield server
        finally:
            server._loop.call_soon_threadsafe(stopped.set)
            thread.join(PATIENCE)
            server._loop.close()

    @property
    def base_url(self) -> str:
        """Where the REST interface is."""
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    @property
    def gateway_url(self) -> str:
        """Where the gateway is."""
        return f"ws://127.0.0.1:{self.port}/gateway"

    @property
    def requests(self) -> list[Asked]:
        """Every request so far."""
        return list(self._rest.asked)

    @property
    def connected(self) -> int:
        """How many sockets are open."""
        return self._gateway.connected

    @property
    def identified(self) -> list[Json]:
        """What every IDENTIFY said."""
        return list(self._gateway.identified)

    @property
    def greeted(self) -> int:
        """How many sessions began and were told of the guild; what is said before the first is old to a bot."""
        return self._gateway.greeted

    @property
    def resumed(self) -> int:
        """How many sessions were resumed."""
        return self._gateway.resumed

    @property
    def commands(self) -> list[str]:
        """The names of the registered slash commands."""
        return [command["name"] for command in self._world.commands]

    @property
    def typed(self) -> list[int]:
        """The channel of every typing indicator."""
        return list(self._rest.typed)

    def asked(self, kind: str) -> list[Asked]:
        """Return the requests of one kind: history, messages, message, typing, me and others."""
        return [one for one in self.requests if one.kind == kind]

    def user(self, name: str, *, bot: bool = False) -> User:
        """Return somebody by name."""
        return self._world.user(name, bot=bot)

    def channel(self, name: str, parent: Channel | None = None) -> Channel:
        """Make a channel, or a thread in one; a bot that is connected hears of it."""
        made = self._world.channel(name, parent)
        self._do(self._gateway.dispatch("THREAD_CREATE" if parent else "CHANNEL_CREATE", made.json()))
        return made

    def direct(self, person: User) -> Channel:
        """Return the direct channel with somebody."""
        return self._world.direct(person)

    def say(self, author: User, channel: Channel, content: str, **fields: Any) -> Message:
        """Let somebody write; ``fields`` are those of ``Message``, and ``at`` for when."""
        return self.tell(self.write(author, channel, content, **fields))

    def write(self, author: User, channel: Channel, content: str, at: datetime | None = None, **fields: Any) -> Message:
        """Keep what somebody wrote and tell no session of it."""
        message, _ = self._world.keep(Message(snowflake(at), channel.id, author, content, **fields))
        return message

    def tell(self, message: Message) -> Message:
        """Tell every session of a message, once more where it was told before."""
        self._do(self._gateway.dispatch("MESSAGE_CREATE", self._world.told(message)))
        return message

    def edit(self, message: Message, content: str) -> Message:
        """Let its author change a message."""
        message.content, message.edited = content, datetime.now(UTC)
        self._do(self._gateway.dispatch("MESSAGE_UPDATE", self._world.told(message)))
        return message

    def unfurl(self, message: Message) -> None:
        """Tell of a message again because a preview was added: nobody edited it."""
        self._do(self._gateway.dispatch("MESSAGE_UPDATE", self._world.told(message)))

    def command(self, author: User, channel: Channel, name: str) -> str:
        """Let somebody use a slash command and return the token of the interaction."""
        named = next(one for one in self._world.commands if one["name"] == name)
        told = interaction(author, channel, COMMAND, {"id": named["id"], "name": name, "type": 1})
        self._do(self._gateway.dispatch("INTERACTION_CREATE", told))
        return str(told["token"])

    def press(self, author: User, message: Message, number: int, *, custom_id: str = "") -> str:
        """Let somebody press a button of a message, counted from 0, and return the token of the interaction."""
        meant = custom_id or message.buttons[number]["custom_id"]
        told = pressed(author, self._world.channels[message.channel_id], message, meant)
        self._do(self._gateway.dispatch("INTERACTION_CREATE", told))
        return str(told["token"])

    def said_to(self, token: str) -> list[Json]:
        """Return what the bot said to an interaction, first its acknowledgement."""
        return list(self._rest.said_to_interactions.get(token, []))

    def posts(self, channel: Channel) -> list[Message]:
        """Return what the bot sent to a channel."""
        return [message for message in channel.messages if message.author == BOT]

    def file(self, name: str, content: bytes, content_type: str, *, size: int | None = None, url: str = "") -> Json:
        """Return an attachment; ``size`` is what Discord says of it, ``url`` another place than the server's own."""
        number = snowflake()
        self._files[str(number)] = content
        address = url or f"http://127.0.0.1:{self.port}/attachments/{number}/{name}?hm={self._signature}"
        told = {"id": str(number), "filename": name, "content_type": content_type, "url": address, "proxy_url": address}
        return {**told, "size": len(content) if size is None else size}

    def expire_links(self) -> None:
        """Sign all links anew: those of before lead nowhere, and who asks for a message gets new ones."""
        old, self._signature = f"hm={self._signature}", self._signature + 1
        for channel in self._world.channels.values():
            for message in channel.messages:
                message.attachments = json.loads(json.dumps(message.attachments).replace(old, f"hm={self._signature}"))

    def expire_links_on_download(self, times: int) -> None:
        """Let links expire just before they are used, so often."""
        self._expiring = times

    def fail(
        self, method: str, kind: str, fault: Fault, *, times: int = 1, channel: Channel | None = None, skip: int = 0
    ) -> None:
        """Let the next requests of a kind fail, after so many that do not."""
        self._rest.faults.append(Scripted(method, kind, fault, times, channel.id if channel else 0, skip))

    def mend(self) -> None:
        """Let nothing fail any more."""
        self._rest.faults.clear()
        self._gateway.privileged, self._gateway.refusing = True, False

    def withhold_intents(self) -> None:
        """Switch the privileged intent off, as in the developer portal."""
        self._gateway.privileged = False

    def refuse_sockets(self) -> None:
        """Let nobody connect to the gateway."""
        self._gateway.refusing = True

    def allow_sockets(self) -> None:
        """Let everybody connect to the gateway again."""
        self._gateway.refusing = False

    def drop(self) -> None:
        """Cut every socket; sessions can be resumed, unless they are forgotten."""
        self._do(self._gateway.drop())

    def ask_to_reconnect(self) -> None:
        """Send op 7."""
        self._do(self._gateway.ask_to_reconnect())

    def forget_sessions(self) -> None:
        """Let no session be resumed."""
        self._do(self._gateway.forget())

    def invalidate(self) -> None:
        """Send op 9."""
        self._do(self._gateway.invalidate())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _serve(self, ready: threading.Event, stopped: asyncio.Event) -> None:
        app = web.Application(client_max_size=64 * 1024**2)
        app.add_routes(self._rest.routes())
        app.add_routes([web.get("/gateway", self._gateway.serve), web.get("/attachments/{id}/{name}", self._download)])
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        self._gateway.url = self.gateway_url
        ready.set()
        await stopped.wait()
        await runner.cleanup()

    async def _download(self, request: web.Request) -> web.Response:
        self.downloads.append(request.path)
        if self._expiring > 0:
            self._expiring -= 1
            self.expire_links()
        if request.query.get("hm") != str(self._signature):
            return web.Response(status=404)
        return web.Response(body=self._files[request.match_info["id"]])


def contents(messages: Sequence[Message]) -> list[str]:
    """Return what messages say."""
    return [message.content for message in messages]
