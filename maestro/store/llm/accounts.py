"""Queries for accounts of model providers, and cool-downs that all workers share (docs/decisions.md: failover)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, delete, inspect, update
from sqlalchemy import select as columns
from sqlmodel import col, or_, select

from maestro.domain.errors import Conflict
from maestro.domain.llm.accounts import (
    DEMO,
    QUOTA_WAIT,
    WHOLE_ACCOUNT,
    AccountLimit,
    AccountModel,
    AccountSource,
    AccountStatus,
    ModelAccount,
    cool_down_length,
)
from maestro.domain.llm.calls import AuthenticationFailed, LLMCall, QuotaExhausted, RateLimited
from maestro.domain.llm.prompts import CallKey
from maestro.store.cache import cached_by_version
from maestro.store.engine.repository import Repository, require_found
from maestro.store.engine.statements import PreparedStatement, is_one_of
from maestro.store.jobs.jobs import Jobs

_CONFIGURED = (
    *("type", "provider", "model", "models", "base_url", "home_dir", "priority", "requests_per_minute"),
    *("tokens_per_minute", "concurrency", "source", "fingerprint", "secret", "last4"),
)
"""The columns of an account that come from the configuration; the other columns are the account's state."""


class Accounts(Repository):
    """Queries for accounts of model providers, and for the cool-downs of an account's models."""

    _IN_ORDER = (col(ModelAccount.priority), col(ModelAccount.id))
    _ALL = PreparedStatement(select(ModelAccount).order_by(*_IN_ORDER))
    _HOLDS = and_(col(AccountLimit.limited_at) <= bindparam("at"), col(AccountLimit.limited_until) > bindparam("at"))
    _LIMITS = PreparedStatement(
        select(AccountLimit.account_id, AccountLimit.model, AccountLimit.limited_until).where(_HOLDS)
    )
    _WITH_LIMITS = PreparedStatement(
        columns(*inspect(ModelAccount).c, col(AccountLimit.model), col(AccountLimit.limited_until))
        .outerjoin(AccountLimit, and_(col(AccountLimit.account_id) == col(ModelAccount.id), _HOLDS))
        .order_by(*_IN_ORDER)
    )
    _BEST = PreparedStatement(
        select(ModelAccount.provider, ModelAccount.model)
        .order_by(col(ModelAccount.status) != AccountStatus.ACTIVE, col(ModelAccount.priority), col(ModelAccount.id))
        .limit(1)
    )
    _OF_NAME = col(ModelAccount.name) == bindparam("of_name")
    _COUNT = PreparedStatement(
        update(ModelAccount)
        .where(_OF_NAME)
        .values(
            calls=col(ModelAccount.calls) + 1,
            spent_usd=col(ModelAccount.spent_usd) + bindparam("cost"),
            last_used_at=bindparam("at"),
        )
        .returning(col(ModelAccount.id), col(ModelAccount.rate_limited_until))
    )
    _SPEND = PreparedStatement(
        update(ModelAccount)
        .where(
            col(ModelAccount.name)
            == select(LLMCall.account)
            .where(
                col(LLMCall.job_id) == bindparam("of_job"),
                col(LLMCall.purpose) == bindparam("its_purpose"),
                col(LLMCall.number) == bindparam("its_number"),
                col(LLMCall.attempt) == bindparam("its_attempt"),
            )
            .scalar_subquery()
        )
        .values(spent_usd=col(ModelAccount.spent_usd) + bindparam("cost"))
    )
    _EXPIRED = delete(AccountLimit).where(
        is_one_of(col(AccountLimit.model), (WHOLE_ACCOUNT, bindparam("of_model"))),
        or_(col(AccountLimit.limited_at) > bindparam("at"), col(AccountLimit.limited_until) <= bindparam("at")),
    )
    _FORGIVE = PreparedStatement(_EXPIRED.where(col(AccountLimit.account_id) == bindparam("of_account")))
    _FORGIVE_LATER = PreparedStatement(
        _EXPIRED.where(col(AccountLimit.account_id) == select(ModelAccount.id).where(_OF_NAME).scalar_subquery())
    )

    def list_accounts(self) -> Sequence[ModelAccount]:
        """Return all accounts as read-only rows, in failover order."""
        return self._read_models(self._ALL, ModelAccount)

    def list_with_limits(self) -> tuple[Sequence[ModelAccount], Mapping[AccountModel, datetime]]:
        """Return the results of ``list_accounts`` and ``read_cooldown_ends``, both read by one statement."""
        accounts: dict[int, ModelAccount] = {}
        limits: dict[AccountModel, datetime] = {}
        for *row, model, until in self._read_rows(self._WITH_LIMITS, at=self._now):
            account = self._WITH_LIMITS.convert_row(ModelAccount, row)
            accounts.setdefault(account.id or 0, account)
            if until is not None:
                limits[account.id or 0, model] = until
        return list(accounts.values()), limits

    def find_account_by_name(self, name: str) -> ModelAccount | None:
        """Return the account with this name, or None if there is none."""
        return self._find_first(select(ModelAccount).where(ModelAccount.name == name))

    def get_account(self, name: str) -> ModelAccount:
        """Return the account with this name; raises ``NotFound``."""
        missing = f"there is no account {name!r}; `maestro accounts list` shows all accounts"
        return require_found(self.find_account_by_name(name), missing)

    def read_cooldown_ends(self, at: datetime | None = None) -> Mapping[AccountModel, datetime]:
        """Return the ends of the cool-downs at a time, by account and model; other models have no cool-down.

        For a time in the past, only the last cool-down of each model is known.
        """
        return {(account, model): until for account, model, until in self._read_rows(self._LIMITS, at=at or self._now)}

    @cached_by_version("accounts")
    def find_default_model(self) -> str:
        """Return ``provider/model`` of the first account in failover order, or the demo model without accounts.

        If all accounts are disabled, the first of them still counts: the demo model's context window must not shorten
        conversations.
        """
        best = self._read_row(self._BEST)
        return "/".join(best) if best is not None else DEMO

    def set_configured(self, accounts: Sequence[ModelAccount]) -> None:
        """Store the accounts of the configuration and the environment; delete stored accounts that neither names.

        Accounts that were added by the API stay, unless a configured account has the same name. A new key, address or
        login ends the cool-downs of an account, and activates an account whose key was refused.
        """
        named = {account.name for account in accounts}
        for former in self.list_accounts():
            if former.source is not AccountSource.API and former.name not in named:
                self._delete(self.get_account(former.name))
        for account in accounts:
            self._set_configured(account)

    def add_account(self, account: ModelAccount) -> ModelAccount:
        """Add an account; raises ``Conflict`` when its name is in use."""
        if self.find_account_by_name(account.name) is not None:
            raise Conflict(f"there is an account {account.name!r} already; choose another name")
        self._save(account)
        self._wake_waiting_jobs()
        return account

    def change_account(self, name: str, changes: Mapping[str, object]) -> ModelAccount:
        """Change an account; a new key or the status active also ends the account's cool-downs.

        Raises ``Conflict`` if the account was not added by the API and the change is not only of the status.
        """
        account = self.get_account(name)
        if account.source is not AccountSource.API and set(changes) - {"status"}:
            raise Conflict(_origin_refusal(account, "change it there and restart"))
        for column, value in changes.items():
            setattr(account, column, value)
        if "secret" in changes and "status" not in changes:
            account.status = AccountStatus.ACTIVE
        if changes.get("status") is AccountStatus.DISABLED:
            account.last_error = ""  # A new key activates only accounts with a key error.
        elif {"status", "secret"} & set(changes):
            self._end_cooldowns(account)
        self._save(account)
        self._wake_waiting_jobs()
        return account

    def remove_account(self, name: str) -> None:
        """Remove an account that was added by the API; raises ``Conflict`` for any other account."""
        account = self.get_account(name)
        if account.source is not AccountSource.API:
            raise Conflict(_origin_refusal(account, "take it out there and restart, or disable it"))
        self._delete(account)

    def record_success(self, name: str, model: str, cost_usd: float | None) -> None:
        """Count an answer and its cost for an account and model, and delete their expired cool-downs.

        A cool-down that has not expired stays, because the call may have begun before the cool-down.
        """
        counted = {"of_name": name, "cost": cost_usd or 0.0, "at": self._now}
        if self._link.scoped is not None:  # One round trip, and so a short lock, instead of a second one if needed
            self._write_shared(self._COUNT, **counted)
            self._write_shared(self._FORGIVE_LATER, of_name=name, of_model=model, at=self._now)
            return
        for account_id, limited_until in self._run_returning(self._COUNT, **counted):
            # None: the account had no cool-down since its last reset, so there is no row to delete.
            if limited_until is not None:
                self._run_change(self._FORGIVE, of_account=account_id, of_model=model, at=self._now)

    def add_cost(self, key: CallKey, attempt: int, cost_usd: float) -> None:
        """Add the cost of a failed attempt to the account that the attempt used."""
        which = {"of_job": key.job_id, "its_purpose": key.purpose, "its_number": key.number, "its_attempt": attempt}
        self._write_shared(self._SPEND, cost=cost_usd, **which)

    def cool_down(
        self, name: str, model: str, requested_wait: timedelta | None, ladder: Sequence[timedelta]
    ) -> datetime | None:
        """Begin a cool-down of an account's model, and return its end; the provider may have requested a wait.

        A failure during a cool-down comes from a call that began before it, and does not lengthen the next cool-down.
        """
        account = self.record_error(name, RateLimited.__name__)
        if account is None:
            return None
        limit = self._read_cooldown(account, model)
        if limit.strikes and limit.is_in_force(self._now):
            return self._extend_cooldown(account, limit, requested_wait or timedelta())
        limit.strikes += 1
        return self._extend_cooldown(account, limit, cool_down_length(limit.strikes, requested_wait, ladder))

    def begin_quota_wait(self, name: str, requested_wait: timedelta | None) -> datetime | None:
        """Begin a cool-down of an account until its quota renews (``QUOTA_WAIT`` if unknown); return its end."""
        account = self.record_error(name, QuotaExhausted.__name__)
        if account is None:
            return None
        return self._extend_cooldown(account, self._read_cooldown(account, WHOLE_ACCOUNT), requested_wait or QUOTA_WAIT)

    def disable_refused(self, account: ModelAccount) -> bool:
        """Disable an account with a refused key; return false if the account was changed after the call began."""
        row = self.find_account_by_name(account.name)
        if row is None or row.updated_at != account.updated_at:
            return False
        self.record_error(account.name, AuthenticationFailed.__name__)
        row.status = AccountStatus.DISABLED
        self._save_objects(row)
        return True

    def record_error(self, name: str, error: str) -> ModelAccount | None:
        """Store the name of an account's last error; return the account, or None if it was removed."""
        account = self.find_account_by_name(name)
        if account is not None:
            account.last_error, account.last_error_at = error, self._now
            self._save_objects(account)
        return account

    def _set_configured(self, account: ModelAccount) -> None:
        row = self.find_account_by_name(account.name)
        if row is None:
            self._save(account)
            self._wake_waiting_jobs()
            return
        renewed = row.fingerprint != account.fingerprint
        if not renewed and all(getattr(row, name) == getattr(account, name) for name in _CONFIGURED):
            return
        for name in _CONFIGURED:
            setattr(row, name, getattr(account, name))
        if renewed and row.last_error == AuthenticationFailed.__name__:
            row.status = AccountStatus.ACTIVE
        if renewed:
            self._end_cooldowns(row)
        self._save(row)
        self._wake_waiting_jobs()

    def _save(self, account: ModelAccount) -> None:
        account.updated_at = self._now
        self._save_objects(account)

    def _delete(self, account: ModelAccount) -> None:
        self._end_cooldowns(account)
        self._delete_object(account)
        # Without this, a job that waits for the deleted account would never resume.
        self._wake_waiting_jobs()

    def _end_cooldowns(self, account: ModelAccount) -> None:
        """End all cool-downs of an account, and forget the failures that would lengthen the next cool-down."""
        self._run_statement(delete(AccountLimit).where(col(AccountLimit.account_id) == account.id))
        account.rate_limited_until, account.last_error = None, ""

    def _read_cooldown(self, account: ModelAccount, model: str) -> AccountLimit:
        """Return the stored cool-down of an account's model, or a new one that has already expired."""
        return self._session.get(AccountLimit, (account.id or 0, model)) or AccountLimit(
            account_id=account.id or 0, model=model, strikes=0, limited_at=self._now, limited_until=self._now
        )

    def _extend_cooldown(self, account: ModelAccount, limit: AccountLimit, wait: timedelta) -> datetime:
        """Extend a cool-down to at least ``wait`` from now, store its end with the account, and return the end."""
        until = self._now + wait
        if limit.is_in_force(self._now):
            limit.limited_until = max(limit.limited_until, until)
        else:
            limit.limited_at, limit.limited_until = self._now, until
        seen = account.rate_limited_until
        account.rate_limited_until = max(seen, limit.limited_until) if seen else limit.limited_until
        self._save_objects(account, limit)
        return limit.limited_until

    def _wake_waiting_jobs(self) -> None:
        Jobs(self._link, self._now).wake_for_models()


def _origin_refusal(account: ModelAccount, fix: str) -> str:
    origin = "the environment" if account.source is AccountSource.ENVIRONMENT else "the configuration (llm.accounts)"
    return f"the account {account.name!r} comes from {origin}; {fix}"
