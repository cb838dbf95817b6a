"""Builds the steps of jobs, the workers that run them, and the operations on jobs.

See docs/architecture.md: processes and queues.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from activities.chunks import ChunkQueue
from activities.closing import ClosingActivities
from activities.compaction import CompactionActivities
from activities.context import ContextActivities, ModelRules
from activities.conversations import ConversationActivities, PreparationActivities, TagActivities, WhatIfActivities
from activities.delivery import DeliveryActivities
from activities.media import MediaActivities, VoiceActivities
from activities.model_calls import AnsweringActivities, LLMActivities
from activities.questions import AskingRules
from activities.routing import RoutingActivities, TypingActivities
from activities.schedules import ScheduleActivities, ScriptActivities
from activities.tags import ActingRules
from activities.tools import ToolActivities, ToolRules
from connectors.base import Connector
from connectors.hub import ConnectorHub, TypingIndicators
from maestro.bootstrap.models import Models, build_chain
from maestro.bootstrap.tools import build_redaction
from maestro.connector_runtime.host import is_job_open
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.jobs.job import JobRef
from maestro.domain.jobs.steps import RetryRules
from maestro.domain.people.people import AccessRules, DmPolicy
from maestro.domain.redaction import TextKind, keep_text
from maestro.installation.data_folder import SecretKeys, open_keys
from maestro.installation.storage import open_files
from maestro.intake import IntakeRules
from maestro.intake.access import AccessControl
from maestro.intake.webhooks import WebhookIntake
from maestro.llm.middleware.limits import StopMonitor
from maestro.llm.transcriber import Transcriber
from maestro.operations.background import ScheduleOperations
from maestro.operations.jobs import JobLinks, JobOperations
from maestro.settings import Settings, read_environment
from maestro.settings.addresses import dashboard_url, temporal_endpoint, temporal_ui_url
from maestro.settings.live import LiveSettings, RedactionScope
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from maestro.streaming import DraftStreamer
from maestro.tools.registry import ToolRegistry
from temporal.attempts import Observe
from temporal.client import connect_within
from temporal.dispatcher import Queues, RunSettings
from temporal.engine import Engine, Interceptors, WorkerParts
from temporal.journal import Journal, StepJournal, temporal_attempt
from temporal.replays import BatchWork, ClientSource, workflow_interrupter
from temporal.versions import Versions

Steps = list[Callable[..., Any]]

CONNECT_SECONDS = 3.0


@dataclass(frozen=True)
class FlowParts:
    """The dependencies of the steps, the same for all task queues."""

    store: Store
    scope: RedactionScope
    files: MediaFolder
    hub: ConnectorHub
    typing: TypingIndicators
    drafts: DraftStreamer
    released: Callable[[], None]
    journal: Journal
    interceptors: Interceptors


def flow_parts(
    store: Store, live: LiveSettings, released: Callable[[], None], observe: Observe, scan_failed: Callable[[], None]
) -> FlowParts:
    """Return the dependencies of the steps that this process runs.

    ``released`` is called when a lane (queue of jobs) is free, ``observe`` when an attempt at a step has ended,
    ``scan_failed`` when a text could not be searched for secrets.
    """
    files = open_files(live.start)
    hub = ConnectorHub(files.fetch)
    journal = Journal(store, live.of(retry_rules), temporal_attempt, observe)
    return FlowParts(
        store=store,
        scope=build_redaction(live, scan_failed),
        files=files,
        hub=hub,
        typing=TypingIndicators(hub, asyncio.get_running_loop(), partial(is_job_open, store)),
        drafts=DraftStreamer(store, hub),
        released=released,
        journal=journal,
        interceptors=(StepJournal(journal),),
    )


@dataclass(frozen=True)
class ModelParts:
    """The dependencies of model calls: the models, and the tools that they may call."""

    models: Models
    tools: ToolRegistry


def worker_parts(flow: FlowParts, live: LiveSettings, parts: ModelParts) -> list[WorkerParts]:
    """Return the parts of each worker in a process that calls models; with an embedded Temporal, of one worker.

    The worker that calls models polls only after the library for model calls is imported.
    """
    settings = live.start
    names = task_queue_names(settings)
    tags = TagActivities(flow.store, live.of(partial(acting_rules, flow.scope)), flow.released)
    local, calls = _local_steps(flow, live, parts, tags), _model_steps(flow, live, parts, tags)
    imported = parts.models.library.wait_for_import
    if not names.llm:
        everything = _worker_on(flow, settings, names.main, [*local, *calls, *_connector_steps(flow)])
        return [replace(everything, ready=imported)]
    calling = replace(_worker_on(flow, settings, names.llm, calls, workflows=False), ready=imported, versioned=True)
    workers = [replace(_worker_on(flow, settings, names.main, local), versioned=True), calling]
    if names.tools and settings.tools.here:
        # Without a version, as the queues of connectors: the host's worker serves the jobs of every release.
        workers.append(_worker_on(flow, settings, names.tools, _tool_steps(flow, live, parts), workflows=False))
    return workers


def connector_parts(flow: FlowParts, settings: Settings, connector: Connector) -> WorkerParts:
    """Return the parts of the worker for the steps that only the process of this connector can run."""
    queue = task_queue_names(settings).connector_queue(connector.platform, connector.account)
    return _worker_on(flow, settings, queue, _connector_steps(flow), workflows=False)


def task_queue_names(settings: Settings) -> Queues:
    """Return the names of the task queues, one if Temporal is embedded (docs/architecture.md: processes and queues)."""
    temporal = settings.temporal
    if temporal.embedded:
        return Queues(temporal.task_queue)
    return Queues(temporal.task_queue, temporal.llm_queue, temporal.connector_queue, temporal.tools_queue)


def retry_rules(settings: Settings) -> RetryRules:
    """Return how often a failed step is tried again (docs/decisions.md: retry)."""
    return RetryRules(
        provider_attempts=settings.jobs.max_attempts,
        provider_base=settings.jobs.backoff_base_minutes * 60,
        platform_attempts=10,
        platform_base=1.0,
        own_attempts=5,
        crashes=settings.jobs.crash_limit,
    )


def build_versions(settings: Settings, report: Callable[[str], None], *, promote: bool) -> Versions | None:
    """Return the worker versions of a process with workflows; None beside an embedded server.

    There an upgrade is a restart of the only worker, and the workflows of another version would have none.
    """
    if settings.temporal.embedded:
        return None
    return Versions(task_queue_names(settings).main, report, promote=promote)


def run_settings(settings: Settings) -> RunSettings:
    """Return the queues, intervals, timeouts and limits of workflows and the dispatcher."""
    return RunSettings(
        queues=task_queue_names(settings),
        look=settings.jobs.dispatch_seconds,
        background=settings.jobs.background_concurrency,
        codec_key=settings.temporal.codec.first_id,
        defaults=JobRef(
            job_id="",
            run=1,
            heartbeat_seconds=settings.temporal.heartbeat.total_seconds(),
            model_seconds=settings.llm.total_timeout_seconds,
            tool_seconds=settings.tools.timeout_seconds,
            tool_rounds=settings.jobs.max_tool_rounds,
            fair=settings.jobs.fairness,
            dashboard=dashboard_url(settings),
            grouped=True,
        ),
    )


def acting_rules(scope: RedactionScope, settings: Settings) -> ActingRules:
    """Return the rules by which the tags (marked passages) of an answer take effect."""
    return ActingRules(
        memory_scope=_memory_scope(settings),
        may_conduct=frozenset(settings.conductor.allow_users),
        redact=scope.redaction_function(TextKind.MEMORY, settings),
        shortest=settings.schedules.shortest,
        asking=_asking_rules(settings, approvers=settings.conductor.allow_users)
        if settings.conductor.approve_after_reading
        else None,
    )


def _asking_rules(settings: Settings, approvers: tuple[str, ...]) -> AskingRules:
    expiry = timedelta(hours=settings.questions.expiry_hours)
    return AskingRules(expiry, frozenset(settings.tools.approval), approvers)


def _local_steps(flow: FlowParts, live: LiveSettings, parts: ModelParts, tags: TagActivities) -> Steps:
    window = parts.models.table.context_window
    schedule_settings = live.of(lambda settings: settings.schedules)
    schedules = ScheduleActivities(flow.store, schedule_settings, live.of(lambda settings: settings.jobs))
    what_if = WhatIfActivities(flow.store, live.of(access_control))
    routing = RoutingActivities(flow.store, flow.typing, live.of(access_control))
    conversations = ConversationActivities(flow.store, window)
    context = ContextActivities(flow.store, live.of(partial(_model_rules, flow.scope, parts)))
    closing = ClosingActivities(flow.store, flow.typing, flow.released, schedule_settings)
    return [
        PreparationActivities(flow.journal, routing, conversations, context).prepare,
        routing.choose_agent,
        conversations.record_message,
        context.build_context,
        tags.record_answer,
        routing.take_up,
        closing.park_job,
        schedules.enter,
        schedules.take_on,
        what_if.choose_for_show,
        what_if.show_answer,
        closing.close_job,
    ]


def _model_steps(flow: FlowParts, live: LiveSettings, parts: ModelParts, tags: TagActivities) -> Steps:
    watch = StopMonitor(flow.store, lambda: live.current().jobs.stop_poll_seconds)
    llm = build_chain(parts.models, flow.store, flow.scope, watch)
    models = parts.models
    transcriber = Transcriber(models.book, models.library, live.of(lambda settings: settings.llm.transcription))
    rules = live.of(partial(_model_rules, flow.scope, parts))
    asking = LLMActivities(flow.store, llm, flow.typing, rules)
    return [
        AnsweringActivities(flow.journal, asking, tags, _delivery_activities(flow)).answer,
        asking.call_model,
        CompactionActivities(flow.store, llm, rules).compact_conversation,
        VoiceActivities(flow.store, flow.files, transcriber, watch).transcribe,
        # Also where tool calls have a queue of their own: jobs that began before it was named stay with this one.
        *_tool_steps(flow, live, parts),
    ]


def _tool_steps(flow: FlowParts, live: LiveSettings, parts: ModelParts) -> Steps:
    keys = open_keys(live.start, read_environment())
    watch = StopMonitor(flow.store, lambda: live.current().jobs.stop_poll_seconds)
    rules = live.of(partial(_tool_rules, flow))
    return [
        ToolActivities(flow.store, parts.tools, rules, watch, flow.released).call_tool,
        ScriptActivities(flow.store, live.of(lambda settings: settings.tools), keys.reveal_key).run_script,
    ]


def _model_rules(scope: RedactionScope, parts: ModelParts, settings: Settings) -> ModelRules:
    return ModelRules(
        window=parts.models.table.context_window,
        toolbox=parts.tools,
        max_output_tokens=settings.llm.max_output_tokens,
        memory_scope=_memory_scope(settings),
        chat=settings.chat.enabled,
        scans_answers=scope.redaction_function(TextKind.OUTGOING, settings) is not keep_text,
        redact=scope.redaction_function(TextKind.MEMORY, settings),
        redact_prompts=scope.redaction_function(TextKind.PROMPTS, settings),
    )


def _tool_rules(flow: FlowParts, settings: Settings) -> ToolRules:
    tools = settings.tools
    return ToolRules(
        keep=flow.files.store_content,
        seconds=tools.timeout_seconds,
        max_result_chars=tools.max_result_chars,
        # Not the folder in which ``claude`` runs: a tool could write a settings file there, which ``claude`` obeys.
        folder=settings.data_dir / "workspaces",
        asking=_asking_rules(settings, tools.approvers),
        memory_scope=_memory_scope(settings),
        redact=flow.scope.redaction_function(TextKind.TOOLS, settings),
    )


def _memory_scope(settings: Settings) -> MemoryScope:
    return MemoryScope(settings.memory.scope)


def _delivery_activities(flow: FlowParts) -> DeliveryActivities:
    redact, chunk_queue = flow.scope.current_redaction(TextKind.OUTGOING), ChunkQueue(flow.files)
    return DeliveryActivities(flow.store, flow.hub, flow.typing, flow.released, redact, chunk_queue, flow.drafts)


def _connector_steps(flow: FlowParts) -> Steps:
    return [
        TypingActivities(flow.store, flow.typing).show_typing,
        MediaActivities(flow.store, flow.files, flow.hub).fetch_media,
        _delivery_activities(flow).deliver,
    ]


def _worker_on(flow: FlowParts, settings: Settings, queue: str, steps: Steps, *, workflows: bool = True) -> WorkerParts:
    return WorkerParts(
        task_queue=queue,
        activities=steps,
        interceptors=flow.interceptors,
        drain=timedelta(seconds=settings.jobs.drain_seconds),
        workflows=workflows,
        heartbeat=settings.temporal.heartbeat,
    )


def build_schedule_operations(store: Store, live: LiveSettings) -> ScheduleOperations:
    return ScheduleOperations(store, live.of(lambda settings: settings.schedules), task_queue_names(live.start).main)


def build_intake(store: Store, keys: SecretKeys, live: LiveSettings) -> WebhookIntake:
    return WebhookIntake(
        store, keys.reveal_key, live.of(lambda settings: settings.webhooks), live.of(lambda settings: settings.jobs)
    )


def build_batch_work(store: Store, engine: Engine, wake: Callable[[], None]) -> BatchWork:
    """Return the service that starts the jobs of batches; ``wake`` notifies the dispatcher of this process, if any."""
    return BatchWork(store, workflow_interrupter(engine.current_client), wake)


def build_job_operations(
    store: Store, live: LiveSettings, client: ClientSource, wake: Callable[[], None]
) -> JobOperations:
    """Return the operations on jobs; ``wake`` notifies the dispatcher of this process, if it has one."""
    budgets = live.of(lambda settings: settings.budgets)
    telemetry = live.start.telemetry
    links = JobLinks(temporal_ui_url(live.start), live.start.temporal.namespace, telemetry.enabled, telemetry.trace_url)
    return JobOperations(store, workflow_interrupter(client), wake, links, lambda: budgets().cheaper_model)


def build_operator(store: Store, live: LiveSettings) -> JobOperations:
    """Return the operations on jobs for commands; the dispatcher of a running Maestro finds the changed jobs."""
    endpoint = temporal_endpoint(live.start)
    return build_job_operations(store, live, lambda: connect_within(endpoint, CONNECT_SECONDS), lambda: None)


def access_control(settings: Settings) -> AccessControl:
    return AccessControl(_access_rules(settings), settings.routing)


def intake_rules(settings: Settings) -> IntakeRules:
    return IntakeRules(
        max_pending=settings.jobs.max_pending,
        access=_access_rules(settings),
        routing=settings.routing,
        pairing=settings.pairing,
    )


def _access_rules(settings: Settings) -> AccessRules:
    """Return the owners, and the policy for direct messages of each platform (docs/decisions.md: routing, access)."""
    sections = settings.connectors.sections.items()
    policies = {"web": settings.web.dm_policy, **{name: section.dm_policy for name, section in sections}}
    return AccessRules(frozenset(settings.owner.ids), {name: DmPolicy(policy) for name, policy in policies.items()})
