"""Makes model calls bare and through the whole chain, in turns, and tells what each took of its own CPU time.

``python -m benchmarks.chain_calls <maestro.json> <rounds> <calls>`` prints, as JSON, CPU milliseconds per call of each
round by the way the call took. It is a process of its own so that its clock counts nothing else: model and store's
disk are outside, all threads of the chain are in.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

from maestro.bootstrap.chain import build_chain
from maestro.bootstrap.live import LiveSettings
from maestro.bootstrap.log_lines import log_lines
from maestro.bootstrap.logs import configure_logs
from maestro.bootstrap.models import Models, account_of, build_models
from maestro.bootstrap.scope import Scope
from maestro.bootstrap.storage import open_store
from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.conversation import Message
from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.llm.prompts import CallKey, LLMRequest, PromptMessage, Role
from maestro.domain.messages import Address
from maestro.llm.chat_format import turns
from maestro.llm.middleware.stop_guard import StopWatch
from maestro.llm.protocols import Account, LLMClient
from maestro.settings import Settings, load
from maestro.store.store import Store
from maestro.store.transaction import Transaction

Call = Callable[[LLMRequest], Awaitable[object]]

SYSTEM = "You are a helpful assistant who answers briefly. " * 30
HISTORY = 20
"""Turns of the conversation so far."""
ADDRESS = Address(platform="web", channel="bench")
MAX_TOKENS = 4096


async def measure(settings: Settings, store: Store, rounds: int, calls: int) -> dict[str, list[float]]:
    """Take turns, so that whatever else the machine does meets all ways alike."""
    live = LiveSettings.unchanging(settings)
    models = await asyncio.to_thread(build_models, live, {}, store)
    watch = StopWatch(store, lambda: settings.jobs.stop_poll_seconds)
    whole = build_chain(models, store, Scope.built(live), watch).complete
    history = await asyncio.to_thread(talk, store)
    # Imports the library, and has the accounts looked up, without which the transport knows none.
    await whole((await asyncio.to_thread(requests_of, store, history, 1))[0])
    [account] = settings.llm.accounts
    ways = {"bare litellm": bare(account_of(account)), "the transport": transport(models), "the whole chain": whole}
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, call in ways.items():
            requests = await asyncio.to_thread(requests_of, store, history, calls)
            spent = await cpu_of(call, requests)
            if number:  # the first round warms up
                took[name].append(spent * 1000 / calls)
    await models.close()
    return took


async def cpu_of(call: Call, requests: Sequence[LLMRequest]) -> float:
    """Return the CPU seconds of this process for calls that follow each other."""
    started = time.process_time()
    for request in requests:
        await call(request)
    return time.process_time() - started


def bare(account: Account) -> Call:
    """Return a call of the library, imported before, with nothing of ours around it."""
    send = partial(
        sys.modules["litellm"].acompletion,
        model=f"openai/{account.model}",
        api_key=account.api_key.get_secret_value(),
        api_base=account.base_url,
        max_tokens=MAX_TOKENS,
        max_retries=0,
        num_retries=0,
    )

    async def call(request: LLMRequest) -> object:
        return await send(messages=turns("openai", request, [()] * len(request.messages)))

    return call


def transport(models: Models) -> Call:
    """Return a call of the end of the chain alone."""
    client: LLMClient = models.transport

    async def call(request: LLMRequest) -> object:
        return await client.complete(request.model_copy(update={"account": "local"}))

    return call


def talk(store: Store) -> tuple[PromptMessage, ...]:
    """Record a conversation that has been going on for a while, and return it."""
    said = "Take the train at eight, for the road is closed until noon and the pass will be crowded."
    with store.begin() as tx:
        agent = tx.agents.put(Agent(slug="bench", name="Bench", created_at=tx.now, updated_at=tx.now))
        conversation = tx.conversations.open(
            agent.id or 0, ADDRESS, ("u-1", "Grace"), keyed_by_user=False, closed_by=None
        )
        rows = [
            tx.conversations.add(
                Message(
                    conversation_id=conversation.id or 0,
                    role=(Role.USER, Role.ASSISTANT)[turn % 2],
                    content=f"{turn}: {said}",
                    token_estimate=30,
                    job_id=new_job(tx),
                    created_at=tx.now,
                )
            )
            for turn in range(HISTORY)
        ]
        return tuple(PromptMessage(role=row.role, content=row.content, message_id=row.id) for row in rows)


def requests_of(store: Store, history: Sequence[PromptMessage], count: int) -> list[LLMRequest]:
    """Return calls for answers, each of a job of its own that the store knows."""
    with store.begin() as tx:
        return [request_of(new_job(tx), history) for _ in range(count)]


def new_job(tx: Transaction) -> str:
    """Add a job and return its id."""
    job_id = f"message-{uuid4().hex}"
    tx.jobs.add(Job(id=job_id, kind=JobKind.MESSAGE, lane="bench", created_at=tx.now, **ADDRESS.model_dump()))
    return job_id


def request_of(job_id: str, history: Sequence[PromptMessage]) -> LLMRequest:
    """Return the call for the answer of a job."""
    system = PromptMessage(role=Role.SYSTEM, content=SYSTEM)
    question = PromptMessage(role=Role.USER, content=f"And what about {job_id}?")
    return LLMRequest(
        key=CallKey(job_id=job_id, number=1),
        agent="bench",
        role="assistant",
        platform=ADDRESS.platform,
        messages=(system, *history, question),
        max_output_tokens=MAX_TOKENS,
    )


def main(config: Path, rounds: int, calls: int) -> None:
    """Measure and tell."""
    settings = load(config, {}, {}).settings
    logs, live = settings.logs, LiveSettings.unchanging(settings)
    configure_logs(logs.level, logs.format, log_lines(live, logs.format))
    settings.data_dir.mkdir()
    store = open_store(settings)
    try:
        print(json.dumps(asyncio.run(measure(settings, store, rounds, calls))))
    finally:
        store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
