"""Requests nobody would think of, made from the complete description of the API: none of them finds a bug of ours."""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response

from api.parts import AgentChat
from maestro.operations.skills import SkillFolder, SkillOperations
from tests.support.api_client import BASIC, app_of
from tests.support.every_change import EXAMPLES, Example, stage
from tests.support.job_rows import JobRows
from tests.support.outside import chat_of, token_of

SEED = 9
REQUESTS = 4
"""Requests of each kind for each operation, of which each is sent in several ways."""
STATUSES = {
    "GET": {200, 400, 404},
    "POST": {200, 201, 204, 400, 404, 409},
    "PUT": {200, 400, 404},
    "PATCH": {200, 400, 404},
    "DELETE": {204, 404},
}
"""For each method, statuses that some of its requests get. Each method has a store to itself."""
DESCRIPTION = "/api/openapi.json"
GOOD: Mapping[str, Example] = {name.replace(":path", ""): example for name, example in EXAMPLES.items()}
NOT_OURS = "/hooks/{path}"
"""Where only what somebody signed is let in, and guesses are slowed down."""

Operation = APIOperation[Any, Any, Any, Any]
Made = Case[Any]


@dataclass
class Asked:
    """What was asked of one operation."""

    operation: Operation
    headers: Mapping[str, str]
    known: Mapping[str, str]
    """What stands in paths that lead to something."""
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def ask(self, case: Made) -> None:
        """Send a request as it was made, then on something that there is, then a good one with a field of it."""
        self._send(case)
        example = GOOD.get(self.operation.label)
        known = {**self.known, **((example.path if example else None) or {})}
        if case.path_parameters:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
            self._send(case)
        if example is None or not isinstance(example.json, dict) or not isinstance(case.body, dict):
            return
        for name, value in list(case.body.items()):
            case.body = {**example.json, name: value}
            self._send(case)

    def _send(self, case: Made) -> None:
        response: Response = case.call(headers=dict(self.headers))
        self.statuses[int(response.status_code)] += 1
        if response.status_code >= 500:
            self.faults.append(f"{response.status_code} {response.text[:200]}\n{case.as_curl_command()}")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def app(rows: JobRows, tmp_path: Path) -> FastAPI:
    """Build everything that an API can have; jobs are begun by a dispatcher that is elsewhere."""
    skills = SkillOperations(rows.store, SkillFolder(tmp_path / "skills"))
    return app_of(rows, chat=AgentChat(chat_of(rows.store)), skills=skills)


def all_kinds(asked: Asked) -> None:
    """Ask an operation with what its description allows, and with what it does not."""
    bounds = settings(
        max_examples=REQUESTS,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for mode in GenerationMode:
        if mode is GenerationMode.NEGATIVE and not _can_be_wrong(asked.operation):
            continue
        made = asked.operation.as_strategy(generation_mode=mode)
        seed(SEED)(bounds(given(case=made)(asked.ask)))()


def _can_be_wrong(operation: Operation) -> bool:
    """Say whether an operation takes anything that could be wrong."""
    return bool(operation.body or operation.query or operation.path_parameters)


def basic() -> Mapping[str, str]:
    """Return what the operator sends."""
    return {"Authorization": f"Basic {base64.b64encode(':'.join(BASIC).encode()).decode()}", "Host": "localhost"}


@pytest.mark.parametrize("method", STATUSES)
def test_no_request_finds_a_bug(method: str, rows: JobRows, app: FastAPI) -> None:
    known = stage(rows)
    agent = {"Authorization": f"Bearer {token_of(rows)}", "Host": "localhost"}
    with rows.store.view() as tx:
        [before] = tx.system.audit.list_latest_entries(1)
    described = schemathesis.openapi.from_asgi(DESCRIPTION, app, headers=dict(basic()))
    found = list(described.get_all_operations())
    operations: list[Operation] = [one.ok() for one in found if isinstance(one, Ok)]
    assert len(operations) == len(found), "the description has mistakes"
    assert len(operations) > 90
    assert {one.method.upper() for one in operations} == set(STATUSES)
    everything = Counter[int]()
    faults: list[str] = []
    for operation in (one for one in operations if one.method.upper() == method):
        asked = Asked(operation, agent if operation.path == "/mcp" else basic(), known)
        all_kinds(asked)
        assert operation.path == NOT_OURS or not {401, 403, 429} & set(asked.statuses), operation.label
        everything += asked.statuses
        faults += asked.faults
    assert not faults, "\n\n".join(faults[:10])
    assert STATUSES[method] <= set(everything), everything
    if method != "GET":
        with rows.store.view() as tx:
            assert tx.system.audit.list_latest_entries(1)[0].id != before.id, "no request changed anything"
