"""What a request is expected to cost: at least its input, at most its longest answer, nothing where nobody knows."""

import pytest

from maestro.domain.llm.accounts import AccountChoice, AccountSource, AccountType, ModelAccount
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.models import Price, estimate_input
from maestro.llm.accounts import Estimates
from maestro.llm.protocols import Account
from tests.support.job_rows import MORNING
from tests.support.llm_fakes import Accounts
from tests.support.llm_requests import request_of

MAIN = Account("main", "anthropic", "claude-haiku-4-5")
PLAN = Account("plan", "anthropic", "claude-haiku-4-5", AccountType.CLI)
PRICES = {"anthropic/claude-haiku-4-5": Price(1000, 5000, cached_share=0.1, cache_write_share=1.25)}
ESTIMATES = Estimates(Accounts([MAIN, PLAN]), PRICES.get)
TOKENS = estimate_input(request_of())


@pytest.mark.parametrize(
    ("account", "model", "usd"),
    [("main", "claude-haiku-4-5", TOKENS / 1000), ("main", "claude-next", None), ("plan", "claude-haiku-4-5", 0)],
)
def test_a_request_costs_its_input_at_least(account: str, model: str, usd: float | None) -> None:
    request = request_of().model_copy(update={"account": account, "model": model})
    assert ESTIMATES.estimate_minimum(request) == CallEstimate("anthropic", model, TOKENS, usd, account)


def test_a_request_to_an_account_that_is_gone_has_no_price() -> None:
    request = request_of().model_copy(update={"account": "gone", "model": "claude-haiku-4-5"})
    assert ESTIMATES.estimate_minimum(request) == CallEstimate("", "claude-haiku-4-5", TOKENS, None, "gone")


@pytest.mark.parametrize(
    ("kind", "model", "usd"),
    [
        (AccountType.API_KEY, "claude-haiku-4-5", 1.25 + 0.5),
        (AccountType.API_KEY, "claude-next", None),
        (AccountType.CLI, "claude-haiku-4-5", 0),
    ],
)
def test_a_call_costs_its_longest_answer_at_most_and_a_prompt_that_is_kept(
    kind: AccountType, model: str, usd: float | None
) -> None:
    account = ModelAccount(
        name="main",
        type=kind,
        provider="anthropic",
        model=model,
        source=AccountSource.CONFIGURATION,
        created_at=MORNING,
        updated_at=MORNING,
    )
    assert ESTIMATES.max_usd(AccountChoice(account, model), input_tokens=1000, output_tokens=100) == usd
