"""Connectors are found while they run, and an indicator does not outlive the job it is about."""

import asyncio

import pytest

from connectors.base import NotDispatched
from connectors.hub import ConnectorHub, TypingIndicators
from maestro.domain.messages import Address
from tests.support.bot import Bot

PLACE = Address(platform="slack", account="default", channel="general")


class Seeing(Bot):
    """A bot that puts reactions, to all messages but one that is gone."""

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        self.seen: list[str] = []
        self.all_seen = asyncio.Event()

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Note it."""
        self.seen.append(message_id)
        if message_id == "gone":
            raise NotDispatched("there is no such message")
        if message_id == "2":
            self.all_seen.set()


async def until_typed(bot: Bot, times: int) -> None:
    """Return when the indicator was shown so many times."""
    async with asyncio.timeout(10):
        while len(bot.typed) < times:  # noqa: ASYNC110 - the bot tells nobody
            await asyncio.sleep(0.001)


def test_a_connector_is_found_only_while_it_runs() -> None:
    hub, bot = ConnectorHub(), Bot("slack")
    with hub.register_while_running(bot):
        assert hub.get_connector(PLACE) is bot
    with pytest.raises(NotDispatched, match="slack/default"):
        hub.get_connector(PLACE)


async def test_an_indicator_ends_with_its_job_wherever_that_ended() -> None:
    hub, bot, open_jobs = ConnectorHub(), Bot("slack"), {"job"}
    typing = TypingIndicators(hub, asyncio.get_running_loop(), open_jobs.__contains__)
    with hub.register_while_running(bot):
        assert typing.start_indicator("job", PLACE)
        await until_typed(bot, 3)
        open_jobs.clear()
        await asyncio.wait([task for task in asyncio.all_tasks() if task is not asyncio.current_task()], timeout=10)
        shown = len(bot.typed)
        open_jobs.add("job")
        assert typing.start_indicator("job", PLACE)
        await until_typed(bot, shown + 2)
        typing.stop_indicator("job")


async def test_every_message_is_acknowledged_whatever_becomes_of_another() -> None:
    hub, bot, seen = ConnectorHub(), Seeing("slack"), ["1", "gone", "2"]
    typing = TypingIndicators(hub, asyncio.get_running_loop(), lambda _: False)
    with hub.register_while_running(bot):
        assert typing.start_indicator("job", PLACE, seen)
        async with asyncio.timeout(10):
            await bot.all_seen.wait()
    assert bot.seen == seen


async def test_no_indicator_is_begun_for_a_connector_elsewhere() -> None:
    typing = TypingIndicators(ConnectorHub(), asyncio.get_running_loop(), lambda _: True)
    assert not typing.start_indicator("job", PLACE)
