"""Agents as far as their tools go: what they list, and whether they take part in the chat."""

from collections.abc import Sequence
from datetime import UTC, datetime

from maestro.domain.agents.agent import Agent

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def agent_with(tools: Sequence[str] | None = None, role: str = "assistant") -> Agent:
    """Return an agent that lists these tools; None for one that lists none and has the default ones."""
    listed = " ".join(tools) if tools is not None else None
    return Agent(id=1, slug="ada", name="Ada", role=role, tools=listed, created_at=LONG_AGO, updated_at=LONG_AGO)
