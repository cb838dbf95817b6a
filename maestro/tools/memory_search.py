"""The tool ``memory_search``: search in the agent's memory."""

from maestro.store.transaction import Transaction
from maestro.tools.base import Arguments, ToolCaller, tool_spec

MOST = 20
USUAL = 5


class MemorySearch:
    """Searches the facts of the calling agent; it changes nothing."""

    spec = tool_spec(
        "memory_search",
        "Search what you remember from earlier conversations: facts about people, their preferences, projects and "
        "events. Returns the facts that fit best, one a line. Give a few words that would stand in the fact.",
        {
            "query": {
                "type": "string",
                "maxLength": 400,
                "description": "words to look for; leave it empty for the surest facts",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": f"facts at most, else {USUAL}"},
        },
        ["query"],
    )
    idempotent = True
    read_only = True

    def act(self, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> str:
        """Return the facts, best first."""
        most = arguments.get("limit", USUAL)
        found = tx.memory.search(caller.agent_id, arguments["query"], most, caller.place)
        if not found:
            return "Nothing you remember fits."
        return "\n".join(f"- [{fact.category}, {fact.created_at:%Y-%m-%d}] {fact.content}" for fact in found)
