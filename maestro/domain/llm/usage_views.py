"""Usage as operators see it, on the API and on the command line alike."""

import base64
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import date, timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from maestro.domain.llm.usage import Period, UsageBy, UsageMark, UsageOf, UsageSum, UsageWish
from maestro.domain.values import Value, View, readable_by
from maestro.domain.words import SearchText

DAYS = 30
"""Days that are shown when nobody says which."""
LIMIT = 100
MOST = 1000
EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)
"""Days that somebody may mean; further ones have no room for the days beside them."""

Day = Annotated[date, Field(ge=EARLIEST, le=LATEST)]
Wanted = Annotated[SearchText | None, AfterValidator(lambda text: text or None)]
"""A name to look for; a form that leaves it empty means every one."""


class PeriodFilter(Value):
    """Days in UTC, both included; the last 30 without any."""

    since: Day | None = Field(default=None, description="the first day, as 2026-11-20, UTC; else 30 days back")
    until: Day | None = Field(default=None, description="the last day, as 2026-11-20, UTC; else today")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ValueError("since comes after until; exchange them")
        return self

    def period(self, today: date) -> Period:
        """Return the days that are meant."""
        until = self.until or max(today, self.since or today)
        return Period(self.since or max(until - timedelta(days=DAYS - 1), EARLIEST), until)


class UsageFilter(PeriodFilter):
    """Whose usage, and when; what is None does not matter.

    ``model`` is a name with its provider, as the sums show it, or without; ``client`` a name or a slug.
    """

    agent: Wanted = Field(default=None, description="only the calls of this agent")
    client: Wanted = Field(default=None, description="only what this client pays for")
    account: Wanted = Field(default=None, description="only the calls of this account")
    model: Wanted = Field(default=None, description="only the calls of this model")
    purpose: Wanted = Field(default=None, description="only the calls for this purpose")
    platform: Wanted = Field(default=None, description="only the calls for this platform")

    @property
    def whose(self) -> UsageOf:
        """Return whose usage is meant."""
        return UsageOf(**{one.name: getattr(self, one.name) for one in fields(UsageOf)})


class UsageTable(UsageFilter):
    """Which usage to show, and by what it is added up: all of it."""

    by: UsageBy = UsageBy.DAY

    def whole(self, today: date) -> UsageWish:
        """Return what is to be added up."""
        return UsageWish(self.by, self.period(today), self.whose)


class UsageQuery(UsageTable):
    """A table and a page of it; ``cursor`` is a page's ``next``."""

    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: Annotated[str, readable_by(lambda text: decode(text))] | None = None

    def wish(self, today: date) -> UsageWish:
        """Return what is to be added up, and where the page begins."""
        after = decode(self.cursor) if self.cursor is not None else None
        return replace(self.whole(today), after=after)


class UsageItem(View):
    """What the requests of one day, agent, client, account, model, ... took.

    ``key`` is its name, null for requests that belong to none, and for the sum of all. Tokens and ``costUsd`` leave out
    interrupted requests; ``interruptedCostUsd`` is estimated. A cost is null when none is known; ``unknownCost`` counts
    the requests whose price nobody knows, which may have cost money as well.
    """

    key: str | None
    calls: int
    failures: int
    interrupted: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    unknown_cost: int
    interrupted_cost_usd: float | None


class UsagePage(View):
    """Days, newest first, or anything else, the dearest first; ``next`` is the following page's cursor or null.

    ``totals`` is the sum of everything that is meant, on this page or not, from ``since`` to ``until``, and ``before``
    that of as many days right before.
    """

    items: tuple[UsageItem, ...]
    next: str | None
    since: date
    until: date
    totals: UsageItem
    before: UsageItem


def usage_page(sums: Sequence[UsageSum], limit: int, period: Period, totals: tuple[UsageSum, UsageSum]) -> UsagePage:
    """Show up to ``limit`` sums; one more than that says that there is another page."""
    total, before = map(_item, totals)
    return UsagePage(
        items=tuple(map(_item, sums[:limit])),
        next=encode(sums[limit - 1].mark) if len(sums) > limit else None,
        since=period.since,
        until=period.until,
        totals=total,
        before=before,
    )


def _item(one: UsageSum) -> UsageItem:
    return UsageItem(**{**vars(one), "key": one.key or None})


def encode(mark: UsageMark) -> str:
    """Return a mark as the text that clients hand back."""
    return base64.urlsafe_b64encode(f"{mark.cost_usd!r} {mark.key}".encode()).rstrip(b"=").decode()


def decode(text: str) -> UsageMark:
    """Read a text of ours; raises ``ValueError`` for any other."""
    try:
        cost, _, key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(" ")
        return UsageMark(key, float(cost))
    except ValueError:
        raise ValueError("this is not a cursor from an earlier answer") from None
