"""Reads workflow histories: from the files that the Temporal CLI and Web UI export, or from a cluster."""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from google.protobuf.json_format import ParseError
from temporalio.client import Client, WorkflowExecution, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import ConfigurationError, TemporalUnavailable
from temporal.client import AWAY, connect_and_check
from temporal.endpoint import Endpoint, explain_error
from temporal.replay_check import RecordedRun, UnreadableHistory

FETCHES = 8
"""How many histories are read from the cluster at the same time."""
NOT_A_HISTORY = "no history of a workflow: export it with `temporal workflow show --output json`, or from the Web UI"
DECODED = "its payloads were decoded on export: export it again without decoding"


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and the JSON files in the folders; raises ``ConfigurationError`` where there is none."""
    found: list[Path] = []
    for path in paths:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not files or not path.exists():
            problem = "has no *.json file" if path.is_dir() else "does not exist"
            raise ConfigurationError(f"{path} {problem}; name a file with a history, or a folder of such files")
        found += files
    return found


async def read_files(files: Sequence[Path]) -> AsyncIterator[RecordedRun | UnreadableHistory]:
    """Yield the history in each file."""
    for file in files:
        yield await asyncio.to_thread(read_file, file)


def read_file(file: Path) -> RecordedRun | UnreadableHistory:
    """Return the history in a file, or why the file cannot be read."""
    try:
        events = _find_events(json.loads(file.read_text(encoding="utf-8")))
        if events is None:
            return UnreadableHistory(source=str(file), reason=NOT_A_HISTORY)
        if _has_decoded_payloads(events):
            return UnreadableHistory(source=str(file), reason=DECODED)
        history = WorkflowHistory.from_json("", {"events": events})
    except OSError as error:
        return UnreadableHistory(source=str(file), reason=str(error.strerror))
    # The error depends on what is wrong in the file.
    except (ParseError, ValueError, TypeError, AttributeError) as error:
        return UnreadableHistory(source=str(file), reason=f"{NOT_A_HISTORY} ({error})")
    started = history.events[0].workflow_execution_started_event_attributes
    if not started.workflow_type.name:
        return UnreadableHistory(source=str(file), reason="the first event, the start of the workflow, is missing")
    workflow_id = started.workflow_id or file.stem
    return RecordedRun(WorkflowHistory(workflow_id, history.events), history.run_id, str(file))


def _find_events(document: Any) -> list[Any] | None:
    """Return the events in an export: a list, or an object with ``events``, as such or inside of ``history``."""
    if isinstance(document, dict):
        inner = document.get("history", document)
        document = inner.get("events") if isinstance(inner, dict) else None
    return document if isinstance(document, list) and document else None


def _has_decoded_payloads(part: Any) -> bool:
    """Return whether the export has values in the place of payloads: a replay needs the payloads."""
    if isinstance(part, dict):
        payloads = part.get("payloads")
        if isinstance(payloads, list) and any(
            not isinstance(payload, dict) or not payload.keys() & {"metadata", "data"} for payload in payloads
        ):
            return True
        part = list(part.values())
    return isinstance(part, list) and any(map(_has_decoded_payloads, part))


class ClusterHistories:
    """The histories of one task queue's workflows that are open, or that began or ended after a time.

    All methods raise ``TemporalUnavailable`` where Temporal cannot be used.
    """

    def __init__(self, endpoint: Endpoint, client: Client, task_queue: str, since: datetime) -> None:
        self._endpoint = endpoint
        self._client = client
        at = since.isoformat()
        recent = f"(ExecutionStatus = 'Running' OR StartTime >= '{at}' OR CloseTime >= '{at}')"
        self._query = f"TaskQueue = '{task_queue}' AND {recent}"

    @classmethod
    async def connect(cls, endpoint: Endpoint, task_queue: str, since: datetime) -> Self:
        """Connect to the cluster, and check that the namespace can be used."""
        try:
            return cls(endpoint, await connect_and_check(endpoint), task_queue, since)
        except AWAY as error:
            raise TemporalUnavailable(explain_error(error, endpoint)) from None

    async def count(self) -> int:
        """Return how many workflows there are; 0 from a server that does not count."""
        with suppress(RPCError):
            return (await self._client.count_workflows(self._query)).count
        return 0

    async def read(self) -> AsyncIterator[RecordedRun]:
        """Yield the histories, a few of which are read ahead."""
        reading: deque[asyncio.Task[RecordedRun | None]] = deque()
        try:
            async for execution in self._client.list_workflows(self._query):
                reading.append(asyncio.create_task(self._fetch(execution)))
                if len(reading) >= FETCHES and (run := await reading.popleft()):
                    yield run
            while reading:
                if run := await reading.popleft():
                    yield run
        except RPCError as error:
            raise TemporalUnavailable(explain_error(error, self._endpoint)) from None
        finally:
            for task in reading:
                task.cancel()

    async def _fetch(self, execution: WorkflowExecution) -> RecordedRun | None:
        handle = self._client.get_workflow_handle(execution.id, run_id=execution.run_id)
        try:
            return RecordedRun(await handle.fetch_history(), execution.run_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None  # Temporal removed the workflow after its retention.


async def save_histories(
    runs: AsyncIterator[RecordedRun | UnreadableHistory], folder: Path
) -> AsyncIterator[RecordedRun | UnreadableHistory]:
    """Write each history into the folder, and yield it."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async for run in runs:
        if isinstance(run, RecordedRun):
            await asyncio.to_thread(_write_history, run, folder)
        yield run


def _write_history(run: RecordedRun, folder: Path) -> None:
    name = re.sub(r"[^\w.-]", "_", f"{run.workflow_type}-{run.history.workflow_id}-{run.run_id}")
    (folder / f"{name[-200:]}.json").write_text(run.history.to_json() + "\n", encoding="utf-8")
