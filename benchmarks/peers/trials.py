"""The trials of a peer: the same messages for each peer, and at the end a kill while the model works on questions."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from benchmarks.figures import Spread
from benchmarks.model import Model
from benchmarks.peers.peer import (
    POLL_SECONDS,
    Peer,
    PeerConversation,
    PeerFailure,
    PeerProcesses,
    UnansweredQuestion,
    open_client,
    question_keys,
)

USERS = 20
QUESTIONS_EACH = 10
CONVERSATIONS = 3
CONVERSATION = 10
MODEL_SECONDS = 0.1
"""Seconds of a model call while one user asks."""
QUICK_MESSAGES = 10
QUICK_PAUSE = 0.05
"""Seconds between two quick messages."""
SLOWEST_MODEL_SECONDS = 1.0
"""Seconds of the model call for the first quick message; each later one takes less."""
WAITING_USERS, RESENDING_USERS = 10, 10
"""The users with a question at the kill: some wait for its answer, others send it again."""
CALL_SECONDS = 8.0
"""Seconds of the model calls during which the peer is killed."""
CALL_TIMEOUT = 6.0
"""Seconds after which the peer is killed, even if it has not called the model for all questions."""
RESTART_TIMEOUT = 60.0
"""Seconds after the restart: more than the 30 s after which Temporal retries the activity of the naive flow."""
SETTLE_SECONDS = 5.0
"""Seconds in which a second answer may come."""
MS = 1000

Values = dict[str, float]


async def measure(peer: Peer, model: Model) -> Values:
    """Run all trials; raises ``PeerFailure``."""
    async with open_client(model.url.removesuffix("/v1")) as server, AsyncExitStack() as stack:
        log = ModelLog(server)
        started, load = time.perf_counter(), os.getloadavg()[0]
        async with peer.run() as processes:
            values = {"load": load, "ready": time.perf_counter() - started}
            values |= await _measure_performance(processes, log)
            values |= await _measure_order(processes, log)
            users = WAITING_USERS + RESENDING_USERS
            conversations = await stack.enter_async_context(_open_conversations(processes, "killed", users))
            values["in_calls"] = await _ask_until_in_calls(conversations, log)
            processes.kill()
            killed = time.perf_counter()
        async with peer.run():
            values |= await _measure_recovery(conversations, killed)
            await stack.aclose()
    return values


class ModelLog:
    """The model server's script and its log of requests."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def set_delays(self, *delays: tuple[str, float]) -> None:
        """Forget earlier requests; from now on answers repeat the question, after the delay of their key's text."""
        (await self._http.post("/_reset")).raise_for_status()
        for match, delay in delays:
            (await self._http.post("/_script", json={"match": match, "delay": delay})).raise_for_status()

    async def list_questions(self, outcome: str) -> set[str]:
        """Return the keys of the questions whose calls have an outcome."""
        calls = (await self._http.get("/_requests")).raise_for_status().json()
        found = (question_keys(one["last_user"]) for one in calls if one["outcome"] == outcome)
        return {key for keys in found for key in keys}


async def _measure_performance(processes: PeerProcesses, model: ModelLog) -> Values:
    await model.set_delays(("", 0))
    async with _open_conversations(processes, "warm", 1) as [conversation]:
        await conversation.ask("warm-first")
        await asyncio.sleep(SETTLE_SECONDS)
        values = {"idle": processes.memory()}
    await model.set_delays(("", MODEL_SECONDS))
    alone: list[float] = []
    async with _open_conversations(processes, "alone", CONVERSATIONS) as conversations:
        for number, conversation in enumerate(conversations):
            for line in range(CONVERSATION):
                alone.append(await conversation.ask(f"alone-{number}-{line}") - MODEL_SECONDS)
    await model.set_delays(("", 0))
    async with _open_conversations(processes, "crowd", USERS) as conversations:
        started, used = time.perf_counter(), processes.cpu_seconds()
        unanswered = sum(await asyncio.gather(*(_ask_in_sequence(one, QUESTIONS_EACH) for one in conversations)))
        seconds, used = time.perf_counter() - started, processes.cpu_seconds() - used
    answers, spread = USERS * QUESTIONS_EACH - unanswered, Spread.of(alone)
    return values | {
        "p50": spread.p50 * MS,
        "p95": spread.p95 * MS,
        "rate": answers / seconds,
        "cpu": used / max(1, answers) * MS,
        "unanswered": unanswered,
        "loaded": processes.memory(),
    }


