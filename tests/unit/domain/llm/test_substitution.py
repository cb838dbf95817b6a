"""Which answers came from another model or account than the agent's, and the reason that is given."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from maestro.domain.llm.accounts import DEMO, WHOLE_ACCOUNT, AccountSource, AccountStatus, ModelAccount
from maestro.domain.llm.calls import CallState, FirstChoice, LLMCall, find_substitution

NOW = datetime(2026, 11, 20, 10, 32, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
SONNET = "anthropic/claude-sonnet-4-6"


def account(number: int, name: str, provider: str, model: str, **fields: Any) -> ModelAccount:
    given = {"priority": 10 * number, "source": AccountSource.API, "created_at": NOW, "updated_at": NOW, **fields}
    return ModelAccount(id=number, name=name, provider=provider, model=model, **given)


MAIN = account(1, "main", "anthropic", "claude-sonnet-4-6")
SPARE = account(2, "spare", "openai", "gpt-4o-mini")


def call(account: str, model: str, state: CallState = CallState.ANSWERED, error: str = "") -> LLMCall:
    return LLMCall(
        job_id="j",
        number=1,
        attempt=1,
        state=state,
        request="",
        account=account,
        model=model,
        error=error,
        started_at=NOW,
    )


def reason(calls: list[LLMCall], first: FirstChoice) -> str | None:
    found = find_substitution(calls, first)
    return found.reason if found is not None else None


@pytest.mark.parametrize("model", [SONNET, "claude-sonnet-4-6", ""])
@pytest.mark.parametrize("answered", ["claude-sonnet-4-6", "claude-sonnet-4-6-20260101"])
def test_the_first_choice_is_no_substitution(model: str, answered: str) -> None:
    assert find_substitution([call("main", answered)], FirstChoice(model, (MAIN, SPARE), {})) is None


def test_accounts_of_one_priority_are_all_first_choices() -> None:
    twin = account(3, "twin", "anthropic", "claude-haiku-4-5", priority=MAIN.priority)
    assert find_substitution([call("twin", "claude-sonnet-4-6")], FirstChoice(SONNET, (MAIN, twin), {})) is None


def test_nothing_is_said_of_accounts_that_are_others_by_now() -> None:
    answer = call("spare", "gpt-4o-mini")
    newer = account(1, "main", "anthropic", "claude-sonnet-4-6", created_at=LATER)
    assert find_substitution([answer], FirstChoice("", (newer, SPARE), {})) is None
    assert find_substitution([answer], FirstChoice("", (MAIN,), {})) is None
    assert find_substitution([call(DEMO, DEMO)], FirstChoice("", (), {})) is None


def test_each_reason_names_what_stopped_the_first_choice() -> None:
    answer = call("spare", "gpt-4o-mini")
    both = (MAIN, SPARE)
    failed = call("main", "claude-sonnet-4-6", CallState.FAILED, "RateLimited")
    assert reason([failed, answer], FirstChoice(SONNET, both, {})) == "main failed with RateLimited"
    limited = FirstChoice(SONNET, both, {(1, WHOLE_ACCOUNT): LATER})
    assert reason([answer], limited) == "main was in cool-down until 2026-11-20 10:37:00 UTC"
    refused = account(1, "main", "anthropic", "claude-sonnet-4-6", status=AccountStatus.DISABLED)
    refused.last_error = "AuthenticationFailed"
    assert reason([answer], FirstChoice(SONNET, (refused, SPARE), {})) == "main is disabled: its key was refused"
    assert reason([answer], FirstChoice(SONNET, (SPARE,), {})) == f"no account serves {SONNET}"
    assert "budgets.fallbackModel" in str(reason([answer], FirstChoice(SONNET, both, {}, "openai/gpt-4o-mini")))
    assert "circuit breaker" in str(reason([answer], FirstChoice(SONNET, both, {})))
    found = find_substitution([answer], FirstChoice("", both, {}))
    assert found is not None
    assert (found.model, found.account, found.wanted) == ("gpt-4o-mini", "spare", "")


def test_a_job_without_an_answer_has_none() -> None:
    assert (
        find_substitution([call("main", "x", CallState.FAILED, "RateLimited")], FirstChoice(SONNET, (MAIN,), {}))
        is None
    )
