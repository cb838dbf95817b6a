"""Which account a call goes to, and for how long a limited one is left alone (docs/decisions.md: failover)."""

from datetime import UTC, datetime, timedelta

import pytest

from maestro.domain.llm.accounts import (
    WHOLE_ACCOUNT,
    AccountLimit,
    AccountSource,
    AccountStatus,
    ModelAccount,
    choose_account,
    cool_down_length,
    first_recovery,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOON, LATER = NOW + timedelta(minutes=1), NOW + timedelta(hours=1)
LADDER = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 25, 60))


def account(account_id: int, name: str, provider: str, model: str, **values: object) -> ModelAccount:
    """An account as the store has it."""
    row = ModelAccount(
        id=account_id,
        name=name,
        provider=provider,
        model=model,
        source=AccountSource.CONFIGURATION,
        created_at=NOW,
        updated_at=NOW,
    )
    for column, value in values.items():
        setattr(row, column, value)
    return row


CLAUDE = account(1, "claude", "anthropic", "claude-haiku-4-5", priority=20)
SPARE = account(2, "spare", "anthropic", "claude-sonnet-4-6", priority=30)
GPT = account(3, "gpt", "openai", "gpt-4o-mini", priority=10)
LOCAL = account(4, "local", "ollama", "qwen2.5-coder:7b", priority=200)
ROUTER = account(5, "router", "openrouter", "anthropic/claude-sonnet-4", priority=60)
ALL = (LOCAL, SPARE, CLAUDE, ROUTER, GPT)


def chosen(*wanted: str, **how: object) -> tuple[str, str] | None:
    """Return the name of the account and its model."""
    one = choose_account(how.pop("accounts", ALL), wanted, how.pop("limited", {}), **how)  # type: ignore[arg-type]
    return (one.account.name, one.model) if one else None


# Who is asked


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", ("gpt", "gpt-4o-mini")),
        ("anthropic/claude-opus-4-6", ("claude", "claude-opus-4-6")),
        ("claude-opus-4-6", ("claude", "claude-opus-4-6")),
        ("gpt-4.1", ("gpt", "gpt-4.1")),
        ("OpenAI/gpt-4.1", ("gpt", "gpt-4.1")),
        ("openrouter/google/gemini-2.5-pro", ("router", "google/gemini-2.5-pro")),
        ("qwen2.5-coder:7b", ("local", "qwen2.5-coder:7b")),
        ("gemini/gemini-2.5-pro", ("gpt", "gpt-4o-mini")),
        ("something-unheard-of", ("gpt", "gpt-4o-mini")),
    ],
)
def test_the_wanted_provider_goes_before_priority(wanted: str, expected: tuple[str, str]) -> None:
    assert chosen(wanted) == expected


def test_nobody_is_chosen_of_nobody() -> None:
    assert chosen("anthropic/claude-opus-4-6", accounts=()) is None


def test_the_fallbacks_come_in_their_order_before_anybody_else() -> None:
    limited = {(1, WHOLE_ACCOUNT): SOON, (2, WHOLE_ACCOUNT): SOON}
    wanted = ("claude-opus-4-6", "ollama/llama3.1", "openrouter/auto")
    assert chosen(*wanted, limited=limited) == ("local", "llama3.1")
    assert chosen(*wanted, limited=limited, tried={(4, "llama3.1")}) == ("router", "openrouter/auto")
    assert chosen(*wanted, limited=limited, tried={(4, "llama3.1"), (5, "openrouter/auto")}) == ("gpt", "gpt-4o-mini")


def test_somebody_else_is_asked_for_a_model_of_their_own() -> None:
    limited = {(1, WHOLE_ACCOUNT): SOON, (2, WHOLE_ACCOUNT): SOON}
    assert chosen("anthropic/claude-opus-4-6", limited=limited) == ("gpt", "gpt-4o-mini")


def test_the_model_of_another_vendor_goes_to_the_account_that_names_it() -> None:
    assert chosen("anthropic/claude-sonnet-4", accounts=(ROUTER, GPT)) == ("router", "anthropic/claude-sonnet-4")
    lab = account(7, "lab", "openai", "openai/gpt-oss-20b")
    assert chosen("openai/gpt-oss-20b", accounts=(lab,)) == ("lab", "openai/gpt-oss-20b")
    listing = account(6, "listing", "openrouter", "auto", models="meta/llama qwen/qwen3")
    assert chosen("meta/llama", accounts=(GPT, listing)) == ("listing", "meta/llama")


def test_an_account_that_lists_models_is_asked_for_no_other() -> None:
    choosy = account(6, "choosy", "anthropic", "claude-haiku-4-5", models="claude-sonnet-4-6", priority=1)
    assert chosen("claude-sonnet-4-6", accounts=(choosy, CLAUDE)) == ("choosy", "claude-sonnet-4-6")
    assert chosen("claude-haiku-4-5", accounts=(choosy, CLAUDE)) == ("choosy", "claude-haiku-4-5")
    assert chosen("claude-opus-4-6", accounts=(choosy, CLAUDE)) == ("claude", "claude-opus-4-6")


