"""What Temporal keeps of workflows: every event and every payload, to search in and to measure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory


@dataclass(frozen=True)
class Story:
    """The history of one run of a workflow."""

    history: WorkflowHistory

    @property
    def workflow_id(self) -> str:
        """The workflow's id, which is the job's."""
        return self.history.workflow_id

    @property
    def events(self) -> list[HistoryEvent]:
        """The events in order."""
        return list(self.history.events)

    def text(self, first: int = 1) -> str:
        """Return all that can be read from the given event on: its fields, and what its payloads hold."""
        parts = [self.history.to_json()] if first == 1 else []
        for event in self.events[first - 1 :]:
            parts.append(str(event))
            parts.extend(payload.data.decode(errors="replace") for payload in payloads(event))
        return "\n".join(parts)

    def largest_payload(self) -> int:
        """Return the bytes of the largest payload, its metadata included."""
        return max(payload.ByteSize() for event in self.events for payload in payloads(event))


async def stories(client: Client) -> list[Story]:
    """Fetch the history of every run the server knows."""
    return [Story(history) async for history in client.list_workflows().map_histories()]


async def story(client: Client, workflow_id: str) -> Story:
    """Fetch the history of a workflow's latest run."""
    return Story(await client.get_workflow_handle(workflow_id).fetch_history())


def payloads(message: Message) -> Iterator[Payload]:
    """Yield every payload inside a protobuf message, headers, memos and search attributes included."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in _parts(field, value):
            if isinstance(part, Message):
                yield from payloads(part)


def _parts(field: Any, value: Any) -> list[Any]:
    """Return the messages in a field, be it one, many or a map of them."""
    if field.message_type.GetOptions().map_entry:
        return list(value.values())
    return [value] if isinstance(value, Message) else list(value)
