"""An answer that may have arrived is held where the account says so, until an operator has it sent."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from maestro.domain.jobs.replay import ReplayMode
from maestro.store.replays import preview_replay
from tests.support.four_platforms import OnTelegram
from tests.support.instance import Instance, Row, running_instance, until
from tests.support.telegram_server import Fault, TelegramServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("held")]


@dataclass
class Held:
    """A Maestro that holds what nobody can settle, and a person on Telegram."""

    maestro: Instance
    place: OnTelegram

    async def ended(self, status: str) -> Row:
        """Return the one job when it stands like this."""
        [job] = await self.maestro.until("SELECT * FROM queue WHERE status = ?", status)
        return job

    def deliveries(self) -> list[tuple[str, int]]:
        """Return the state of each chunk and how often it was repeated."""
        return [(row["state"], row["repeats"]) for row in self.maestro.query("SELECT * FROM deliveries")]


@pytest_asyncio.fixture(loop_scope="module")
async def held(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Held]:
    async with TelegramServer.running() as telegram:
        place = OnTelegram(telegram)
        async with running_instance(
            tmp_path_factory.mktemp("held"),
            agents=[{"slug": "chief", "role": "conductor"}],
            connectors={"telegram": {**place.options, "onAmbiguous": "hold"}},
        ) as maestro:
            yield Held(maestro, place)


async def test_what_was_held_is_sent_when_an_operator_resumes_its_job(held: Held) -> None:
    """It is marked, since it may be there twice, and no model is asked again."""
    held.place.server.fail("sendMessage", Fault.cut_before())
    await held.place.say("please")
    job = await held.ended("completed")
    assert (held.deliveries(), held.place.texts()) == ([("unconfirmed", 0)], [])
    with held.maestro.operator() as operator:
        with operator.store.view() as tx:
            plan = preview_replay(tx, job["id"], ReplayMode.RESUME)
        assert (plan.possible, plan.step, plan.model_calls) == (True, "deliver", 0)
        assert [(effect.text, effect.again) for effect in plan.effects] == [
            ("unconfirmed parts are sent again, although the platform may have them", True)
        ]
        await operator.jobs.replay(job["id"], ReplayMode.RESUME, "ada")
    await until(lambda: held.place.texts() == ["answer to: please"])
    job = await held.ended("completed")
    assert (held.deliveries(), job["run"], len(held.maestro.llm.matching("please"))) == ([("sent", 1)], 2, 1)
    with held.maestro.operator() as operator, operator.store.view() as tx:
        assert not preview_replay(tx, job["id"], ReplayMode.RESUME).possible
