"""The end of the chain: whose request goes over HTTP, whose through the command, and whose to the demo model."""

import pytest

from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.calls import NoAccount
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.accounts import DEMO_ACCOUNT
from maestro.llm.litellm_client import AccountTransport, LiteLLMLibrary
from maestro.llm.protocols import Account
from tests.support.llm_requests import request_of, response_of

ACCOUNTS = {
    "key": Account("key", "anthropic", "m"),
    "max": Account("max", "anthropic", "m", AccountType.CLI),
    "demo": DEMO_ACCOUNT,
}


class Known:
    """Knows these accounts."""

    def find(self, name: str) -> Account | None:
        """Return one of them."""
        return ACCOUNTS.get(name)


class Client:
    """Says who it is and whom it was asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def ask(self, account: Account, request: LLMRequest) -> LLMResponse:
        """Answer."""
        return response_of(f"{self._name}: {account.name}, {request.account}")


TRANSPORT = AccountTransport(
    Known(), LiteLLMLibrary(), http=Client("http"), command=Client("command"), demo=Client("demo")
)


@pytest.mark.parametrize(("name", "who"), [("key", "http"), ("max", "command"), ("demo", "demo")])
async def test_a_request_goes_to_who_reaches_its_account(name: str, who: str) -> None:
    answer = await TRANSPORT.complete(request_of().model_copy(update={"account": name}))
    assert answer.content == f"{who}: {name}, {name}"


async def test_an_account_that_left_is_named() -> None:
    with pytest.raises(NoAccount, match="no account 'gone'"):
        await TRANSPORT.complete(request_of().model_copy(update={"account": "gone"}))
