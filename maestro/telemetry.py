"""Exports the traces of ended jobs with OpenTelemetry (ADR 51); imported only where ``telemetry.enabled`` is set.

The rows of a job are its trace, so no process records spans: a killed process loses none, and no message waits for a
collector.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import requests
import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.re import parse_env_headers

from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.spans import build_trace
from maestro.domain.jobs.traces import SpanContext, SpanRole, TraceRecord, TraceSpan, is_sampled
from maestro.domain.maintenance import MaintenanceName
from maestro.domain.release import release
from maestro.domain.settings.telemetry import TelemetrySettings
from maestro.store.jobs.traces import JobEnd
from maestro.store.store import Store

JOBS = 50
"""The most jobs of one request to the collector; a job has about a dozen spans."""
CLAIM = timedelta(minutes=1)
"""How long a process that died keeps the others from exporting."""
LOOK_BACK = timedelta(seconds=10)
"""How late the end of a job may become visible: the clocks of hosts differ, and a commit takes time."""
KEPT = timedelta(hours=24)
"""The age of a job's end after which its trace is given up, for example after a long outage of the collector."""
LONGEST_PAUSE = 60.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
PERMANENT = range(HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)
ROLES = {SpanRole.INTERNAL: SpanKind.INTERNAL, SpanRole.CONSUMER: SpanKind.CONSUMER, SpanRole.CLIENT: SpanKind.CLIENT}

log = structlog.get_logger(__name__)

CountTraces = Callable[[str, int], None]
"""A function that receives the outcome of an export and the number of traces with this outcome."""


class ExportOutcome(StrEnum):
    """The outcome of an export; only after ``away``, the same traces are sent again."""

    SENT = "sent"
    REFUSED = "refused"
    AWAY = "away"
    EXPIRED = "expired"


