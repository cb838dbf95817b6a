"""Marks what Anthropic should keep of a prompt, so that the same beginning is not paid in full each time."""

from collections.abc import Callable, Sequence

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, PromptMessage, Role
from maestro.llm.protocols import Directory, LLMClient

ANTHROPIC = "anthropic"
SPOKEN = (Role.USER, Role.ASSISTANT)


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
