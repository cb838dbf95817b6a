"""An agent that is edited while Maestro runs: the next message knows, a start keeps it, and there is a way back."""

from pathlib import Path
from typing import Any

import httpx

from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port

FIRST, SECOND = "Answer like a pirate.", "Answer like a judge."


async def told(maestro: Instance, text: str) -> str:
    """Say something in the agent's channel, and return the instructions under which the model was asked to answer."""
    async with maestro.client("code") as person:
        await person.ask(text)
    return maestro.llm.matching(text)[-1].texts[0]


async def asked(port: int, method: str, path: str, body: Any = None) -> Any:
    """Make a request as the operator, and return the answer."""
    async with httpx.AsyncClient(base_url=f"http://localhost:{port}") as http:
        answer = await http.request(method, f"/api/agents/ada{path}", json=body)
    assert answer.is_success, answer.text
    return answer.json()


async def test_an_edit_counts_from_the_next_message_on_survives_a_start_and_can_be_taken_back(tmp_path: Path) -> None:
    port = free_port()
    async with running_instance(
        tmp_path,
        agents=[{"slug": "ada", "systemPrompt": FIRST}],
        channels=[{"platform": "web", "channel": "code", "agent": "ada"}],
        webui={"enabled": True, "port": port},
    ) as maestro:
        assert FIRST in await told(maestro, "ahoy")
        await asked(port, "PATCH", "", {"systemPrompt": SECOND})
        assert SECOND in (edited := await told(maestro, "order"))
        assert FIRST not in edited
        await maestro.restart()
        assert SECOND in await told(maestro, "silence")
        await asked(port, "POST", "/rollback", {"version": 1})
        assert FIRST in await told(maestro, "land ho")
        versions = await asked(port, "GET", "/versions")
        assert [(one["version"], one["actor"]) for one in versions["items"]] == [
            (3, "operator"),
            (2, "operator"),
            (1, "configuration"),
        ]
