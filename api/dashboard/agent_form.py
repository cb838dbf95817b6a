"""What stands in the form of an agent, and what it becomes."""

from pydantic import BaseModel

from maestro.domain.agents.views import AgentDetail

OWN = "own"
"""What is chosen where an agent has a list of its own, and not what everybody has."""
LISTS = {"tools": "tools_of", "skills": "skills_of", "allow_users": "allow_users_of"}
"""The lists that an agent may have of its own, with the choice beside each."""
WORDS = ("name", "role", "description", "voice", "model", "client")


class Typed(BaseModel):
    """What was typed; what is wrong with it is said by the rules of what it becomes."""

    slug: str = ""
    name: str = ""
    role: str = "assistant"
    description: str = ""
    voice: str = ""
    quirks: str = ""
    system_prompt: str = ""
    model: str = ""
    fallbacks: str = ""
    tools_of: str = ""
    tools: str = ""
    skills_of: str = ""
    skills: str = ""
    allow_users_of: str = ""
    allow_users: str = ""
    memory_scope: str = ""
    client: str = ""
    daily_budget_usd: str = ""
    version: str = ""
    reason: str = ""
    force: bool = False

    def fields(self) -> dict[str, object]:
        """Return all that people can edit of an agent, but for its status; an empty field is what everybody has."""
        return {
            **{name: getattr(self, name).strip() for name in WORDS},
            "quirks": [line.strip() for line in self.quirks.splitlines() if line.strip()],
            # Browsers send the end of a line as two characters, which would make each save a change of every line.
            "system_prompt": self.system_prompt.replace("\r\n", "\n").strip(),
            "fallbacks": self.fallbacks.split(),
            **{name: self._list(name) for name in LISTS},
            "memory_scope": self.memory_scope or None,
            "daily_budget_usd": self.daily_budget_usd.strip() or None,
        }

    def change(self) -> dict[str, object]:
        """Return the same, with what says which version it was made for."""
        return {**self.fields(), "version": self.version or None, "force": self.force}

    def new(self) -> dict[str, object]:
        """Return the same, with the slug of an agent that is to be made."""
        return {**self.fields(), "slug": self.slug.strip()}

    def _list(self, name: str) -> list[str] | None:
        return getattr(self, name).split() if getattr(self, LISTS[name]) == OWN else None


def typed_of(agent: AgentDetail) -> Typed:
    """Return what stands in the form to change an agent."""
    lists = {name: getattr(agent, name) for name in LISTS}
    return Typed(
        slug=agent.slug,
        **{name: getattr(agent, name) for name in WORDS},
        quirks="\n".join(agent.quirks),
        system_prompt=agent.system_prompt,
        fallbacks=" ".join(agent.fallbacks),
        **{name: "\n".join(value or ()) for name, value in lists.items()},
        **{LISTS[name]: "" if value is None else OWN for name, value in lists.items()},
        memory_scope=agent.memory_scope or "",
        daily_budget_usd="" if agent.daily_budget_usd is None else f"{agent.daily_budget_usd:.15g}",
        version=str(agent.version),
    )
