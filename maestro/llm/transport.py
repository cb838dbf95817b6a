"""The end of the chain: hands a request to who can reach its account."""

from dataclasses import dataclass

from maestro.domain.llm.accounts import DEMO, AccountType
from maestro.domain.llm.errors import NoAccount
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.litellm_library import Library
from maestro.llm.protocols import Account, AccountClient, Directory


@dataclass(frozen=True)
class Clients:
    """Who reaches an account: over HTTP, through the command of a subscription, or without any."""

    http: AccountClient
    command: AccountClient
    demo: AccountClient

    def of(self, account: Account) -> AccountClient:
        """Return who reaches this account."""
        if account.provider == DEMO:
            return self.demo
        return self.command if account.type is AccountType.CLI else self.http


class Transport:
    """Asks the account that was chosen, once."""

    def __init__(self, directory: Directory, clients: Clients, library: Library) -> None:
        self._directory = directory
        self._clients = clients
        self._library = library

    async def ready(self, request: LLMRequest) -> None:
        """Return when the request can be sent at once; for one over HTTP that is when the library is imported."""
        account = self._directory.find(request.account)
        if account is not None and self._clients.of(account) is self._clients.http:
            await self._library.loaded()

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer the request; raises ``NoAccount`` when its account left after it was chosen."""
        account = self._directory.find(request.account)
        if account is None:
            raise NoAccount(f"This process has no account {request.account!r}; see `maestro accounts list`.")
        return await self._clients.of(account).ask(account, request)
