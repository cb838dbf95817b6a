"""One worker of the model: the parts of Maestro between a message and its answer, composed in one process."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from activities.chunks import ChunkQueue
from activities.closing import ClosingActivities
from activities.context import ContextActivities, ModelRules
from activities.conversations import ConversationActivities, PreparationActivities, TagActivities
from activities.delivery import DeliveryActivities
from activities.model_calls import AnsweringActivities, LLMActivities
from activities.routing import RoutingActivities
from activities.tags import ActingRules
from connectors.base import Idempotency
from connectors.hub import ConnectorHub, TypingIndicators
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.cluster import Lease
from maestro.domain.jobs.job import JobRef
from maestro.domain.jobs.steps import RetryRules
from maestro.domain.messages import Address, ReceiptReport, ReceiptState
from maestro.domain.redaction import keep_text
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.domain.settings.llm import BudgetSettings
from maestro.intake.messages import Intake, IntakeRules
from maestro.llm.accounts import AccountBook, Estimates
from maestro.llm.middleware.recorder import Recorder
from maestro.llm.middleware.replay import FOLDER, AnswerSpool, CallReader, ReplayGuard
from maestro.llm.middleware.request_changes import ChatFeed, RequestChanges, advance_chat_cursor
from maestro.store.files import MediaFolder
from maestro.tools.registry import ToolRegistry
from temporal.dispatcher import Dispatcher, Queues, RunSettings
from temporal.journal import Journal, StepJournal
from temporal.reconciler import Reconciler
from tests.promise.outside import (
    CallsUnderWay,
    ModelClient,
    Platform,
    PlatformConnector,
    Provider,
    SearchingConnector,
    UserMessage,
)
from tests.promise.process import PausingStore, Process
from tests.promise.temporal import CURRENT_ATTEMPT, SimulatedTemporal
from tests.support.answer_spool import NO_ACTIVITY
from tests.support.doors import EVERYBODY, open_access

RETRIES = RetryRules(
    provider_attempts=100, provider_base=1, platform_attempts=100, platform_base=1.0, own_attempts=100, crashes=100
)
"""So many attempts that no history of faults makes a job fail."""
INTAKE = IntakeRules(1_000, EVERYBODY)
WINDOW = 200_000
CONNECTOR_QUEUE, MODEL_QUEUE = "connector", "llm"


class NoTyping(TypingIndicators):
    """Typing indicators that every process claims to show, so that no workflow asks another process for them."""

    def __init__(self) -> None:
        """Need no event loop."""

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        return True

    def stop_indicator(self, job_id: str) -> None:
        return None


@dataclass
class ProcessLeases:
    """Tells a dispatcher which processes live; nothing in the model needs a lease."""

    owner: str
    is_alive: Callable[[str], bool]

    def lease(self, name: str) -> Lease:
        raise NotImplementedError(name)

    def find_gone(self, owners: Collection[str]) -> frozenset[str]:
        return frozenset(owner for owner in owners if not self.is_alive(owner))

    def find_problem(self) -> str:
        return ""

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class Surroundings:
    """What all workers of a history share; ``separate`` says whether connector and model calls have own queues."""

    temporal: SimulatedTemporal
    calls: CallsUnderWay
    platform: Platform
    provider: Provider
    separate: bool
    is_alive: Callable[[str], bool]

    @property
    def run_settings(self) -> RunSettings:
        """The queues and timeouts of workflows; the names of the queues are those of ``SimulatedWorker.queues``."""
        own = {"llm_queue": MODEL_QUEUE, "connector_queue": CONNECTOR_QUEUE} if self.separate else {}
        defaults = JobRef(
            job_id="", run=1, heartbeat_seconds=30, model_seconds=120, tool_seconds=60, tool_rounds=5, grouped=True
        )
        queues = Queues("", own.get("llm_queue", ""), own.get("connector_queue", ""))
        return RunSettings(queues=queues, look=0.2, background=5, defaults=defaults)


class SimulatedWorker:
    """The parts of Maestro in one process; ``runs_connector`` says whether it is the one that may send."""

    def __init__(
        self, process: Process, store: PausingStore, around: Surroundings, folder: Path, *, runs_connector: bool
    ) -> None:
        self.process = process
        self.store = store
        self.runs_connector = runs_connector
        self._around = around
        # The queue of the connector has the account in its name; see ``Queues.connector_queue``.
        own = {"", MODEL_QUEUE} if around.separate else {""}
        if runs_connector and around.separate:
            own.add(f"{CONNECTOR_QUEUE}-web-default")
        self.queues = frozenset(own)
        self._scope = ExitStack()
        self._steps = self._build_steps(folder)
        process.loop.call_soon(self._open_dispatcher)

    def find_step(self, activity: Callable[..., Any]) -> Callable[[Any], Any]:
        """Return the step of this process for an activity, wrapped by the journal."""
        return self._steps[activity.__name__]

    async def receive(self, delivered: UserMessage) -> None:
        """Accept a message from the platform, as connectors do: durable first, then acknowledged."""
        await asyncio.to_thread(self.intake.accept_message, delivered.message)
        delivered.acknowledged = True

    async def start_jobs(self) -> None:
        """Claim jobs and start their workflows."""
        claimed = await asyncio.to_thread(self.dispatcher._claim_jobs)
        if claimed:
            await self.dispatcher._start_workflows(cast("Any", self._around.temporal), claimed)

    async def reconcile(self) -> None:
        """Compare the running jobs with their workflows."""
        await self.reconciler.reconcile_jobs(cast("Any", self._around.temporal))

    async def record_report(self, address: Address, key: str, message_id: str) -> None:
        """Record a receipt that the platform reports late."""
        report = ReceiptReport(platform_message_id=message_id, standing=ReceiptState.SENT)
        await asyncio.to_thread(self.store.write, lambda tx: tx.deliveries.reports.apply_report(address, key, report))

    def _open_dispatcher(self) -> None:
        leases = ProcessLeases(self.process.name, self._around.is_alive)
        self.dispatcher = Dispatcher(self.store, lambda: self._around.run_settings, lambda _: None, leases)
        self.intake = Intake(self.store, lambda: INTAKE, lambda: None, self.dispatcher)
        self.reconciler = Reconciler(self.store, lambda: 60.0, lambda: None)
        self._begin = self.process.loop.create_task(self._release_old_claims())

    async def _release_old_claims(self) -> None:
        await asyncio.to_thread(self.dispatcher._release_claims_of_ended)
        self.dispatcher._client = cast("Any", self._around.temporal)

    def _build_steps(self, folder: Path) -> dict[str, Callable[[Any], Any]]:
        store, typing = self.store, NoTyping()
        journal = Journal(store, lambda: RETRIES, CURRENT_ATTEMPT.get)
        llm = LLMActivities(store, self._build_chain(folder), typing, _model_rules)
        acting = ActingRules(MemoryScope.AGENT, frozenset())
        tags = TagActivities(store, lambda: acting, lambda: None)
        delivery = self._build_delivery(typing, folder)
        routing = RoutingActivities(store, typing, open_access)
        recording = ConversationActivities(store, lambda _: WINDOW)
        context = ContextActivities(store, _model_rules)
        closing = ClosingActivities(store, typing, lambda: None, ScheduleSettings)
        steps = (
            PreparationActivities(journal, routing, recording, context).prepare,
            tags.record_answer,
            closing.park_job,
            closing.close_job,
            AnsweringActivities(journal, llm, tags, delivery).answer,
            delivery.deliver,
        )
        wrap = StepJournal(journal).wrap_activity
        return {step.__name__: wrap(step) for step in steps}

    def _build_delivery(self, typing: TypingIndicators, folder: Path) -> DeliveryActivities:
        hub, around = ConnectorHub(), self._around
        searches = around.platform.idempotency is Idempotency.RECONCILE
        connector = (SearchingConnector if searches else PlatformConnector)(around.calls, around.platform, self.process)
        if self.runs_connector:
            self._scope.enter_context(hub.register_while_running(connector))
        files = ChunkQueue(MediaFolder(folder))
        return DeliveryActivities(self.store, hub, typing, lambda: None, lambda: keep_text, files, connector)

    def _build_chain(self, folder: Path) -> ReplayGuard:
        """Return the middleware that the promise rests on, around the provider."""
        book = AccountBook(self.store, [], SecretStr, tuple)
        reader = CallReader(self.store, book, lambda: BudgetSettings(day_usd=0), chat=True)
        answers = AnswerSpool(self.store, folder / FOLDER, advance_chat_cursor, NO_ACTIVITY)
        model = ModelClient(self._around.provider, self.process)
        recorder = Recorder(model, self.store, Estimates(book, lambda _: None), answers)
        return ReplayGuard(
            RequestChanges(recorder, ChatFeed(reader, book, lambda _: WINDOW)), self.store, reader, answers
        )


@cache
def _model_rules() -> ModelRules:
    return ModelRules(lambda _: WINDOW, ToolRegistry([], []), 1_000, chat=True)
