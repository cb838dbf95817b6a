"""Usage as operators see it, on the API and on the command line alike."""

import base64
import json
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from maestro.domain.llm.usage import Period, UsageBy, UsageMark, UsageSum
from maestro.domain.values import Value, View

DAYS = 30
"""Days that are shown when nobody says which."""
LIMIT = 100
MOST = 1000
EARLIEST, LATEST = date(2000, 1, 1), date(2999, 12, 31)
"""Days that somebody may mean; further ones have no room for the days beside them."""

Day = Annotated[date, Field(ge=EARLIEST, le=LATEST)]


class UsageQuery(Value):
    """Which usage to show: days in UTC, both included, the last 30 without any; ``cursor`` is a page's ``next``."""

    by: UsageBy = UsageBy.DAY
    since: Day | None = None
    until: Day | None = None
    limit: int = Field(default=LIMIT, ge=1, le=MOST)
    cursor: str | None = None

    @field_validator("cursor")
    @classmethod
    def _ours(cls, text: str | None) -> str | None:
        if text is not None:
            decode(text)
        return text

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ValueError("since comes after until; exchange them")
        return self

    @property
    def after(self) -> UsageMark | None:
        """Return where the page begins."""
        return decode(self.cursor) if self.cursor is not None else None

    def period(self, today: date) -> Period:
        """Return the days that are meant."""
        until = self.until or max(today, self.since or today)
        return Period(self.since or until - timedelta(days=DAYS - 1), until)


class UsageItem(View):
    """What the requests of one day, agent, client, account, model, conversation or job took.

    ``key`` is its name, null for requests that belong to none. Tokens and ``costUsd`` leave out interrupted requests;
    ``interruptedCostUsd`` is estimated. A cost is null when none is known; ``unknownCost`` counts the requests whose
    price nobody knows, which may have cost money as well.
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
    """Days, newest first, or anything else, the dearest first; ``next`` is the following page's cursor or null."""

    items: tuple[UsageItem, ...]
    next: str | None


def usage_page(sums: Sequence[UsageSum], limit: int) -> UsagePage:
    """Show up to ``limit`` sums; one more than that says that there is another page."""
    shown = [UsageItem(**{**vars(one), "key": one.key or None}) for one in sums[:limit]]
    return UsagePage(items=tuple(shown), next=encode(sums[limit - 1].mark) if len(sums) > limit else None)


def encode(mark: UsageMark) -> str:
    """Return a mark as the text that clients hand back."""
    return base64.urlsafe_b64encode(json.dumps([mark.key, mark.cost_usd]).encode()).rstrip(b"=").decode()


def decode(text: str) -> UsageMark:
    """Read a text of ours; raises ``ValueError`` for any other."""
    try:
        key, cost = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return UsageMark(str(key), float(cost))
    except (ValueError, TypeError):
        raise ValueError("this is not a cursor from an earlier answer") from None
