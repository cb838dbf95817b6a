"""The interfaces for model calls: clients, middleware around a transport, and the accounts of providers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import SecretStr

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.prompts import LLMRequest, LLMResponse


class LLMClient(Protocol):
    """A client that answers a request: the transport, or a middleware around another client."""

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request once, without retrying; raises an ``LLMFailure``."""
        ...


Middleware = Callable[[LLMClient], LLMClient]
"""A function that wraps a client in another client with one further task; a chain's first middleware is outermost."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account at a provider, with the data for calling it.

    ``model`` is the default model. An empty ``base_url`` means the provider's public address, an empty ``home_dir`` the
    default folder of the command ``claude``. Limits per minute: 0 means no limit. ``concurrency`` 0 means the default
    of the settings.
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


class AttemptNotes(Protocol):
    """A short note that an attempt at a step leaves for the next attempt, wherever that runs, outside of the store."""

    async def leave(self, *note: str) -> None:
        """Leave a note in the place of an earlier one; does nothing when it cannot be left in a moment."""
        ...

    def read(self) -> Sequence[str]:
        """Return the note of an earlier attempt at the step that runs; empty if there is none."""
        ...


class AccountDirectory(Protocol):
    """A lookup of the accounts that this process can call."""

    def find(self, name: str) -> Account | None:
        """Return the account with this name; None when this process does not have the account. Never blocks."""
        ...


class AccountClient(Protocol):
    """A client that sends exactly one request to one account, for the model ``request.model``."""

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer the request with exactly one call of the account; raises an ``LLMFailure``."""
        ...


def chain_middleware(transport: LLMClient, *middleware: Middleware) -> LLMClient:
    """Wrap the transport in middleware: the first middleware sees a request first and its response last."""
    client = transport
    for wrap in reversed(middleware):
        client = wrap(client)
    return client
