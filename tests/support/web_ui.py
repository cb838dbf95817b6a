"""What the Temporal Web UI shows of a workflow's steps, read through the HTTP API that its pages use."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

METADATA = "__temporal_workflow_metadata"
LINE = re.compile(r"^\* (?P<step>[a-z]+)(-\d+)?: (?P<outcome>.+) \((?P<milliseconds>[\d.]+) ms\)$", re.MULTILINE)
"""A step in the current details of a workflow; a number tells apart those that a job may have more than one of."""
STEPS = {
    "choose_agent": "route",
    "record_message": "conversation",
    "build_context": "context",
    "call_model": "model",
    "record_answer": "tags",
    "deliver": "deliver",
}
"""The step of each activity that does one."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class ShownStep:
    """How a step ended, and how long it took."""

    outcome: str
    milliseconds: float


async def shown_steps(ui_url: str, workflow_id: str) -> dict[str, ShownStep]:
    """Return the steps that the history of a workflow and its current details show, by name."""
    async with httpx.AsyncClient(base_url=f"{ui_url}/api/v1") as http:
        history = await _read(http.get(f"/namespaces/default/workflows/{workflow_id}/history"))
        token = http.cookies["_csrf"]
        answer = await _read(
            http.post(
                f"/namespaces/default/workflows/{workflow_id}/query/{METADATA}",
                headers={"X-CSRF-Token": token},
                json={"execution": {"workflowId": workflow_id}, "query": {"queryType": METADATA}},
            )
        )
    [metadata] = answer["queryResult"]["payloads"]
    details = _value(metadata)["currentDetails"]
    return {
        **dict(_activities(history["history"]["events"])),
        **{
            found["step"]: ShownStep(found["outcome"], float(found["milliseconds"])) for found in LINE.finditer(details)
        },
    }


async def _read(request: Any) -> Any:
    response: httpx.Response = await request
    return response.raise_for_status().json()


def _activities(events: list[Json]) -> Iterator[tuple[str, ShownStep]]:
    """Yield what activities that do one step each left in a history: markers of local ones, events of others."""
    scheduled: dict[str, Json] = {}
    for event in events:
        if marker := event.get("markerRecordedEventAttributes"):
            data = _value(marker["details"]["data"]["payloads"][0])
            seconds = _seconds(data["complete_time"]) - _seconds(data["original_schedule_time"])
            outcome = "failed" if "failure" in marker else "completed"
            yield STEPS.get(data["activity_type"], ""), ShownStep(outcome, seconds * 1000)
        elif "activityTaskScheduledEventAttributes" in event:
            scheduled[event["eventId"]] = event
        elif done := event.get("activityTaskCompletedEventAttributes"):
            begun = scheduled[done["scheduledEventId"]]
            took = datetime.fromisoformat(event["eventTime"]) - datetime.fromisoformat(begun["eventTime"])
            name = begun["activityTaskScheduledEventAttributes"]["activityType"]["name"]
            yield STEPS.get(name, ""), ShownStep("completed", took.total_seconds() * 1000)


def _value(payload: Json) -> Any:
    return json.loads(base64.b64decode(payload["data"]))


def _seconds(moment: Json) -> float:
    return float(moment["seconds"]) + float(moment["nanos"]) / 1e9
