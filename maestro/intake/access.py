"""Who somebody is, and who would answer them: what the door and the routing step both ask of the store."""

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.agents.routing import Route, RoutingRules, route
from maestro.domain.messages import IncomingMessage
from maestro.domain.people.permissions import AccessRules, DmPolicy, Person, refusal, stranger
from maestro.intake.arrival import person_of
from maestro.store.transaction import Transaction


class Access:
    """Decisions 2 and 3, over the store as it is now."""

    def __init__(self, access: AccessRules, routing: RoutingRules) -> None:
        self._access = access
        self._routing = routing

    def person(self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None) -> Person:
        """Return who sent a message; ``known`` counts as true where nobody has to be known to be answered.

        The store is asked for each message: who is made an owner, or let in, is so from the next message on.
        """
        who = person_of(message)
        is_owner = message.is_owner or str(who) in self._access.owners or tx.owners.has(who)
        bound = binding is not None and binding.permission is Permission.FULL
        free = is_owner or bound or not message.is_direct
        policy = self._access.policy(who.platform)
        return Person(who, is_owner, known=free or policy is DmPolicy.OPEN or tx.pairings.knows(who))

    def route(self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None) -> Route:
        """Return who answers a message."""
        return route(message, tx.routes.snapshot(message, binding, self._routing))

    def turned_away(
        self, person: Person, agent: Agent | None, message: IncomingMessage, binding: AgentChannel | None
    ) -> DmPolicy | None:
        """Return the policy that keeps a direct message of a stranger from being answered, or None."""
        policy = self._access.policy(message.address.platform)
        strange = message.is_direct and policy is not DmPolicy.OPEN and stranger(person, agent, binding)
        return policy if strange else None

    def agent(self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None) -> Agent | None:
        """Return the agent that answers a message, if one does."""
        found = self.route(tx, message, binding).agent
        return tx.agents.read(found.id) if found is not None else None

    def refusal(
        self, tx: Transaction, message: IncomingMessage, binding: AgentChannel | None, person: Person
    ) -> str | None:
        """Return why this person is not obeyed here, or None; where no agent answers, the channel alone decides."""
        if person.is_owner:
            return None
        return refusal(person, self.agent(tx, message, binding), binding)
