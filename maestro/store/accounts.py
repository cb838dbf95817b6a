"""Accounts at model providers and their limits, where every worker sees them (decision 10)."""


from sqlalchemy import bindparam
from sqlmodel import col, delete, or_, select, update

from maestro.domain.accounts import (
    WHOLE_ACCOUNT,
    AccountLimit,
    ModelAccount,
)
from maestro.store.repository import Repository

REFUSED = "AuthenticationFailed"
"""The last error of an account whose key was refused; a new key makes such an account active again."""


class Accounts(Repository):
    """All accounts; what they are called by is their name."""

    _ALL = select(ModelAccount).order_by(col(ModelAccount.priority), col(ModelAccount.id))
    _HOLDING = (
        col(AccountLimit.limited_at) <= bindparam("at"),
        col(AccountLimit.limited_until) > bindparam("at"),
    )
    _LIMITS = select(AccountLimit.account_id, AccountLimit.model, AccountLimit.limited_until).where(*_HOLDING)
    _OF_NAME = col(ModelAccount.name) == bindparam("of_name")
    _COUNT = (
        update(ModelAccount)
        .where(_OF_NAME)
        .values(
            calls=col(ModelAccount.calls) + 1,
            spent_usd=col(ModelAccount.spent_usd) + bindparam("cost"),
            last_used_at=bindparam("at"),
        )
    )
    _FORGIVE = delete(AccountLimit).where(
        col(AccountLimit.account_id) == select(ModelAccount.id).where(_OF_NAME).scalar_subquery(),
        col(AccountLimit.model).in_([WHOLE_ACCOUNT, bindparam("of_model")]),
        or_(col(AccountLimit.limited_at) > bindparam("at"), col(AccountLimit.limited_until) <= bindparam("at")),
    )

    def succeeded(self, name: str, model: str, cost_usd: float | None) -> None:
        """Note that the account answered with this model, which ends its row of limits.

        A limit that still holds stays: what was under way when it began says nothing about it.
        """
        self._run(self._COUNT, of_name=name, cost=cost_usd or 0.0, at=self._now)
        self._run(self._FORGIVE, of_name=name, of_model=model, at=self._now)
