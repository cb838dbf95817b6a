"""What exists on the server: people, channels and messages, and how Discord writes them down as JSON."""

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]

TOKEN = "MTIzNDU2Nzg5MDEyMzQ1Njc4.GhIjKl.the-token-of-the-bot-on-the-test-server"
EPOCH = datetime(2015, 1, 1, tzinfo=UTC)
TEXT, DIRECT, THREAD = 0, 1, 11
"""Types of channels."""
ORDINARY, JOINED, REPLY = 0, 7, 19
"""Types of messages."""

_COUNTER = itertools.count(1)


def snowflake(at: datetime | None = None) -> int:
    """Return an id of this moment, larger than every id of an earlier one."""
    milliseconds = ((at or datetime.now(UTC)) - EPOCH) // timedelta(milliseconds=1)
    return (milliseconds << 22) + next(_COUNTER) % (1 << 22)


@dataclass(frozen=True)
class User:
    """Somebody on the server."""

    id: int
    name: str
    bot: bool = False

    def json(self) -> Json:
        """Return the user as Discord tells of it."""
        return {
            "id": str(self.id),
            "username": self.name,
            "global_name": self.name.capitalize(),
            "discriminator": "0",
            "avatar": None,
            "bot": self.bot,
            "public_flags": 0,
        }


BOT = User(snowflake(datetime(2020, 1, 1, tzinfo=UTC)), "maestro", bot=True)


BOT_ROLE = snowflake(datetime(2021, 1, 1, tzinfo=UTC))
"""The role that Discord makes of a bot in each guild."""


@dataclass
class Message:
    """One message; ``content`` may be edited, ``nonce`` is its sender's own name for it."""

    id: int
    channel_id: int
    author: User
    content: str
    attachments: list[Json] = field(default_factory=list)
    nonce: str = ""
    reply_to: int = 0
    flags: int = 0
    edited: datetime | None = None
    kind: int = ORDINARY
    allowed_mentions: Json | None = None
    mentions: list[User] = field(default_factory=list)
    webhook: bool = False
    answered: "Message | None" = None
    mentions_role: bool = False
    components: list[Json] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)

    @property
    def buttons(self) -> list[Json]:
        """What can be pressed below it, row by row."""
        return [button for row in self.components for button in row["components"]]

    @property
    def at(self) -> datetime:
        """When it was written."""
        return EPOCH + timedelta(milliseconds=self.id >> 22)

    def json(self) -> Json:
        """Return the message as it is told to who reads the history, without what only the gateway adds."""
        told: Json = {
            "id": str(self.id),
            "channel_id": str(self.channel_id),
            "author": self.author.json(),
            "content": self.content,
            "timestamp": self.at.isoformat(),
            "edited_timestamp": self.edited.isoformat() if self.edited else None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [user.json() for user in self.mentions],
            "mention_roles": [str(BOT_ROLE)] if self.mentions_role else [],
            "attachments": self.attachments,
            "embeds": [],
            "pinned": False,
            "type": REPLY if self.reply_to else self.kind,
            "flags": self.flags,
            "components": self.components,
        }
        if self.reply_to:
            told["message_reference"] = {"message_id": str(self.reply_to), "channel_id": str(self.channel_id)}
            told["referenced_message"] = self.answered.json() if self.answered else None
        if self.webhook:
            told["webhook_id"] = str(self.author.id)
        return told


