"""How soon work is done, and whose share of the room it takes (docs/decisions.md: priorities)."""

from hashlib import blake2b

from maestro.domain.messages import Address
from maestro.domain.values import Value

CHANNEL_DIGEST_BYTES = 12


class Priority:
    """From 1, soonest, to 10 (docs/decisions.md: priorities)."""

    OWNER = 1
    CONDUCTOR = 3
    DELEGATION = 4
    MESSAGE = 5
    SCHEDULED = 10


def priority_of(*, owner: bool, conductor: bool = False) -> int:
    """Return how soon a message is answered, by who wrote it and, once that is known, who answers.

    See docs/decisions.md: priorities.
    """
    return Priority.OWNER if owner else Priority.CONDUCTOR if conductor else Priority.MESSAGE


class Precedence(Value):
    """How soon work is done: its priority, and the share of those who wait to whom it belongs.

    ``key`` is the client who pays, else the channel, as an id or a digest of at most 64 bytes that says no name; empty
    where all share alike. ``weight`` is how much more than others of weight 1 it is given.
    """

    priority: int = Priority.MESSAGE
    key: str = ""
    weight: float = 1.0

    @property
    def in_background(self) -> bool:
        """Say whether the work of people goes first; room may be kept from it for them."""
        return behind_people(self.priority)

    @property
    def in_order(self) -> "Precedence":
        """The same without fairness: among equals, first come is first served."""
        return Precedence(priority=self.priority)


def behind_people(priority: int) -> bool:
    """Say whether the work of people goes before work of this priority."""
    return priority > Priority.MESSAGE


def precedence_of(priority: int, client_id: int | None, weight: float | None, address: Address) -> Precedence:
    """Return how soon a job is done: its share is that of the client who pays, else of its channel.

    What somebody calls a channel may be a telephone number, so only a digest of it is told. ``weight`` is that of the
    client, None where there is no such client.
    """
    if client_id is not None:
        return Precedence(priority=priority, key=f"client:{client_id}", weight=weight or 1.0)
    place = "\0".join((address.platform, address.account, address.channel))
    digest = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=CHANNEL_DIGEST_BYTES).hexdigest()
    return Precedence(priority=priority, key=f"channel:{digest}")
