"""What Discord tells a bot of commands that people use and of buttons that they press."""

from tests.support.discord_server.world import BOT, Channel, Json, Message, User, snowflake

COMMAND, PRESS = 2, 3
BUTTON = 2


def interaction(author: User, channel: Channel, kind: int, data: Json) -> Json:
    """Return what INTERACTION_CREATE tells, with a token of its own."""
    number = snowflake()
    member: Json = {"user": author.json(), "roles": [], "joined_at": None, "deaf": False, "mute": False, "flags": 0}
    who: Json = {"member": {**member, "permissions": "0"}} if channel.guild_id else {"user": author.json()}
    where: Json = {"guild_id": str(channel.guild_id)} if channel.guild_id else {}
    told = {
        "id": str(number),
        "application_id": str(BOT.id),
        "type": kind,
        "token": f"interaction-{number}",
        "version": 1,
        "channel_id": str(channel.id),
        "channel": channel.json(),
        "data": data,
        "entitlements": [],
        "attachment_size_limit": 10_485_760,
        "app_permissions": "0",
        "locale": "en-US",
        "authorizing_integration_owners": {},
    }
    return {**told, **who, **where}


def pressed(author: User, channel: Channel, message: Message, custom_id: str) -> Json:
    """Return what is told of a button below a message that somebody pressed."""
    told = interaction(author, channel, PRESS, {"custom_id": custom_id, "component_type": BUTTON})
    return {**told, "message": message.json()}
