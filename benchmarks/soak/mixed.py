"""An hour of mixed load on one Maestro, which is looked at again and again: what it has must not grow."""

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.clients import PATIENCE, people
from benchmarks.figures import Spread, median
from benchmarks.model import Model
from benchmarks.processes import MIB
from benchmarks.product import Product, settle, up
from benchmarks.progress import ProgressBar
from benchmarks.results import Section, at_most, figure
from tests.support.hooks import new_webhook, signature

USERS = 10
PAUSE = 2.0
"""Seconds between an answer and the next question of a user."""
CONVERSATION = 12
"""Questions of a conversation; the last one is delegated, and then the user connects again, to a new one."""
MODEL_SECONDS = 0.3
BESIDE = 5.0
"""Seconds between two webhooks, two posts in the agents' chat, and two looks at the API."""
SAMPLES = 60
WARM_UP = 0.25
"""The share of the time that is not judged."""
KINDS = ("question",) * 4 + ("reckon",)
TASK = "task for ada"
AGENTS = ({"slug": "conductor", "role": "conductor"}, {"slug": "ada"})
SCRIPTS: tuple[dict[str, Any], ...] = (
    {"delay": MODEL_SECONDS},
    {"match": "reckon", "calls": [["calculate", {"expression": "6*7"}]], "rounds": 0, "delay": MODEL_SECONDS},
    {"match": "delegate", "reply": f"Ada will. [DELEGATE:ada] {TASK} [/DELEGATE]", "delay": MODEL_SECONDS},
)


@dataclass(frozen=True)
class Sample:
    """What Maestro has at a moment, and how long answers took since the last sample, beyond their model calls."""

    minutes: float
    messages: int
    maestro_mib: float
    server_mib: float
    descriptors: int
    threads: int
    store_bytes: int
    p50_ms: float
    p95_ms: float
    load: float
    """The load average of the machine, which explains answers that take longer."""


@dataclass
class _Load:
    """What users and programs do until the time is over."""

    product: Product
    until: float
    waits: list[float] = field(default_factory=list)
    messages: int = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    async def run(self) -> None:
        """Do everything at once."""
        api = f"http://localhost:{self.product.setting.options['webui']['port']}"
        async with (
            httpx.AsyncClient(base_url=api, trust_env=False, timeout=PATIENCE) as http,
            asyncio.TaskGroup() as all_,
        ):
            for number in range(USERS):
                all_.create_task(self._talk(number))
            all_.create_task(self._use_api(http))

    async def _talk(self, number: int) -> None:
        dice = random.Random(number)  # noqa: S311 - the same mix in every run
        for conversation in itertools.count():
            async with people(self.product.web_port, 1, f"user-{number}-{conversation}") as [person]:
                for left in reversed(range(CONVERSATION)):
                    if self.is_over:
                        return
                    await asyncio.sleep(dice.uniform(0, 2 * PAUSE))
                    kind = dice.choice(KINDS) if left else "delegate"
                    calls = 2 if kind == "reckon" else 1
                    self.waits.append(await person.ask(kind) - calls * MODEL_SECONDS)
                    self.messages += 1
                await person.answered(time.perf_counter())  # the answer of the other agent follows

    async def _use_api(self, http: httpx.AsyncClient) -> None:
        hook = new_webhook()
        (await http.post("/api/webhooks", json=hook)).raise_for_status()
        schedule = {"kind": "cron", "agent": "ada", "name": "look", "schedule": "* * * * *", "prompt": "look around"}
        where = {"platform": "web", "channel": "schedules"}
        (await http.post("/api/schedules", json={**schedule, **where})).raise_for_status()
        for number in itertools.count():
            if self.is_over:
                return
            body = json.dumps({"build": number, "state": "green"}).encode()
            sent = await http.post("/hooks/deploys", content=body, headers=signature(body, f"delivery-{number}"))
            posted = await http.post("/api/chat", json={"text": f"build {number} is green"})
            for response in (sent, posted, await http.get("/api/jobs"), await http.get("/metrics")):
                response.raise_for_status()
            self.messages += 1
            await asyncio.sleep(BESIDE)


