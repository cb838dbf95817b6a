"""Where the agent of a job remembers what it learns, for every step that reads or writes its memory.

See docs/decisions.md: memory scope.
"""

from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.conversations.conversation import conversation_key
from maestro.domain.jobs.job import Job
from maestro.domain.memory.memory import keeps_apart
from maestro.store.transaction import Transaction


def memory_place(tx: Transaction, job: Job, scope: MemoryScope) -> str:
    """Return the place, empty for everywhere; ``scope`` is that of the settings, which the agent's own beats."""
    return place_of(tx, job, tx.agents.get(job.agent_id), scope)


def place_of(tx: Transaction, job: Job, agent: Agent, scope: MemoryScope) -> str:
    """Return the same, where the agent of the job is at hand."""
    return _own_key(tx, job) if keeps_apart(agent, scope) else ""


def _own_key(tx: Transaction, job: Job) -> str:
    """Return the key of the agent's own conversation in the channel: a delegate is a guest in another's."""
    conversation = tx.conversations.read(job.conversation_id) if job.conversation_id is not None else None
    if conversation is not None and conversation.agent_id == job.agent_id:
        return conversation.key
    return conversation_key(job.agent_id or 0, job.address, None)
