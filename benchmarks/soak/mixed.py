"""One hour of mixed load on one Maestro; memory, descriptors, threads, store and latency are sampled."""

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.clients import ANSWER_TIMEOUT, connect_users
from benchmarks.figures import Spread, median
from benchmarks.model import Model
from benchmarks.processes import MIB
from benchmarks.product import Product, create_setting, up
from benchmarks.progress import ProgressBar
from benchmarks.results import Figure, Section, at_most, figure
from tests.support.hooks import new_webhook, signature

USERS = 10
PAUSE = 2.0
"""Seconds between an answer and the next question of a user."""
CONVERSATION = 12
"""Questions of a conversation; the last one is delegated, and then the user connects again, to a new conversation."""
MODEL_SECONDS = 0.3
BESIDE = 5.0
"""Seconds between two webhooks, two posts in the agents' chat, and two requests to the API."""
SAMPLES = 60
LEAST_MINUTES = 0.5
LEAST_SAMPLES = 8
"""Samples for which the warm-up and the thirds after it have at least two each."""
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


class TooFewSamplesError(Exception):
    """Raised when a run was too short for its figures."""


@dataclass(frozen=True)
class Sample:
    """The resources of Maestro and its Temporal server, and the latency since the last sample without model calls."""

    minutes: float
    messages: int
    maestro_mib: float
    server_mib: float
    descriptors: int
    threads: int
    store_bytes: int
    server_descriptors: int
    server_threads: int
    server_store_bytes: int
    p50_ms: float
    p95_ms: float
    load: float
    """The load average of the machine, which explains answers that take longer."""


@dataclass
class _Load:
    """The actions of users and programs, until the time is over."""

    product: Product
    until: float
    waits: list[float] = field(default_factory=list)
    messages: int = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    async def run(self) -> None:
        """Run all users and programs concurrently."""
        api = f"http://localhost:{self.product.setting.options['webui']['port']}"
        async with (
            httpx.AsyncClient(base_url=api, trust_env=False, timeout=ANSWER_TIMEOUT) as http,
            asyncio.TaskGroup() as all_,
        ):
            for number in range(USERS):
                all_.create_task(self._talk(number))
            all_.create_task(self._use_api(http))

    async def _talk(self, number: int) -> None:
        dice = random.Random(number)  # noqa: S311 - the same mix in every run
        for conversation in itertools.count():
            async with connect_users(self.product.web_port, 1, f"user-{number}-{conversation}") as [user]:
                for left in reversed(range(CONVERSATION)):
                    if self.is_over:
                        return
                    await asyncio.sleep(dice.uniform(0, 2 * PAUSE))
                    kind = dice.choice(KINDS) if left else "delegate"
                    calls = 2 if kind == "reckon" else 1
                    self.waits.append(await user.ask(kind) - calls * MODEL_SECONDS)
                    self.messages += 1
                await user.wait_for_answer(time.perf_counter())  # the answer of the other agent follows

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
    """Put load on a Maestro for so many minutes; return the changes after the warm-up, and all samples.

    Raises ``TooFewSamplesError``.
    """
    setting = create_setting(folder / "soak", model, agents=list(AGENTS), tools={"default": ["calculate"]})
    async with _scripted(model) as http, up(setting) as product:
        load = _Load(product, time.monotonic() + minutes * 60)
        working = asyncio.create_task(load.run())
        samples: list[Sample] = []
        bar = ProgressBar(minutes, "minutes")
        try:
            while not working.done():
                await asyncio.wait({working}, timeout=minutes * 60 / SAMPLES)
                if load.waits:
                    samples.append(_sample(product, load, minutes))
                    bar.show(min(minutes, samples[-1].minutes), f"{load.messages} messages")
                    await _script(http)  # the model server forgets its log of requests
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
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
        store_bytes=_size(product, "maestro.db*"),
        server_descriptors=server.num_fds(),
        server_threads=server.num_threads(),
        server_store_bytes=_size(product, "temporal.db*"),
        p50_ms=waits.p50 * 1000,
        p95_ms=waits.p95 * 1000,
        load=os.getloadavg()[0],
    )


