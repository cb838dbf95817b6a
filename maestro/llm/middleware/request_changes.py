"""Changes of a request before it is committed: secrets go out of it, and marks for a provider's cache come in."""

import asyncio
from collections.abc import Callable, Sequence

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role
from maestro.domain.redaction import Redact, as_it_is, redacted_turns
from maestro.llm.protocols import Directory, LLMClient

ANTHROPIC = "anthropic"
SPOKEN = (Role.USER, Role.ASSISTANT)


class Redaction:
    """Takes secrets out of a request, where the configuration wants that: what is kept of it is what leaves."""

    def __init__(self, inner: LLMClient, redact: Callable[[], Redact]) -> None:
        """``redact`` is asked for at each call."""
        self._inner = inner
        self._redact = redact

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on without secrets; scanning a long prompt takes a while, so it is done in a thread."""
        redact = self._redact()
        if redact is not as_it_is:
            messages = await asyncio.to_thread(redacted_turns, request.messages, redact)
            request = request.model_copy(update={"messages": messages})
        return await self._inner.complete(request)


class CacheMarkers:
    """Adds the marks for accounts of Anthropic alone.

    Of the others some keep beginnings by themselves, some make further requests for a mark, some refuse it.
    """

    def __init__(self, inner: LLMClient, directory: Directory, enabled: Callable[[], bool]) -> None:
        self._inner = inner
        self._directory = directory
        self._enabled = enabled

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Pass the request on, marked if its account is one that understands marks."""
        if self._enabled() and self._understood(request.account):
            request = request.model_copy(update={"messages": marked(request.messages)})
        return await self._inner.complete(request)

    def _understood(self, name: str) -> bool:
        account = self._directory.find(name)
        return account is not None and (account.provider, account.type) == (ANTHROPIC, AccountType.API_KEY)


def marked(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Mark the system message and the end of the history, which is the last turn before the newest one of the user's.

    Both stay where they are in every round of tools, and are there again when the next message is answered. Turns
    without text are passed over: a mark needs a text to stand on. Posts of #maestro between rounds are not the user's.
    """
    newest = max((at for at, turn in enumerate(messages) if turn.role is Role.USER and not turn.chat), default=0)
    spoken = [at for at, turn in enumerate(messages[:newest]) if turn.role in SPOKEN and turn.content.strip()]
    system = [at for at, turn in enumerate(messages[:1]) if turn.role is Role.SYSTEM and turn.content.strip()]
    marks = {*spoken[-1:], *system}
    return tuple(turn.model_copy(update={"cache": True}) if at in marks else turn for at, turn in enumerate(messages))
