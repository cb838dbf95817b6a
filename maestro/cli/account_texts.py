"""Accounts as a person reads them."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from maestro.cli.pages import table_page
from maestro.cli.table import plain
from maestro.domain.llm.account_views import AccountState, AccountView
from maestro.domain.llm.accounts import AccountSource, AccountType

NOTHING = (
    "There are no accounts: the built-in demo model answers. Add one with `maestro accounts add`, or set a provider's "
    "key in the environment."
)
COLUMNS = ("name", "provider", "model", "state", "priority", "calls", "spent", "key", "from", "last error")
ORIGINS = {
    AccountSource.CONFIGURATION: "configuration",
    AccountSource.ENVIRONMENT: "environment",
    AccountSource.API: "added",
}


def listing(accounts: Sequence[AccountView]) -> Iterator[str]:
    """Yield a table of accounts."""
    yield from table_page(COLUMNS, list(map(_row, accounts)), NOTHING)


def portrait(account: AccountView) -> Iterator[str]:
    """Yield everything about an account."""
    yield f"{plain(account.name)}  {_state(account)}"
    facts = (
        ("type", "the command claude" if account.type is AccountType.CLI else "over HTTP"),
        ("provider", account.provider),
        ("model", account.model),
        ("also", ", ".join(account.models)),
        ("address", account.base_url),
        ("login", account.home_dir),
        ("key", _key(account)),
        ("priority", str(account.priority)),
        ("limits", ", ".join(_own_limits(account))),
        ("from", ORIGINS[account.source]),
        ("calls", str(account.calls)),
        ("spent", _dollars(account)),
        ("last used", _time(account.last_used_at) if account.last_used_at else ""),
        ("last error", _error(account)),
    )
    yield from (f"  {name:<11} {plain(value)}" for name, value in facts if value)
    for limit in account.limits:
        yield f"  {'left alone':<11} {plain(limit.model) or 'every model'} until {_time(limit.until)}"


def _row(account: AccountView) -> tuple[str, ...]:
    return (
        account.name,
        account.provider,
        account.model,
        _state(account),
        str(account.priority),
        str(account.calls),
        _dollars(account),
        _key(account) or "-",
        ORIGINS[account.source],
        account.last_error or "-",
    )


def _state(account: AccountView) -> str:
    if account.state is AccountState.LIMITED:
        return f"limited until {_time(account.rate_limited_until)}"
    return account.state


def _own_limits(account: AccountView) -> Iterator[str]:
    if account.requests_per_minute:
        yield f"{account.requests_per_minute} requests a minute"
    if account.tokens_per_minute:
        yield f"{account.tokens_per_minute} tokens a minute"
    if account.concurrency:
        yield f"{account.concurrency} at once"


def _key(account: AccountView) -> str:
    return account.reference or (f"...{account.last4}" if account.last4 else "")


def _error(account: AccountView) -> str:
    return f"{account.last_error} at {_time(account.last_error_at)}" if account.last_error else ""


def _dollars(account: AccountView) -> str:
    return f"{account.spent_usd:.4f} USD"


def _time(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else "-"
