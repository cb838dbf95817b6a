"""Several people who talk to Maestro at the same time, and the promise that is kept to each of them."""

import asyncio
from contextlib import AsyncExitStack

from tests.chaos.promise import assert_answered_once, assert_in_order
from tests.support.chatting import Person, person
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer

PEOPLE = 3
SAID = 3
"""Messages of each person; they say the next one without waiting for an answer."""
MODEL = 0.4
"""Seconds of a model call: enough for a kill to meet several."""
GAP = 0.1


class Load:
    """Several people who talk at the same time."""

    def __init__(self, people: list[Person], name: str) -> None:
        self.people = people
        self.said = {somebody: [f"{somebody.channel}-{n}." for n in range(SAID)] for somebody in people}
        self.name = name

    async def talk(self) -> None:
        """Say everything, a little at a time."""
        for number in range(SAID):
            for somebody in self.people:
                await somebody.say(f"{self.said[somebody][number]} please, @helper")
            await asyncio.sleep(GAP)

    async def some_answered(self) -> None:
        """Return when each person has had an answer, and none has had all."""
        for somebody in self.people:
            await somebody.answered(self.said[somebody][0])
        assert not any(somebody.replies_to(self.said[somebody][-1]) for somebody in self.people)

    async def assert_kept(self, evidence: Evidence, llm: LLMServer) -> None:
        """Wait for the end of every job, then hold it against the promise."""
        for somebody, said in self.said.items():
            jobs = await evidence.ended(*said)
            await somebody.acknowledged(*said)
            await somebody.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
            for job, client_id in zip(jobs, said, strict=True):
                assert_answered_once(evidence, somebody, job, client_id)
                # A process may be killed after it has recorded a call and before the request leaves it.
            assert 1 <= len(llm.matching(client_id)) <= 1 + evidence.calls(job["id"])["interrupted"]
            assert_in_order(evidence, somebody, llm, said)


async def under_load(stack: AsyncExitStack, web_port: int, llm: LLMServer, name: str) -> Load:
    """Return people who talk and have had their first answers."""
    llm.reset()
    llm.script(delay=MODEL, reply="so you say: {last}")
    people = [await stack.enter_async_context(person(web_port, f"{name}-{n}")) for n in range(PEOPLE)]
    load = Load(people, name)
    await load.talk()
    await load.some_answered()
    return load