def test_of_equal_priorities_the_one_that_was_asked_least_is_chosen() -> None:
    busy, idle = account(1, "busy", "openai", "m", calls=7), account(2, "idle", "openai", "m", calls=3)
    assert chosen(accounts=(busy, idle)) == ("idle", "m")
    assert chosen(accounts=(busy, idle), underway={2: 5}) == ("busy", "m")
    twins = account(1, "first", "openai", "m"), account(2, "second", "openai", "m")
    assert chosen(accounts=twins[::-1]) == ("first", "m")


def test_a_disabled_account_is_never_chosen() -> None:
    off = account(6, "off", "openai", "m", priority=1, status=AccountStatus.DISABLED)
    assert chosen("openai/m", accounts=(off, LOCAL)) == ("local", "qwen2.5-coder:7b")


# Who is left alone


def test_a_limited_model_leaves_the_others_of_its_account_free() -> None:
    limited = {(1, "claude-opus-4-6"): SOON, (2, WHOLE_ACCOUNT): SOON}
    assert chosen("claude-opus-4-6", "claude-haiku-4-5", limited=limited) == ("claude", "claude-haiku-4-5")


def test_who_has_the_wanted_model_is_not_asked_for_another_one_instead() -> None:
    limited = {(3, "gpt-4.1"): SOON}
    assert chosen("gpt-4.1", limited=limited) == ("claude", "claude-haiku-4-5")
    assert chosen("gpt-4.1", limited=limited, accounts=(GPT,)) is None
    assert chosen("gpt-4.1", "openai/gpt-4o", limited=limited, accounts=(GPT,)) == ("gpt", "gpt-4o")
    assert first_recovery((GPT,), ("gpt-4.1",), limited) == SOON


def test_nothing_is_tried_twice_in_one_call() -> None:
    assert chosen("gpt-4.1", accounts=(GPT, LOCAL), tried={(3, "gpt-4.1")}) == ("local", "qwen2.5-coder:7b")
    assert chosen("gpt-4.1", "openai/o3", accounts=(GPT,), tried={(3, "gpt-4.1")}) == ("gpt", "o3")
    assert chosen("gpt-4.1", "openai/o3", accounts=(GPT,), tried={(3, WHOLE_ACCOUNT)}) is None


def test_the_soonest_of_all_limits_is_told() -> None:
    limited = {(3, "gpt-4o-mini"): LATER, (4, WHOLE_ACCOUNT): SOON}
    assert first_recovery((GPT, LOCAL), (), limited) == SOON
    assert first_recovery((GPT,), (), limited) == LATER
    assert first_recovery((GPT,), (), {(3, "gpt-4o-mini"): SOON, (3, WHOLE_ACCOUNT): LATER}) == LATER


def test_nobody_waits_for_a_model_that_the_request_is_too_large_for() -> None:
    limited = {(3, "gpt-4o-mini"): LATER, (4, WHOLE_ACCOUNT): SOON}
    assert first_recovery((GPT, LOCAL), (), limited, {(4, "qwen2.5-coder:7b")}) == LATER
    assert first_recovery((LOCAL,), (), limited, {(4, "qwen2.5-coder:7b")}) is None


def test_a_fallback_that_is_free_sooner_counts() -> None:
    limited = {(3, "gpt-4o-mini"): LATER, (3, "gpt-4.1"): SOON}
    assert first_recovery((GPT,), ("openai/gpt-4.1",), limited) == SOON


def test_without_a_limit_there_is_nothing_to_wait_for() -> None:
    assert first_recovery(ALL, (), {}) is None
    off = account(6, "off", "openai", "m", status=AccountStatus.DISABLED)
    assert first_recovery((off,), (), {(6, "m"): SOON}) is None


# For how long


@pytest.mark.parametrize(("strikes", "minutes"), [(1, 1), (2, 5), (3, 25), (4, 60), (9, 60)])
def test_the_ladder_is_climbed_a_step_for_each_limit_in_a_row(strikes: int, minutes: int) -> None:
    assert cool_down_length(strikes, None, LADDER) == timedelta(minutes=minutes)


def test_what_the_provider_asks_counts_when_it_is_longer() -> None:
    assert cool_down_length(1, timedelta(seconds=2), LADDER) == timedelta(minutes=1)
    assert cool_down_length(1, timedelta(hours=3), LADDER) == timedelta(hours=3)


def test_a_limit_holds_from_its_beginning_to_its_end() -> None:
    limit = AccountLimit(account_id=1, model="m", strikes=1, limited_at=NOW, limited_until=SOON)
    assert limit.is_in_force(NOW)
    assert not limit.is_in_force(SOON)
    assert not limit.is_in_force(NOW - timedelta(seconds=1))
