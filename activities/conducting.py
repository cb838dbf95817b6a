"""What a conductor's tags do: each wish is done whole or leaves nothing behind (specification 003, 11)."""

from maestro.domain.actions import ActionState
from maestro.domain.conductor import Performed, Requester
from maestro.domain.tags import Tag
from maestro.store.transaction import Transaction


def perform(tx: Transaction, tag: Tag, by: Requester) -> Performed:
    """Do what one of a conductor's tags asks for, and say what came of it."""
    return Performed(ActionState.REFUSED, "This is not possible yet.", tag.key)