class Collector:
    """The connection to a collector; ``send`` blocks for at most ``OTEL_EXPORTER_OTLP_TIMEOUT`` (10) seconds."""

    def __init__(self, settings: TelemetrySettings) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # An outage is logged once, by this module.
        session = requests.Session()
        session.hooks["response"].append(self._note_status)
        headers = parse_env_headers(settings.headers.get_secret_value(), liberal=True)
        self._status = 0
        self._resource = Resource.create({SERVICE_NAME: settings.service_name} if settings.service_name else {})
        if str(self._resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            self._resource = self._resource.merge(Resource({SERVICE_NAME: "maestro"}))
        self._exporter = OTLPSpanExporter(settings.endpoint or None, headers=headers or None, session=session)
        self._scope = InstrumentationScope("maestro", release())

    def send(self, spans: Sequence[TraceSpan]) -> ExportOutcome:
        """Send spans in one request, and return whether the collector took them."""
        self._status = 0
        if self._exporter.export([self._convert(span) for span in spans]) is SpanExportResult.SUCCESS:
            return ExportOutcome.SENT
        passing = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
        permanent = self._status in PERMANENT and self._status not in passing
        return ExportOutcome.REFUSED if permanent else ExportOutcome.AWAY

    @property
    def problem(self) -> str:
        """The reason of the last failure, for the log."""
        return f"HTTP status {self._status}" if self._status else "no answer"

    def close(self) -> None:
        """Give up a request that waits for its next try."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _note_status(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._status = response.status_code

    def _convert(self, span: TraceSpan) -> ReadableSpan:
        error = {"error.type": span.error} if span.error else {}
        return ReadableSpan(
            name=span.name,
            context=_context(span.context),
            parent=_context(span.parent) if span.parent is not None else None,
            resource=_resource_of_process(self._resource, span.process),
            attributes={**span.attributes, **error},
            links=[Link(_context(other), {"maestro.relation": name}) for name, other in span.links.items()],
            kind=ROLES[span.role],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=(span.start - EPOCH) // MICROSECOND * 1000,
            end_time=(span.end - EPOCH) // MICROSECOND * 1000,
            instrumentation_scope=self._scope,
        )


def _context(context: SpanContext) -> OtelContext:
    return OtelContext(context.trace_id, context.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


@lru_cache(maxsize=256)
def _resource_of_process(common: Resource, process: str) -> Resource:
    """Return the resource of the process that did the work; ``process`` is like ``worker@host:4711``, or empty."""
    attributes: dict[str, str | int] = {SERVICE_VERSION: release()}
    if process:
        command, _, place = process.partition("@")
        host, _, pid = place.rpartition(":")
        attributes |= {SERVICE_INSTANCE_ID: process, "maestro.command": command, "host.name": host}
        attributes |= {"process.pid": int(pid)} if pid.isdecimal() else {}
    return common.merge(Resource(attributes))


@dataclass(frozen=True)
class ExportPosition:
    """How far the export has got: the last end of a job, and the ends near it that were exported already."""

    at: datetime
    exported: Mapping[str, int] = field(default_factory=dict)
    """The run of each job that ended since ``at`` minus ``LOOK_BACK`` and was exported."""

    @classmethod
    def parse_text(cls, text: str, now: datetime) -> "ExportPosition":
        """Return the position in a row's text; the first export begins with the jobs that end from ``now`` on."""
        if not text:
            return cls(now)
        parsed = json.loads(text)
        return cls(datetime.fromisoformat(parsed["at"]), parsed["exported"])

    def encode_text(self) -> str:
        """Return the text for the row."""
        return json.dumps({"at": self.at.isoformat(), "exported": self.exported})

    def advance(self, ends: Sequence[JobEnd], known: Sequence[JobEnd]) -> "ExportPosition":
        """Return the position after these ends; ``known`` are the ends near it that were exported before."""
        at = max([self.at, *(end.completed_at for end in ends)])
        near = [end for end in (*known, *ends) if end.completed_at >= at - LOOK_BACK]
        return ExportPosition(at, {end.job_id: end.run for end in near})


class TraceExport:
    """The service that exports traces; of all processes, the one that has the claim exports."""

    def __init__(
        self, store: Store, settings: Callable[[], TelemetrySettings], collector: Collector, count: CountTraces
    ) -> None:
        self._store = store
        self._settings = settings
        self._collector = collector
        self._count = count
        self._reported = ""

    async def run(self) -> None:
        """Export until cancelled; a failure of the collector or of the store only delays the export."""
        loop, pause = asyncio.get_running_loop(), 0.0
        # A thread of its own: a collector that does not answer must not hold a thread of the store.
        with ThreadPoolExecutor(1, thread_name_prefix="traces") as thread:
            try:
                while True:
                    usual = self._settings().export_seconds
                    try:
                        outcome = await loop.run_in_executor(thread, self.export_batch)
                    except StoreBusy as error:
                        log.info("traces.postponed", reason=str(error))
                        outcome = None
                    is_away = outcome is ExportOutcome.AWAY
                    pause = min(max(usual, 2 * pause), LONGEST_PAUSE) if is_away else 0.0 if outcome else usual
                    await asyncio.sleep(pause)
            finally:
                self._collector.close()

    def export_batch(self) -> ExportOutcome | None:
        """Export the next traces; return None if there are none, or if another process exports."""
        position = self._claim()
        if position is None:
            return None
        with self._store.view(settled=True) as tx:
            known, ends = self._list_ends(tx.jobs.traces.list_ends, position)
            records = tx.jobs.traces.read_records([end.job_id for end in ends])
        if not ends:
            return None
        ratio = self._settings().sample_ratio
        traces = [trace for record in records if is_sampled(record, ratio) and (trace := _build_safely(record))]
        outcome = self._collector.send([span for trace in traces for span in trace]) if traces else ExportOutcome.SENT
        self._report(outcome)
        if outcome is not ExportOutcome.AWAY:
            self._save(position.advance(ends, known))
            self._count(outcome, len(traces))
        return outcome

    def _claim(self) -> ExportPosition | None:
        """Return the position of the export if this process may export, else None; writes only where it must."""
        name, holder = MaintenanceName.TRACES, self._store.process
        with self._store.view() as tx:
            task, now = tx.system.maintenance.find_task(name), tx.now
        if task is None or task.holder != holder or task.held_until - now < CLAIM / 2:
            if task is not None and task.holder not in (holder, "") and now < task.held_until < now + 2 * CLAIM:
                return None
            with self._store.begin() as tx:
                task = tx.system.maintenance.claim(name, holder, CLAIM)
                if task is not None and not task.position:
                    task.position = ExportPosition(tx.now).encode_text()
        if task is None:
            return None
        position = ExportPosition.parse_text(task.position, now)
        return position if position.at > now - KEPT else self._give_up_old(position, now - KEPT)

    def _give_up_old(self, position: ExportPosition, until: datetime) -> ExportPosition:
        with self._store.view() as tx:
            expired = tx.jobs.traces.count_ends(position.at, until)
        if expired:
            self._count(ExportOutcome.EXPIRED, expired)
            log.warning("traces.expired", traces=expired, until=until.isoformat())
        return ExportPosition(until)

    def _list_ends(
        self, list_ends: Callable[[tuple[datetime, str], int], Sequence[JobEnd]], position: ExportPosition
    ) -> tuple[Sequence[JobEnd], Sequence[JobEnd]]:
        """Return the ends that are exported already and the next ones to export, at most ``JOBS``."""
        known: list[JobEnd] = []
        following: list[JobEnd] = []
        after = (position.at - LOOK_BACK, "")
        while len(following) < JOBS:
            page = list_ends(after, JOBS)
            for end in page:
                (known if position.exported.get(end.job_id) == end.run else following).append(end)
            if len(page) < JOBS:
                break
            after = (page[-1].completed_at, page[-1].job_id)
        return known, following

    def _save(self, position: ExportPosition) -> None:
        with self._store.begin() as tx:
            tx.system.maintenance.save_progress(
                MaintenanceName.TRACES, self._store.process, position=position.encode_text(), finished_at=tx.now
            )

    def _report(self, outcome: ExportOutcome) -> None:
        """Log a failure of the collector once, and its end once."""
        problem = "" if outcome is ExportOutcome.SENT else f"{outcome}: {self._collector.problem}"
        if problem and problem != self._reported:
            log.warning("traces.not_exported", reason=problem)
        elif self._reported and not problem:
            log.info("traces.exported_again")
        self._reported = problem


def _build_safely(record: TraceRecord) -> list[TraceSpan]:
    try:
        return build_trace(record)
    # Rows of another release may be unreadable here; one such job must not end the export of all others.
    except Exception as error:  # noqa: BLE001 - see above
        log.warning("trace.unreadable", job=record.job.id, error=type(error).__name__)
        return []
