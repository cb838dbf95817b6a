"""Never buys an answer that we hold (design invariant 5)."""

import asyncio

from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.prompts import TOOL_CALLS, CallKey, LLMRequest, LLMResponse
from maestro.llm.held_answers import HeldAnswers, Keep, nothing_more
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store


class ReplayGuard:
    """Returns the stored answer of a call instead of asking again."""

    def __init__(self, inner: LLMClient, store: Store, keep: Keep = nothing_more) -> None:
        """``keep`` is called for every answer of an earlier process that is committed first."""
        self._inner = inner
        self._store = store
        self._answers = HeldAnswers(store, keep)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer from the store if an earlier attempt got that far."""
        held = await asyncio.to_thread(self._held, request.key)
        return held if held is not None else await self._inner.complete(request)

    def _held(self, key: CallKey) -> LLMResponse | None:
        self._answers.recover()
        with self._store.view() as tx:
            call = tx.calls.answered(key)
        return _response(call) if call else None


def _response(call: LLMCall) -> LLMResponse:
    said = call.model_dump(include=set(LLMResponse.model_fields) - {"tool_calls"})
    return LLMResponse(**said, tool_calls=TOOL_CALLS.validate_json(call.tool_calls) if call.tool_calls else ())
