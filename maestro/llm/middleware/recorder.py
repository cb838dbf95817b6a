"""Commits every request before it leaves and every answer before anybody sees it (design invariant 5)."""

import asyncio

from pydantic import Field

from maestro.domain.calls import CallEstimate
from maestro.domain.models import bare, price, provider_of
from maestro.domain.prompts import LLMRequest, LLMResponse, Turn
from maestro.domain.tokens import estimate_messages
from maestro.domain.values import Value
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.uninterrupted import uninterrupted


class KeptRequest(Value):
    """A request as it is stored: its texts by reference."""

    platform: str
    model: str
    max_output_tokens: int = Field(gt=0)
    turns: tuple[Turn, ...]


class Recorder:
    """The last step before the transport: what it passes on is exactly what it has committed.

    ``default_model`` is the one that answers a request which names none; an interrupted call is costed by it.
    """

    def __init__(self, inner: LLMClient, store: Store, default_model: str) -> None:
        self._inner = inner
        self._store = store
        self._default_model = default_model

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Send what an earlier attempt sent, if it was cut off, and keep what comes back."""
        attempt, kept = await asyncio.to_thread(self._send, request)
        try:
            response = await self._inner.complete(kept)
        except asyncio.CancelledError:
            await uninterrupted(asyncio.to_thread(self._interrupted, request, attempt))
            raise
        # Design invariant 3: no attempt stays open in the books, whatever ended it.
        except Exception as error:
            await uninterrupted(asyncio.to_thread(self._failed, request, attempt, type(error).__name__))
            raise
        await uninterrupted(asyncio.to_thread(self._answered, request, attempt, response))
        return response

    def _send(self, request: LLMRequest) -> tuple[int, LLMRequest]:
        with self._store.begin() as tx:
            digest = tx.calls.cut_off_request(request.key) or _keep(tx, request)
            sent = _restore(tx, request, digest)
            return tx.calls.sent(request.key, digest, self._estimate(sent)), sent

    def _estimate(self, request: LLMRequest) -> CallEstimate:
        """Return what the call costs at least should nobody ever hear of its answer: its input."""
        model = request.model or self._default_model
        tokens = estimate_messages(request.messages)
        known = price(model)
        return CallEstimate(provider_of(model), bare(model), tokens, known.cost(tokens, 0) if known else None)

    def _answered(self, request: LLMRequest, attempt: int, response: LLMResponse) -> None:
        with self._store.begin() as tx:
            tx.calls.keep_answer(request.key, attempt, response)

    def _interrupted(self, request: LLMRequest, attempt: int) -> None:
        with self._store.begin() as tx:
            tx.calls.interrupted(request.key, attempt)

    def _failed(self, request: LLMRequest, attempt: int, error: str) -> None:
        with self._store.begin() as tx:
            tx.calls.failed(request.key, attempt, error)


def _keep(tx: Transaction, request: LLMRequest) -> str:
    kept = KeptRequest(
        platform=request.platform,
        model=request.model,
        max_output_tokens=request.max_output_tokens,
        turns=tx.prompts.pack(request.messages),
    )
    return tx.prompts.keep(kept.model_dump_json())


def _restore(tx: Transaction, request: LLMRequest, digest: str) -> LLMRequest:
    kept = KeptRequest.model_validate_json(tx.prompts.text(digest))
    return LLMRequest(
        key=request.key,
        platform=kept.platform,
        model=kept.model,
        max_output_tokens=kept.max_output_tokens,
        messages=tx.prompts.unpack(kept.turns),
    )
