"""Reminds an agent that did nothing but chat that questions have a tool of their own (specification 002, 6)."""

import asyncio

from maestro.domain.chat.feed import listens
from maestro.domain.chat.turns import REMINDER
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, Role
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store


class Reminder:
    """Puts the reminder before everything else; it is due until a request that showed it was answered."""

    def __init__(self, inner: LLMClient, store: Store) -> None:
        self._inner = inner
        self._store = store

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, with a reminder if one is due."""
        if listens(request) and await asyncio.to_thread(self._due, request):
            request = reminded(request)
        return await self._inner.complete(request)

    def _due(self, request: LLMRequest) -> bool:
        with self._store.view() as tx:
            return tx.chat_reminders.due(request.agent, request.key.job_id)


def reminded(request: LLMRequest) -> LLMRequest:
    """Return the request with the reminder as the first line of its system message.

    Nothing of that message is worth keeping then: it begins so this once.
    """
    system, *rest = request.messages
    assert system.role is Role.SYSTEM, "every request begins with its system message"
    first = system.model_copy(update={"content": f"{REMINDER}\n\n{system.content}", "stable": 0})
    return request.model_copy(update={"messages": (first, *rest), "reminded": True})
