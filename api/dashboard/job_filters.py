"""The filter of the jobs page: read from its address, written into one, and said in words."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel

from api.dashboard.moments import whole
from api.dashboard.words import clock
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.reading import read

PAGE = "/queue"
AGES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
"""How far back the page looks, by the words of its address."""
SEVERAL = frozenset({"status", "kind"})
OFFERED = frozenset({"status", "kind", "agent", "platform", "error", "priority", "at", "q"})
"""What the form asks for; the other fields come with links, and the form keeps them."""
MAY_BE_EMPTY = frozenset({"step", "reason"})
"""A failure may have none of it, and a link may mean just these; no form sends them empty."""
LONGEST = 80
"""Characters of one value that are said in words."""


class Asked(BaseModel):
    """What the address of the page says; what is wrong with it is said by the rules of what it becomes.

    ``age`` is one of ``AGES``, ``group`` is ``error`` where failures are grouped. A form sends ``at`` without a zone.
    """

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    agent: str = ""
    platform: str = ""
    account: str = ""
    channel: str = ""
    priority: str = ""
    client: str = ""
    conversation: str = ""
    schedule: str = ""
    webhook: str = ""
    error: str = ""
    step: str = ""
    reason: str = ""
    batch: str = ""
    since: str = ""
    until: str = ""
    at: str = ""
    q: str = ""
    age: str = ""
    group: str = ""
    cursor: str = ""

    def filter(self, now: datetime) -> JobFilter:
        """Return which jobs are meant; raises ``InvalidEdit``."""
        found: dict[str, Any] = {name: value for name, value in self._given() if name in JobFilter.model_fields}
        if "at" in found:
            found["at"] = whole(found["at"])
        if self.age in AGES:
            found["since"] = now - AGES[self.age]
        return read(JobFilter, found)

    def besides(self) -> Mapping[str, str]:
        """Return what narrows the list and has no field in the form."""
        return {name: str(value) for name, value in self._given() if name in _BESIDES}

    def _given(self) -> Iterator[tuple[str, Any]]:
        for name, value in self:
            if name in SEVERAL:
                words = tuple(word for word in value if word)
                if words:
                    yield name, words
            elif value.strip() or (name in MAY_BE_EMPTY and name in self.model_fields_set):
                yield name, value.strip()


_BESIDES = frozenset(JobFilter.model_fields) - OFFERED


def page_of(wanted: JobFilter) -> str:
    """Return the address of the page that lists the jobs of a filter."""
    given = wanted.model_dump(mode="json", exclude_defaults=True)
    return PAGE + (f"?{urlencode(given, doseq=True)}" if given else "")


def words_of(wanted: JobFilter) -> str:
    """Say a filter in words, such as ``status failed, agent ada``."""
    given = wanted.model_dump(exclude_defaults=True)
    return ", ".join(f"{name} {_word(value)}" for name, value in given.items()) or "every job"


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return clock(value)
    text = " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