async def mixed_load(folder: Path, model: Model, minutes: float) -> tuple[Section, list[Sample]]:
    """Put load on a Maestro for so long; return what changed after the warm-up, and all samples."""
    setting = settle(folder / "soak", model, agents=list(AGENTS), tools={"default": ["calculate"]})
    async with _scripted(model) as http, up(setting) as product:
        load = _Load(product, time.monotonic() + minutes * 60)
        working = asyncio.create_task(load.run())
        samples: list[Sample] = []
        bar = ProgressBar(minutes, "minutes")
        while not working.done():
            await asyncio.wait({working}, timeout=minutes * 60 / SAMPLES)
            if load.waits:
                samples.append(_sample(product, load, minutes))
                bar.show(min(minutes, samples[-1].minutes), f"{load.messages} messages")
                await _script(http)  # the server forgets the requests that it noted
        await working
    return judge(samples, minutes), samples


@asynccontextmanager
async def _scripted(model: Model) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=model.url.removesuffix("/v1"), trust_env=False) as http:
        await _script(http)
        yield http


async def _script(http: httpx.AsyncClient) -> None:
    (await http.post("/_reset")).raise_for_status()
    for script in SCRIPTS:
        (await http.post("/_script", json=script)).raise_for_status()


def _sample(product: Product, load: _Load, minutes: float) -> Sample:
    process, server = psutil.Process(product.pid), psutil.Process(product.server_pid)
    waits, load.waits = Spread.of(load.waits), []
    return Sample(
        minutes=minutes - (load.until - time.monotonic()) / 60,
        messages=load.messages,
        maestro_mib=process.memory_info().rss / MIB,
        server_mib=server.memory_info().rss / MIB,
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        store_bytes=sum(file.stat().st_size for file in product.setting.data.glob("maestro.db*")),
        p50_ms=waits.p50 * 1000,
        p95_ms=waits.p95 * 1000,
        load=os.getloadavg()[0],
    )


def judge(samples: Sequence[Sample], minutes: float) -> Section:
    """Return the figures of a run, with what they must not exceed."""
    judged = samples[round(len(samples) * WARM_UP) :]
    third = max(1, len(judged) // 3)
    first, last, middle = judged[:third], judged[-third:], judged[len(judged) // 2]

    def change(name: str) -> float:
        before, after = (median([getattr(one, name) for one in some]) for some in (first, last))
        return (after / before - 1) * 100

    def per_message(begin: Sample, end: Sample) -> float:
        return (end.store_bytes - begin.store_bytes) / max(1, end.messages - begin.messages) / 1024

    early, late = per_message(judged[0], middle), per_message(middle, judged[-1])
    return Section(
        "soak",
        f"Mixed load for {minutes:g} minutes",
        f"{USERS} users with {PAUSE:g} s between an answer and the next question, {CONVERSATION} questions to a "
        "conversation, of which a fifth call a tool and the last is delegated; every "
        f"{BESIDE:g} s a webhook, a post in the agents' chat and two requests to the API; a cron every minute. The "
        f"model takes {MODEL_SECONDS:g} s. The first {WARM_UP:.0%} of the time is not judged; of the rest, the last "
        "third is compared with the first, by medians. The size of the store is that of a message with all that "
        "belongs to it, in both halves.",
        (
            figure("messages", "", samples[-1].messages),
            figure("load average of the machine, first and last third", "", [_load(first), _load(last)]),
            figure("memory of Maestro, change", "%", change("maestro_mib"), at_most(10)),
            figure("memory of Maestro at the end: RSS", "MiB", samples[-1].maestro_mib),
            figure("memory of its Temporal server, change", "%", change("server_mib")),
            figure("memory of its Temporal server at the end: RSS", "MiB", samples[-1].server_mib),
            figure("open descriptors, change", "%", change("descriptors"), at_most(10)),
            figure("open descriptors at the end", "", samples[-1].descriptors),
            figure("threads, change", "%", change("threads"), at_most(10)),
            figure("threads at the end", "", samples[-1].threads),
            figure("store for each message, first half", "KiB", early),
            figure("store for each message, second half", "KiB", late),
            figure("store for each message, change", "%", (late / early - 1) * 100, at_most(10)),
            figure("an answer beyond its model calls, p50", "ms", median([one.p50_ms for one in judged])),
            figure("an answer beyond its model calls, p50, change", "%", change("p50_ms"), at_most(20)),
            figure("an answer beyond its model calls, p95", "ms", median([one.p95_ms for one in judged])),
            figure("an answer beyond its model calls, p95, change", "%", change("p95_ms"), at_most(20)),
        ),
    )


def _load(samples: Sequence[Sample]) -> float:
    return median([one.load for one in samples])
