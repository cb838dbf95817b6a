"""Conversations as messages find or begin them."""

from maestro.domain.conversations.conversation import Conversation
from maestro.domain.messages import Address, InboxRow
from maestro.store.transaction import Transaction

GRACE = ("u-1", "Grace")


def talk_with(tx: Transaction, agent_id: int, address: Address, user: tuple[str, str] = GRACE) -> Conversation:
    """Return the conversation that a message of this user to this agent would belong to now."""
    user_id, user_name = user
    row = InboxRow(id=0, message_id="", user_id=user_id, user_name=user_name, job_id="", **address.model_dump())
    return tx.conversations.find_or_begin(agent_id, row, keyed_by_user=False)
