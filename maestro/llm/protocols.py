"""The protocol of model calls: a request, a response, and middleware around the transport."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import SecretStr

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.prompts import LLMRequest, LLMResponse


class LLMClient(Protocol):
    """Anything that answers a request: the transport, or a middleware around another client."""

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request once, without retrying; raises an ``LLMFailure``."""
        ...


Middleware = Callable[[LLMClient], LLMClient]
"""Wraps a client into another one that adds one concern; the first of a chain is the outermost."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account at a provider, with the data for calling it.

    ``model`` is its own; ``base_url`` is empty for the provider's own address, ``home_dir`` for the command's usual
    one. The limits are per minute and at once, 0 for none.
    """

    name: str
    provider: str
    model: str
    type: AccountType = AccountType.API_KEY
    api_key: SecretStr = field(default=SecretStr(""))
    base_url: str = ""
    home_dir: str = ""
    priority: int = 20
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0


class Directory(Protocol):
    """The accounts this process can call."""

    def find(self, name: str) -> Account | None:
        """Return the account of this name, None when this process does not have it; never blocks."""
        ...


class AccountClient(Protocol):
    """Asks one account for ``request.model``, with exactly one request; raises an ``LLMFailure``."""

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer the request."""
        ...


def chain(transport: LLMClient, *middleware: Middleware) -> LLMClient:
    """Wrap the transport so that the first middleware sees a request first and its response last."""
    client = transport
    for wrap in reversed(middleware):
        client = wrap(client)
    return client