async def _ask_in_sequence(conversation: PeerConversation, count: int) -> int:
    """Ask so many questions, each after the last answer; return the number of unanswered ones."""
    unanswered = 0
    for number in range(count):
        try:
            await conversation.ask(f"{conversation.name}-{number}")
        except UnansweredQuestion:
            unanswered += 1
    return unanswered


async def _measure_order(processes: PeerProcesses, model: ModelLog) -> Values:
    """Send messages without waiting for their answers, to a model that answers later ones faster."""
    keys = [f"quick-{number}" for number in range(QUICK_MESSAGES)]
    share = SLOWEST_MODEL_SECONDS / QUICK_MESSAGES
    delays = [(f"{key}:", share * (QUICK_MESSAGES - number)) for number, key in enumerate(keys)]
    await model.set_delays(("", 0), *delays)
    async with _open_conversations(processes, "quick", 1) as [conversation]:
        for key in keys:
            await conversation.send(key)
            await asyncio.sleep(QUICK_PAUSE)
        timeout = SETTLE_SECONDS + QUICK_MESSAGES * SLOWEST_MODEL_SECONDS
        await conversation.wait_until(lambda: len(conversation.answer_times) >= QUICK_MESSAGES, timeout)
        answered = [keys.index(key) for text in conversation.answers for key in question_keys(text)]
    return {
        "quick": len(conversation.answers),
        "covered": len(set(answered)),
        "in_order": float(is_in_order(answered, QUICK_MESSAGES)),
    }


def is_in_order(answered: Sequence[int], count: int) -> bool:
    """Say whether all ``count`` messages are answered, in their order; ``answered`` are their numbers from 0."""
    return len(set(answered)) == count and all(one < other for one, other in itertools.pairwise(answered))


async def _ask_until_in_calls(conversations: Sequence[PeerConversation], model: ModelLog) -> int:
    """Send a question of each user; return the number that is in a call of the model when all are, or in time.

    Raises ``PeerFailure`` if none is.
    """
    await model.set_delays(("", CALL_SECONDS))
    keys = {f"{one.name}-0" for one in conversations}
    await asyncio.gather(*(one.send(f"{one.name}-0") for one in conversations))
    deadline, called = time.monotonic() + CALL_TIMEOUT, set[str]()
    while called != keys and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        called = keys & await model.list_questions("in flight")
    if not called:
        raise PeerFailure("it did not call the model")
    return len(called)


async def _measure_recovery(conversations: Sequence[PeerConversation], killed: float) -> Values:
    """Count the answers after the restart; ``killed`` is the time of the kill."""
    waiting, resending = conversations[:WAITING_USERS], conversations[WAITING_USERS:]
    await asyncio.gather(*(one.reconnect() for one in conversations))
    await asyncio.gather(*(one.send(f"{one.name}-0") for one in resending))
    await asyncio.gather(*(_wait_for_answer(one) for one in conversations))
    await asyncio.sleep(SETTLE_SECONDS)
    seconds = [at - killed for one in waiting for at in one.answer_times.values()]
    return {
        "silent": sum(bool(one.answers) for one in waiting),
        "offers": sum(bool(one.offers) for one in waiting),
        "again": sum(bool(one.answers) for one in resending),
        "twice": sum(len(one.answers) > 1 for one in conversations),
        **({"took": Spread.of(seconds).p50} if seconds else {}),
    }


async def _wait_for_answer(conversation: PeerConversation) -> None:
    await conversation.wait_until(lambda: bool(conversation.answers), RESTART_TIMEOUT)


@asynccontextmanager
async def _open_conversations(processes: PeerProcesses, name: str, count: int) -> AsyncIterator[list[PeerConversation]]:
    """Open conversations, until the block ends."""
    conversations: list[PeerConversation] = []
    try:
        for number in range(count):
            conversations.append(await processes.open_conversation(f"{name}-{number}"))
        yield conversations
    finally:
        await asyncio.gather(*(one.close() for one in conversations))
