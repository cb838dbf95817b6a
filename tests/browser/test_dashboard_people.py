"""Platforms and people in a real browser: connectors, who is let in, closed channels and clients, on a real Maestro."""

import json
import re
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from maestro.intake.pairing import AN_OWNER, LET_IN
from tests.support.dashboard import Dashboard, dashboard
from tests.support.desk import CLIENTS, CONNECTORS, PEOPLE, Desk, desk, fill
from tests.support.discord_server import TOKEN, Channel, DiscordServer, Fault, User
from tests.support.instance import until
from tests.support.populated import HOSTILE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("discord")]

WRONG = "MTk4NjIy.WRONG-SECRET.abcdefghijkl"
STATE = "SELECT state FROM connectors WHERE platform = 'discord' AND account = 'mine' AND state = ?"


@pytest.fixture(scope="module")
def discord() -> Iterator[DiscordServer]:
    with DiscordServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def board(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dashboard]:
    async with dashboard(chromium, tmp_path_factory.mktemp("people")) as opened:
        yield opened


def connector(at: Desk) -> Locator:
    """Return the row of the bot."""
    return at.page.locator("#connector-discord-mine")


async def in_state(at: Desk, state: str) -> None:
    """Wait until the connector is in a state, and expect that the page says so."""
    await at.at.instance.until(STATE, state)
    await at.open("/accounts")
    await expect(connector(at)).to_contain_text(state)


async def told(discord: DiscordServer, direct: Channel, words: str) -> None:
    """Wait until the bot has written something to somebody."""
    await until(lambda: any(words in post.content for post in discord.posts(direct)), what=words)


async def test_a_platform_is_connected_and_its_people_are_let_in(board: Dashboard, discord: DiscordServer) -> None:
    async with desk(board, CONNECTORS | PEOPLE) as at:
        await connect(at, discord)
        await decide(at, discord)
        await invite(at, discord)
        await close_and_open(at, discord)
        await disconnect(at)


async def connect(at: Desk, discord: DiscordServer) -> None:
    """Connect with a token that the platform refuses, read so on the page, and mend it there."""
    await at.open("/accounts")
    await at.unfold("Connect Discord")
    form = at.page.locator("#add-connector details[open] form")
    options = {"baseUrl": discord.base_url, "gatewayUrl": discord.gateway_url}
    await fill(form, account="mine", secret_token=WRONG, options=json.dumps(options))
    await at.press("Connect it", form)
    await at.said("The connector was added and connects now")
    await in_state(at, "failed")
    await expect(connector(at)).to_contain_text("Discord refuses the bot's token")
    await at.follow("Change discord/mine")
    await fill(at.page.locator("#add-connector details[open] form"), secret_token=TOKEN)
    await at.press("Save")
    await at.said("The entry was changed.")
    await in_state(at, "running")
    assert WRONG not in await at.page.content()
    assert TOKEN not in await at.page.content()


async def knock(at: Desk, discord: DiscordServer, name: str) -> tuple[User, Channel]:
    """Have a stranger write a direct message, who is told a code, and stands on the page."""
    person = discord.user(name)
    direct = discord.direct(person)
    discord.say(person, direct, f"let me in {HOSTILE}")
    await until(lambda: bool(discord.posts(direct)), what="the code")
    await at.open("/accounts")
    await expect(at.row(f"discord:{person.id}")).to_contain_text(name.title())
    code = await at.row(f"discord:{person.id}").locator("code").inner_text()
    assert code.replace("-", "") in discord.posts(direct)[0].content.replace("-", "")
    return person, direct


