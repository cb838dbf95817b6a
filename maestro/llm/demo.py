"""The built-in demo model, which answers without any account, so that a new installation can be tried at once.

See docs/decisions.md: demo model.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta

from maestro.domain.llm.calls import NoAccount
from maestro.domain.llm.models import estimate_messages, estimate_tokens
from maestro.domain.llm.prompts import CallPurpose, LLMRequest, LLMResponse, Role
from maestro.llm.protocols import Account
from maestro.llm.wire import current_listener

QUOTE_LENGTH = 120
"""The most characters of the user's message that an answer quotes."""


@dataclass(slots=True)
class DemoClient:
    """The client of the demo model: it answers deterministically, offline and free, and says that it is only a demo.

    Writing an answer takes the time that ``duration`` returns, so that an operator can watch streaming, or kill the
    process during a call. Only the local user of the web connector gets answers, while the server is bound to loopback:
    no user of another platform ever gets a demo answer.
    """

    duration: Callable[[], timedelta]
    _: KW_ONLY
    loopback: bool

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer the request; raises ``NoAccount`` for any user except the local user of the web connector."""
        if not (self.loopback and request.platform == "web"):
            raise NoAccount(
                f"No model account is configured, so messages from {request.platform!r} cannot be answered. "
                "Add one with `maestro accounts add`, or set ANTHROPIC_API_KEY or llm.accounts and restart."
            )
        content, duration = _answer_text(request), timedelta()
        if request.key.purpose is CallPurpose.ANSWER:
            duration = self.duration()
            listener, words = current_listener(), re.findall(r"\S+\s*", content)
            for word in words:  # The pauses are chosen so that the last word comes after ``duration``.
                await asyncio.sleep(duration.total_seconds() / len(words))
                if listener is not None:
                    listener(word)
        return LLMResponse(
            content=content,
            model=account.model,
            provider=account.provider,
            account=account.name,
            input_tokens=estimate_messages(request.messages),
            output_tokens=estimate_tokens(content),
            cost_usd=0.0,
            duration_ms=round(duration / timedelta(milliseconds=1)),
            finish_reason="stop",
        )


def _answer_text(request: LLMRequest) -> str:
    """Return the text for the call's purpose; the demo model extracts no facts and cannot summarize."""
    match request.key.purpose:
        case CallPurpose.FACTS:
            return "NONE"
        case CallPurpose.SUMMARY:
            return "Older messages were archived; the demo model cannot tell what they said."
        case CallPurpose.ANSWER:
            messages = [message for message in request.messages if message.role is not Role.SYSTEM and not message.chat]
            question = next((message.content for message in reversed(messages) if message.role is Role.USER), "")
            quote = " ".join(question.split())
            if len(quote) > QUOTE_LENGTH:
                quote = quote[: QUOTE_LENGTH - 1].rstrip() + "…"
            visible = "1 message" if len(messages) == 1 else f"{len(messages)} messages"
            return (
                f'You said: "{quote}"\n\n'
                f"I am Maestro's built-in demo model. I can see {visible} of this conversation, but I cannot think "
                "about them. To talk to a real model, set ANTHROPIC_API_KEY or llm.accounts in maestro.json and "
                "restart Maestro."
            )
