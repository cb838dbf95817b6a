"""What Temporal keeps of a workflow, as bytes to search in."""

from google.protobuf.message import Message

from tests.support.instance import Instance


async def history_of(maestro: Instance, job_id: str) -> bytes:
    """Return every event of a job's workflow with its payloads as they are, not in base64."""
    client = await maestro.temporal()
    history = await client.get_workflow_handle(job_id).fetch_history()
    events: list[Message] = list(history.events)
    return b"\n".join(event.SerializeToString() for event in events)