def _size(product: Product, pattern: str) -> int:
    return sum(file.stat().st_size for file in product.setting.data.glob(pattern))


def judge(samples: Sequence[Sample], minutes: float) -> Section:
    """Return the figures of a run with their targets; raises ``TooFewSamplesError``."""
    if len(samples) < LEAST_SAMPLES:
        raise TooFewSamplesError(f"{len(samples)} samples with answers; at least {LEAST_SAMPLES}: run for longer")
    judged = samples[round(len(samples) * WARM_UP) :]
    return Section(
        "soak",
        f"Mixed load for {minutes:g} minutes",
        f"{USERS} users with {PAUSE:g} s between an answer and the next question, {CONVERSATION} questions to a "
        "conversation, of which a fifth call a tool and the last is delegated; every "
        f"{BESIDE:g} s a webhook, a post in the agents' chat and two requests to the API; a cron every minute. The "
        f"model takes {MODEL_SECONDS:g} s. The first {WARM_UP:.0%} of the time is not judged; of the rest, the last "
        "third is compared with the first, by medians. The growth of a store for each message, with all its rows, is "
        "compared between both halves. The Temporal server's store is its file in the data folder.",
        (
            figure("messages", "", samples[-1].messages),
            *_resource_figures(judged),
            *_store_figures("store", "store_bytes", judged),
            *_store_figures("Temporal server's store", "server_store_bytes", judged),
            *(
                one
                for name, field_name in (("p50", "p50_ms"), ("p95", "p95_ms"))
                for one in _latency_figures(f"an answer beyond its model calls, {name}", field_name, judged)
            ),
        ),
    )


RESOURCES = (
    ("memory of Maestro: RSS", "MiB", "maestro_mib", 10),
    ("memory of its Temporal server: RSS", "MiB", "server_mib", None),
    ("open descriptors", "", "descriptors", 10),
    ("open descriptors of its Temporal server", "", "server_descriptors", 10),
    ("threads", "", "threads", 10),
    ("threads of its Temporal server", "", "server_threads", None),
)
"""The name of a resource, its unit, its field of a sample, and the limit of its change in percent."""


def _resource_figures(judged: Sequence[Sample]) -> Iterator[Figure]:
    first, last = _thirds(judged)
    load = [median([one.load for one in third]) for third in (first, last)]
    yield figure("load average of the machine, first and last third", "", load)
    for name, unit, field_name, limit in RESOURCES:
        yield figure(f"{name}, change", "%", _change(judged, field_name), at_most(limit) if limit else None)
        yield figure(f"{name}, at the end", unit, getattr(judged[-1], field_name))


def _latency_figures(name: str, field_name: str, judged: Sequence[Sample]) -> Iterator[Figure]:
    yield figure(name, "ms", median([getattr(one, field_name) for one in judged]))
    yield figure(f"{name}, change", "%", _change(judged, field_name), at_most(20))


def _store_figures(name: str, field_name: str, judged: Sequence[Sample]) -> Iterator[Figure]:
    """Yield the growth of a store for each message in both halves, and its change; raises ``TooFewSamplesError``."""
    middle = judged[len(judged) // 2]
    early, late = (
        (getattr(end, field_name) - getattr(begin, field_name)) / max(1, end.messages - begin.messages) / 1024
        for begin, end in ((judged[0], middle), (middle, judged[-1]))
    )
    if early <= 0:
        raise TooFewSamplesError(f"the {name} did not grow in the first half: run for longer")
    yield figure(f"{name} for each message, first half", "KiB", early)
    yield figure(f"{name} for each message, second half", "KiB", late)
    yield figure(f"{name} for each message, change", "%", (late / early - 1) * 100, at_most(10))


def _thirds(judged: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the first and the last third."""
    third = len(judged) // 3
    return judged[:third], judged[-third:]


def _change(judged: Sequence[Sample], field_name: str) -> float:
    """Return the change in percent from the first third to the last, by medians."""
    before, after = (median([getattr(one, field_name) for one in third]) for third in _thirds(judged))
    return (after / before - 1) * 100
