"""The conversation exists and holds the user's message once."""

from collections.abc import Callable

from temporalio import activity

from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.compaction import is_due
from maestro.domain.conversations.conversation import Said
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.flow import ConversationOutcome
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.prompts import Role
from maestro.domain.llm.tokens import estimate
from maestro.domain.media import spoken_text
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class ConversationActivities:
    """Records what the user said; ``window`` says the tokens of a model's window."""

    def __init__(self, store: Store, window: Callable[[str], int]) -> None:
        self._store = store
        self._window = window

    @activity.defn(no_thread_cancel_exception=True)
    def record_message(self, ref: StepRef) -> ConversationOutcome:
        """Record the message, keyed by its inbox row, so that a restarted job finds it instead of repeating it."""
        with self._store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            agent = tx.agents.read(job.agent_id)
            # Those it answers together with its own, in order; each is found if a job before this one recorded it.
            said = [tx.conversations.recall(row.id) or _record(tx, job, agent, row) for row in tx.merges.asked(job)]
            message = said[-1]
            tx.jobs.note(job.id, conversation_id=message.conversation_id)
            tokens = self._window(agent.model or tx.accounts.default_model())
            return tx.steps.done(
                ref,
                ConversationOutcome(
                    conversation_id=message.conversation_id,
                    message_id=message.id or 0,
                    compaction_due=is_due(tx.conversations.read(message.conversation_id), tokens),
                ),
            )


def _record(tx: Transaction, job: Job, agent: Agent, row: InboxRow) -> Said:
    binding = tx.agents.read_binding(job.address)
    keyed = binding is not None and binding.key_by_user
    conversation = tx.conversations.of_message(agent.id or 0, row, keyed_by_user=keyed)
    return tx.conversations.add(_message(row, job, conversation.id or 0, tx))


def _content(row: InboxRow, tx: Transaction) -> str:
    """Return what the user said and wrote; whom nobody has heard by now is named and not listened to any more."""
    if not row.files():
        return row.content
    for voice in tx.media.unheard([row.id or 0]):
        tx.media.heard(voice.id, "")
    return spoken_text(row.content, tx.media.of([row.id or 0]).get(row.id or 0, ()))


def _message(row: InboxRow, job: Job, conversation_id: int, tx: Transaction) -> Said:
    content = _content(row, tx)
    return Said(
        conversation_id=conversation_id,
        role=Role.USER,
        content=content,
        token_estimate=estimate(content),
        inbox_id=row.id,
        job_id=job.id,
        has_files=bool(row.files()),
        created_at=tx.now,
    )
