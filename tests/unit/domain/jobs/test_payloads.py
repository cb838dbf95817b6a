"""What processes of two releases hand each other: a field that only one of them knows does no harm."""

from collections.abc import Iterator

import pytest

from maestro.domain.jobs import flow
from maestro.domain.jobs.job import JobRef, StepRef, Wait
from maestro.domain.precedence import Precedence
from maestro.domain.schedules.schedule import RunAdmission, ScheduledRun
from maestro.domain.values import Payload, Value

OTHERS = (JobRef, StepRef, Wait, Precedence, ScheduledRun, RunAdmission)
FIRST_FIELDS = {"job_id", "run", "heartbeat_seconds", "model_seconds", "tool_seconds", "tool_rounds"}
"""The fields of a workflow's payload that have no default; another one would stop the jobs of the release before."""


def payload_types() -> Iterator[type[Value]]:
    """Yield the types that workflows and activities exchange."""
    yield from (one for one in vars(flow).values() if isinstance(one, type) and issubclass(one, Value))
    yield from OTHERS


@pytest.mark.parametrize("payload", sorted(set(payload_types()), key=str), ids=lambda one: one.__name__)
def test_a_payload_ignores_fields_of_a_later_release(payload: type[Value]) -> None:
    assert issubclass(payload, Payload)
    assert payload.model_config["extra"] == "ignore"


def test_a_workflow_of_the_release_before_is_understood() -> None:
    required = {name for name, field in JobRef.model_fields.items() if field.is_required()}
    assert required == FIRST_FIELDS


def test_an_unknown_field_is_dropped() -> None:
    assert StepRef.model_validate_json('{"job_id": "j", "step": "route", "colour": "green"}') == StepRef(
        job_id="j", step="route"
    )
