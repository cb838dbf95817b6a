"""What agents are taught about tags, and what the first conductor is told to be (decision 7)."""

from maestro.domain.agents import CONDUCTOR
from maestro.domain.memory import FactCategory
from maestro.domain.tags import TagName

CONDUCTOR_PROMPT = """You are the Conductor: you set up and look after the other agents on this platform."""
"""The system prompt of a conductor that is created at the first start without one."""


def rules(role: str, *, delegates: bool) -> str:
    """Return the rules of writing tags for an agent of this role; ``delegates``: there are agents it may ask."""
    named = [TagName.MEMORY, TagName.STATE, *([TagName.DELEGATE] if delegates else [])]
    listed = named if role != CONDUCTOR else [*named, *(tag for tag in TagName if tag not in named)]
    return "\n".join([*(f"[{tag}]" for tag in listed), ", ".join(FactCategory)])