@dataclass
class Channel:
    """A channel of the guild, a thread in one, or a direct one with ``person``; messages oldest first."""

    id: int
    name: str = ""
    guild_id: int = 0
    parent_id: int = 0
    person: User | None = None
    messages: list[Message] = field(default_factory=list)

    @property
    def kind(self) -> int:
        """Its type, as Discord counts them."""
        if self.person is not None:
            return DIRECT
        return THREAD if self.parent_id else TEXT

    def json(self) -> Json:
        """Return the channel as Discord tells of it."""
        told: Json = {
            "id": str(self.id),
            "type": self.kind,
            "name": self.name,
            "last_message_id": str(self.messages[-1].id) if self.messages else None,
        }
        if self.person is not None:
            return {**told, "recipients": [self.person.json()]}
        told |= {"guild_id": str(self.guild_id), "position": 0, "permission_overwrites": [], "nsfw": False}
        if self.parent_id:
            archive = {"archived": False, "auto_archive_duration": 60, "archive_timestamp": EPOCH.isoformat()}
            return {
                **told,
                "parent_id": str(self.parent_id),
                "owner_id": str(BOT.id),
                "message_count": len(self.messages),
                "member_count": 2,
                "thread_metadata": {**archive, "locked": False},
            }
        return {**told, "parent_id": None, "topic": None, "rate_limit_per_user": 0}


class World:
    """One guild, its channels and the direct ones, and everything that was said."""

    def __init__(self) -> None:
        self.guild_id = snowflake(datetime(2021, 1, 1, tzinfo=UTC))
        self.channels: dict[int, Channel] = {}
        self.users: dict[str, User] = {BOT.name: BOT}
        self.nonces: dict[tuple[int, str], Message] = {}
        self.commands: list[Json] = []

    def user(self, name: str, *, bot: bool = False) -> User:
        """Return somebody by name, who is made when first asked for."""
        if name not in self.users:
            self.users[name] = User(snowflake(), name, bot)
        return self.users[name]

    def channel(self, name: str, parent: Channel | None = None) -> Channel:
        """Make a channel of the guild, or a thread in ``parent``."""
        made = Channel(snowflake(), name, self.guild_id, parent.id if parent else 0)
        self.channels[made.id] = made
        return made

    def direct(self, person: User) -> Channel:
        """Return the direct channel of the bot with somebody."""
        for known in self.channels.values():
            if known.person == person:
                return known
        made = Channel(snowflake(), person=person)
        self.channels[made.id] = made
        return made

    def keep(self, message: Message) -> tuple[Message, bool]:
        """Keep a message; one with a nonce that its author used before is not kept, and the first one is returned."""
        key = (message.author.id, message.nonce)
        if message.nonce and key in self.nonces:
            return self.nonces[key], False
        if message.nonce:
            self.nonces[key] = message
        said = self.channels[message.channel_id].messages
        message.answered = next((one for one in said if one.id == message.reply_to), None)
        said.append(message)
        return message, True

    def guild(self) -> Json:
        """Return what GUILD_CREATE tells."""
        own = [channel for channel in self.channels.values() if channel.guild_id]
        everyone = {
            "id": str(self.guild_id),
            "name": "@everyone",
            "permissions": str((1 << 50) - 1),
            "position": 0,
            "color": 0,
            "hoist": False,
            "managed": False,
            "mentionable": False,
        }
        managed = {"managed": True, "tags": {"bot_id": str(BOT.id)}}
        member = {
            "user": BOT.json(),
            "roles": [],
            "joined_at": EPOCH.isoformat(),
            "deaf": False,
            "mute": False,
            "flags": 0,
        }
        return {
            "id": str(self.guild_id),
            "name": "Town",
            "unavailable": False,
            "owner_id": str(BOT.id),
            "member_count": 2,
            "large": False,
            "roles": [everyone, {**everyone, "id": str(BOT_ROLE), "name": BOT.name, **managed}],
            "members": [member],
            "channels": [channel.json() for channel in own if not channel.parent_id],
            "threads": [channel.json() for channel in own if channel.parent_id],
            "emojis": [],
            "stickers": [],
            "features": [],
        }

    def told(self, message: Message) -> Json:
        """Return what MESSAGE_CREATE tells: in a guild, where it was said and who is a member."""
        channel = self.channels[message.channel_id]
        told = {**message.json(), **({"nonce": message.nonce} if message.nonce else {})}
        if not channel.guild_id:
            return told
        member = {"roles": [], "joined_at": EPOCH.isoformat(), "deaf": False, "mute": False, "flags": 0}
        return {**told, "guild_id": str(channel.guild_id), "member": member}
