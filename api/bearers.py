"""Agents outside, told apart by bearer tokens; whoever guesses them is slowed down and noted, as with passwords."""

from fastapi import Request

from api.errors import BEARER, Unauthorized
from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.agents.tokens import Holder, use_is_news
from maestro.domain.errors import Forbidden
from maestro.domain.throttle import Throttle
from maestro.store.store import Clock, Store


class Bearers:
    """Lets agents in by their tokens."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._throttle = Throttle(clock, "tokens")

    def admit(self, request: Request) -> None:
        """Return if the request shows a token that holds, and note whose it is.

        Raises ``Unauthorized``, ``TooManyAttempts``, or ``Forbidden`` for an agent that is paused.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("Send the token of an agent: Authorization: Bearer mst_...", challenge=BEARER)
        holder = self._holder(token.strip())
        if holder is None:
            self._refuse(request.client.host if request.client else "")
            raise Unauthorized(
                "This token is unknown or revoked, or its agent is archived. `maestro agents token new` makes another.",
                challenge=BEARER,
            )
        if holder.agent.status is not AgentStatus.ACTIVE:
            raise Forbidden(
                f"Agent {holder.agent.slug} is {holder.agent.status}; its tokens hold again when it is active."
            )
        request.state.caller = holder.agent

    def _holder(self, token: str) -> Holder | None:
        with self._store.view() as tx:
            holder, now = tx.agent_tokens.holder(token), tx.now
        if holder is None or holder.agent.status is AgentStatus.ARCHIVED:
            return None
        if use_is_news(holder.token, now):
            with self._store.begin() as tx:
                tx.agent_tokens.used(holder.token)
        return holder

    def _refuse(self, address: str) -> None:
        """Count a wrong token and note it; raises ``TooManyAttempts`` while none is looked at.

        A token that holds is never locked out with the wrong ones of its address: one machine may run many agents, and
        nobody guesses 256 random bits.
        """
        self._throttle.refuse(address)
        with self._store.begin() as tx:
            tx.audit.add("unknown", "token.failed", address)


def caller(request: Request) -> Agent:
    """Return the agent whose token a request showed."""
    found = request.state.caller
    assert isinstance(found, Agent)
    return found
