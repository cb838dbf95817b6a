"""What is measured of a peer: the same messages, one trial after another, ending with a kill in the middle of calls."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from benchmarks.figures import Spread
from benchmarks.model import Model
from benchmarks.peers.peer import LOOK_SECONDS, Peer, Running, Talk, Unanswered, keys_of, open_client

PEOPLE = 20
EACH = 10
CONVERSATIONS = 3
CONVERSATION = 10
THINKS = 0.1
"""Seconds that the model takes while one user talks to it."""
QUICK = 10
APART = 0.05
"""Seconds between two quick messages."""
SLOWEST = 1.0
"""Seconds that the model takes for the first of the quick messages; it takes less for each later one."""
SILENT, AGAIN = 10, 10
"""The users whose messages are in calls when the peer is killed: some wait, others send them again."""
CALL = 8.0
"""Seconds of a call in which the peer is killed."""
IN_CALL_WITHIN = 6.0
"""Seconds after which the peer is killed, even if it has not called the model for all questions."""
ANSWERED_WITHIN = 60.0
"""Seconds after the restart: more than the 30 s after which Temporal repeats the activity of the naive flow."""
SETTLES = 5.0
"""Seconds in which a second answer may come."""
MS = 1000

Values = dict[str, float]


async def measure(peer: Peer, model: Model) -> Values:
    """Run all trials."""
    async with open_client(model.url.removesuffix("/v1")) as server:
        log = ModelLog(server)
        started, load = time.perf_counter(), os.getloadavg()[0]
        async with peer.running() as running:
            values = {"load": load, "ready": time.perf_counter() - started}
            values |= await _performance(running, log)
            values |= await _order(running, log)
            talks = await _in_calls(running, log)
            running.kill()
            killed = time.perf_counter()
        async with peer.running():
            return values | await _after_kill(talks, killed)


class ModelLog:
    """The model server's script and its log of requests."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def answer_after(self, *delays: tuple[str, float]) -> None:
        """Forget earlier requests; from now on answers repeat the question, after the delay of their key's text."""
        (await self._http.post("/_reset")).raise_for_status()
        for match, delay in delays:
            (await self._http.post("/_script", json={"match": match, "delay": delay})).raise_for_status()

    async def list_questions(self, outcome: str) -> set[str]:
        """Return the keys of the questions whose calls have an outcome."""
        calls = (await self._http.get("/_requests")).raise_for_status().json()
        found = (keys_of(one["last_user"]) for one in calls if one["outcome"] == outcome)
        return {key for keys in found for key in keys}


async def _performance(running: Running, model: ModelLog) -> Values:
    await model.answer_after(("", 0))
    async with _talks(running, "warm", 1) as [talk]:
        await talk.ask("warm-first")
        await asyncio.sleep(SETTLES)
        values = {"idle": running.memory()}
    await model.answer_after(("", THINKS))
    alone: list[float] = []
    async with _talks(running, "alone", CONVERSATIONS) as talks:
        for number, talk in enumerate(talks):
            alone += [await talk.ask(f"alone-{number}-{line}") - THINKS for line in range(CONVERSATION)]
    await model.answer_after(("", 0))
    async with _talks(running, "crowd", PEOPLE) as talks:
        started, used = time.perf_counter(), running.cpu_seconds()
        unanswered = sum(await asyncio.gather(*(_talk(talk, EACH) for talk in talks)))
        seconds, used = time.perf_counter() - started, running.cpu_seconds() - used
    answers, spread = PEOPLE * EACH - unanswered, Spread.of(alone)
    return values | {
        "p50": spread.p50 * MS,
        "p95": spread.p95 * MS,
        "rate": answers / seconds,
        "cpu": used / max(1, answers) * MS,
        "unanswered": unanswered,
        "loaded": running.memory(),
    }


async def _talk(talk: Talk, count: int) -> int:
    """Ask so many questions, one after another; return how many were not answered."""
    unanswered = 0
    for number in range(count):
        try:
            await talk.ask(f"{talk.name}-{number}")
        except Unanswered:
            unanswered += 1
    return unanswered


async def _order(running: Running, model: ModelLog) -> Values:
    """Send messages without waiting for their answers, to a model that answers later ones faster."""
    keys = [f"quick-{number}" for number in range(QUICK)]
    delays = [(f"{key}:", SLOWEST * (QUICK - number) / QUICK) for number, key in enumerate(keys)]
    await model.answer_after(("", 0), *delays)
    async with _talks(running, "quick", 1) as [talk]:
        for key in keys:
            await talk.send(key)
            await asyncio.sleep(APART)
        await talk.until(lambda: len(talk.answered_at) >= QUICK, SETTLES + QUICK * SLOWEST)
        came = [keys.index(key) for text in talk.answers for key in keys_of(text)]
    in_order = all(one < other for one, other in itertools.pairwise(came))
    return {"quick": len(talk.answers), "covered": len(set(came)), "in_order": float(in_order)}


async def _in_calls(running: Running, model: ModelLog) -> list[Talk]:
    """Have users ask, and return when their questions are in calls; raises ``TimeoutError`` if none is."""
    await model.answer_after(("", CALL))
    talks = [await running.open_talk(f"killed-{number}") for number in range(SILENT + AGAIN)]
    await asyncio.gather(*(talk.send(f"{talk.name}-0") for talk in talks))
    for _ in range(round(IN_CALL_WITHIN / LOOK_SECONDS)):
        called = await model.list_questions("in flight")
        if len(called) == len(talks):
            break
        await asyncio.sleep(LOOK_SECONDS)
    if not called:
        raise TimeoutError("it did not call the model")
    return talks


async def _after_kill(talks: Sequence[Talk], killed: float) -> Values:
    """See what becomes of the questions after the restart."""
    silent, again = talks[:SILENT], talks[SILENT:]
    try:
        await asyncio.gather(*(talk.reconnect() for talk in talks))
        await asyncio.gather(*(talk.send(f"{talk.name}-0") for talk in again))
        waits = (talk.until(lambda one=talk: bool(one.answers), ANSWERED_WITHIN) for talk in talks)  # type: ignore[misc]
        await asyncio.gather(*waits)
        await asyncio.sleep(SETTLES)
    finally:
        await asyncio.gather(*(talk.close() for talk in talks))
    took = [at - killed for talk in silent for at in talk.answered_at.values()]
    return {
        "silent": sum(bool(talk.answers) for talk in silent),
        "offers": sum(bool(talk.offers) for talk in silent),
        "again": sum(bool(talk.answers) for talk in again),
        "twice": sum(len(talk.answers) > 1 for talk in talks),
        **({"took": Spread.of(took).p50} if took else {}),
    }


@asynccontextmanager
async def _talks(running: Running, name: str, count: int) -> AsyncIterator[list[Talk]]:
    """Open conversations, until the block ends."""
    talks = [await running.open_talk(f"{name}-{number}") for number in range(count)]
    try:
        yield talks
    finally:
        await asyncio.gather(*(talk.close() for talk in talks))
