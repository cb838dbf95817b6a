"""A bot is added, changed, refused and removed beside a running Maestro, which is never restarted."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.command import Ended, maestro
from tests.support.discord_server import TOKEN, DiscordServer
from tests.support.instance import Instance, running_instance, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("discord")]

WRONG = "MTk4NjIy.WRONG-SECRET.abcdefghijkl"


@pytest.fixture(scope="module")
def discord() -> Iterator[DiscordServer]:
    with DiscordServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(discord: DiscordServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    agents = [{"slug": "chief", "role": "conductor"}, {"slug": "helper"}]
    policy = {"discord": {"dmPolicy": "open"}}
    folder = tmp_path_factory.mktemp("run-time")
    async with running_instance(folder, agents=agents, connectors=policy) as running:
        yield running


async def connectors(running: Instance, *arguments: str, token: str | None = None) -> Ended:
    """Use the command beside the running Maestro; a token comes through a pipe."""
    folder, piped = running.data_dir.parent, None if token is None else f"{token}\n"
    ran = await maestro("connectors", *arguments, "--config", str(running.config_file), folder=folder, piped=piped)
    assert "SECRET" not in ran.output + ran.errors
    assert TOKEN not in ran.output + ran.errors
    return ran


async def state(running: Instance, wanted: str) -> str:
    """Return the detail of the bot's state once it is this one."""
    sql = "SELECT detail FROM connectors WHERE platform = 'discord' AND account = 'mine' AND state = ?"
    [row] = await running.until(sql, wanted)
    return str(row["detail"])


async def test_a_bot_lives_and_ends_beside_a_running_maestro(instance: Instance, discord: DiscordServer) -> None:
    place = ("--set", f"baseUrl={discord.base_url}", "--set", f"gatewayUrl={discord.gateway_url}")
    refused = await connectors(instance, "add", "discord/mine", *place, "--set", "chanels=1", token=WRONG)
    assert (refused.code, "chanels: unknown field" in refused.errors) == (1, True)

    added = await connectors(instance, "add", "discord/mine", *place, token=WRONG)
    assert added.code == 0, added.errors
    detail = await state(instance, "failed")
    assert "token" in detail
    asked = len(discord.requests)

    await connectors(instance, "set", "discord/mine", "--secret-env", "token=NOT_SET")
    assert detail in (await connectors(instance, "show", "discord/mine")).output
    assert len(discord.requests) == asked, "who is refused is not tried again"

    changed = await maestro(
        *("connectors", "set", "discord/mine", "--secret", f"token=file:{secret_file(instance)}"),
        *("--config", str(instance.config_file)),
        folder=instance.data_dir.parent,
    )
    assert changed.code == 0, changed.errors
    await state(instance, "running")
    ann = discord.user("ann")
    direct = discord.direct(ann)
    discord.say(ann, direct, "hello")
    await until(lambda: [post.content for post in discord.posts(direct)] == ["answer to: hello"], what="an answer")
    [job] = instance.query("SELECT agent_id, account FROM queue WHERE platform = 'discord'")
    assert job["account"] == "mine"

    sessions = len(discord.identified)
    await connectors(instance, "set", "discord/mine", "--agent", "helper")
    discord.say(ann, direct, "and who are you?")
    await instance.until(
        "SELECT 1 FROM queue JOIN agents ON agents.id = agent_id WHERE platform = 'discord' AND slug = 'helper'"
    )
    assert len(discord.identified) == sessions, "an agent needs no new connection"
    shown = (await connectors(instance, "show", "discord/mine")).output
    assert "last event" in shown

    await connectors(instance, "disable", "discord/mine")
    await state(instance, "stopped")
    await until(lambda: discord.connected == 0, what="the end of the connection")
    await connectors(instance, "remove", "discord/mine")
    assert instance.query("SELECT * FROM bot_instances") == []
    everything = b"".join(path.read_bytes() for path in instance.data_dir.glob("maestro.db*"))
    assert TOKEN.encode() not in everything
    assert WRONG.encode() not in everything


def secret_file(instance: Instance) -> Path:
    """Write the right token where only a file refers to it."""
    path = instance.data_dir.parent / "token"
    path.write_text(f"{TOKEN}\n")
    return path
