"""The prompt: layers in a cache-friendly order, history newest first within the budget (specification 003, step 6)."""

from collections.abc import Sequence
from datetime import date

from maestro.domain.agents import Agent
from maestro.domain.conversations import Message
from maestro.domain.prompts import PromptMessage, Role
from maestro.domain.tokens import estimate

RESERVE_TOKENS = 20_000
HISTORY_ROWS = 500


def history_budget(window: int, system: str) -> int:
    """Return the tokens left for history: the window less 20,000, or less a quarter where the window is small."""
    reserve = min(RESERVE_TOKENS, window // 4)
    return max(0, window - reserve - estimate(system))


def system_prompt(agent: Agent, today: date, user_name: str) -> str:
    """Compose the one leading system message: identity, purpose, the agent's own prompt, then what changes daily."""
    layers = [
        f"You are {agent.name}, an agent that people talk to through Maestro. Speak as {agent.name}.",
        agent.description and f"Your purpose: {agent.description}",
        agent.system_prompt,
        f"Today is {today.isoformat()}." + (f" You are talking with {user_name}." if user_name else ""),
    ]
    return "\n\n".join(layer for layer in layers if layer)


def select_history(newest_first: Sequence[Message], budget: int) -> tuple[Message, ...]:
    """Return the messages that fit, oldest first; the newest one, which is being answered, always stays.

    The first message that does not fit ends the selection, so that the history has no holes.
    """
    chosen: list[Message] = []
    left = budget
    for message in newest_first:
        left -= message.token_estimate
        if chosen and left < 0:
            break
        chosen.append(message)
    return tuple(reversed(chosen))


def compose(system: str, history: Sequence[Message]) -> tuple[PromptMessage, ...]:
    """Return the prompt: exactly one leading system message, then the history."""
    turns = [PromptMessage(role=Role.SYSTEM, content=system)]
    turns.extend(
        PromptMessage(role=message.role, content=message.content, message_id=message.id) for message in history
    )
    return tuple(turns)