async def decide(at: Desk, discord: DiscordServer) -> None:
    """Let one in and forget her, keep one out, and let one in as an owner."""
    ann, with_ann = await knock(at, discord, "ann")
    await at.press(f"Approve discord:{ann.id}")
    await at.said("The user has access, and was notified.")
    await told(discord, with_ann, LET_IN)
    discord.say(ann, with_ann, "and now?")
    await told(discord, with_ann, "answer to: and now?")
    await at.open("/accounts")
    await at.unfold("Users with access")
    known = at.page.locator("#known-people")
    row = known.locator("tr").filter(has_text=f"discord:{ann.id}")
    await at.unfold("Remove", row)
    await at.press(f"Remove discord:{ann.id}", row)
    await at.said("The user's access was removed.")
    bob, with_bob = await knock(at, discord, "bob")
    await at.press(f"Refuse discord:{bob.id}")
    await at.said("The user was refused")
    await at.unfold("Users with access")
    await expect(known.locator("tr").filter(has_text=f"discord:{bob.id}")).to_contain_text("refused")
    cleo, with_cleo = await knock(at, discord, "cleo")
    await at.unfold("Approve as owner", at.row(f"discord:{cleo.id}"))
    await at.press(f"Approve discord:{cleo.id} as an owner")
    await at.said("access as an owner")
    await told(discord, with_cleo, AN_OWNER)
    assert len(discord.posts(with_bob)) == 1


async def invite(at: Desk, discord: DiscordServer) -> None:
    """Have somebody use an invitation, which is shown once."""
    await at.press("Invite a user")
    shown = at.page.locator("code.secret")
    await expect(shown).to_contain_text("/pair ")
    code = await shown.inner_text()
    dora = discord.user("dora")
    discord.say(dora, discord.direct(dora), code)
    await told(discord, discord.direct(dora), LET_IN)
    await at.open("/accounts")
    assert code not in await at.page.content()


async def close_and_open(at: Desk, discord: DiscordServer) -> None:
    """Have the platform refuse a channel for good, and send there again when that is mended."""
    dora = discord.user("dora")
    direct = discord.direct(dora)
    discord.fail("POST", "messages", Fault(403, code=50001, message="Missing Access"), channel=direct)
    discord.say(dora, direct, "are you there?")
    await at.at.instance.until("SELECT 1 FROM disabled_channels WHERE channel = ?", str(direct.id))
    await at.open("/accounts")
    await at.follow(re.compile("^Disabled channels"))
    row = at.row(f"discord/mine/{direct.id}")
    await expect(row).to_contain_text("403")
    await at.press(re.compile("^Send to .* again$"), row)
    await at.said("The channel is enabled")
    discord.say(dora, direct, "and now?")
    await told(discord, direct, "answer to: and now?")


async def disconnect(at: Desk) -> None:
    await at.open("/accounts")
    await at.unfold("Stop", connector(at))
    await at.press("Stop discord/mine")
    await at.said("The entry was disabled.")
    await expect(connector(at).locator(".tag").first).to_have_text("disabled")
    await at.at.instance.until(STATE, "stopped")
    await at.press("Enable discord/mine")
    await at.said("The entry was enabled.")
    await in_state(at, "running")
    await at.unfold("Remove", connector(at))
    await at.press("Remove discord/mine")
    await at.said("The entry was removed.")
    await expect(connector(at)).to_have_count(0)


async def test_a_client_is_made_named_by_an_agent_and_removed(board: Dashboard) -> None:
    async with desk(board, CLIENTS, refusals=(409,)) as at:
        await at.open("/accounts")
        await at.unfold("Add a client")
        name = f"Bakery {HOSTILE}"[:60]
        await fill(at.page.locator("#add-client form"), name=name, daily_budget_usd="5", weight="2", plan="monthly")
        await at.press("Add it", at.page.locator("#add-client"))
        await at.said("The entry was added.")
        await expect(at.row(name)).to_contain_text("monthly")
        await at.follow(f"Change {name}")
        await fill(at.page.locator("#add-client form"), plan="yearly")
        await at.press("Save")
        await at.said("The entry was changed.")
        await expect(at.row(name)).to_contain_text("yearly")
        await at.at.make("/agents", slug="baker", client=name)
        await remove_client(at, name)
        await expect(at.page.get_by_role("alert")).to_be_visible()
        answer = await at.at.http.patch("/api/agents/baker", json={"client": None})
        assert answer.is_success, answer.text
        await at.open("/accounts")
        await remove_client(at, name)
        await at.said("The entry was removed.")
        await expect(at.row(name)).to_have_count(0)


async def remove_client(at: Desk, name: str) -> None:
    await at.unfold("Remove", at.row(name))
    await at.press(f"Remove {name}")
