"""``maestro agents bind`` and ``unbind``: which channels belong to an agent."""

from typing import Annotated

import typer

from maestro.cli.agent_options import Slug
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.domain.agents.agent import BusyMode, Permission
from maestro.domain.agents.edits import NewBinding
from maestro.domain.errors import NotFound
from maestro.domain.messages import DEFAULT_ACCOUNT, Address
from maestro.domain.reading import read
from maestro.domain.values import Value

Platform = Annotated[str, typer.Argument(metavar="PLATFORM", help="The platform, such as web or discord.")]
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="The platform's id of the channel.")]
Account = Annotated[str, typer.Option(help="Which of our accounts on that platform.")]

app = Commands()


class Freed(Value):
    """The channel that belongs to nobody any more."""

    platform: str
    account: str
    channel: str


@app.command()
def bind(
    given: Given,
    slug: Slug,
    platform: Platform,
    channel: Channel,
    account: Account = DEFAULT_ACCOUNT,
    permission: Annotated[Permission, typer.Option(help="Only with full may users talk to it.")] = Permission.FULL,
    key_by_user: Annotated[
        bool, typer.Option("--key-by-user", help="Give each user a conversation of their own.")
    ] = False,
    busy: Annotated[BusyMode | None, typer.Option(help="What becomes of a message while another is answered.")] = None,
    allow_bots: Annotated[bool, typer.Option("--allow-bots", help="Answer other bots there.")] = False,
    client: Annotated[str, typer.Option(help="The name of the client who pays for what is answered there.")] = "",
) -> None:
    """Give a channel to an agent, from the next message on."""
    place = {"platform": platform, "account": account, "channel": channel}
    rules = {"permission": permission, "key_by_user": key_by_user, "busy": busy, "allow_bots": allow_bots}
    with opened(given) as at:
        new = read(NewBinding, {**place, **rules, "client": client})
        with at.store.begin() as tx:
            binding = tx.agents.view(tx.agents.bind_channel(tx.agents.named(slug), new, ACTOR))
    write(binding, [f"{slug} answers in {platform}/{channel} from the next message on"], given.as_json)


@app.command()
def unbind(given: Given, platform: Platform, channel: Channel, account: Account = DEFAULT_ACCOUNT) -> None:
    """Take a channel from its agent."""
    with opened(given) as at, at.store.begin() as tx:
        binding = tx.agents.binding(Address(platform=platform, account=account, channel=channel))
        if binding is None:
            raise NotFound(f"{platform}/{channel} is bound to no agent")
        tx.agents.unbind_channel(binding, ACTOR)
    freed = Freed(platform=platform, account=account, channel=channel)
    write(freed, [f"{platform}/{channel} belongs to nobody now"], given.as_json)
