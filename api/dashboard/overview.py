"""The start page: what works, what waits, what fails, and today's cost."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from pydantic import JsonValue
from starlette.responses import Response

from api.dashboard.pages import HOME, render
from api.guards import PasswordRoute
from api.live import unchanged
from api.parts import ApiParts
from api.routes.dependencies import Parts, parts_of
from connectors.base import ConnectorState
from maestro.domain.connectors import ConnectorView
from maestro.domain.health import OK
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.account_views import AccountState, AccountView, account_view
from maestro.domain.llm.accounts import AccountStatus
from maestro.domain.llm.budgets import BudgetScope, SpendingLevel
from maestro.domain.llm.errors import AuthenticationFailed
from maestro.domain.overview import (
    DAY,
    HOUR,
    AnswerTimes,
    FailureKind,
    PageOrigin,
    WorkOverview,
    group_failures,
    list_exposures,
    measure_answer_times,
)
from maestro.store.overviews.counts import SAMPLE
from maestro.store.transaction import Transaction

TITLE = "Overview – Maestro"
MINUTE = "%Y-%m-%d %H:%M"
KINDS = 8
"""Kinds of failures that are shown; the page of jobs groups them all."""
MOST_QUESTIONS = 1000
ENDS = tuple(status for status in JobStatus if status.ended)
FAILED_JOBS = "/queue?status=failed&age=24h&group=error"
CHANNELS = "/accounts#channels"
ACCOUNTS = "/accounts#accounts"
BROKEN = (ConnectorState.FAILED, ConnectorState.DEGRADED)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


@dataclass(frozen=True)
class _Sums:
    """What is read in one look at the store; ``waiting_people`` wish to be let in.

    ``closed_channels`` are the channels that their platforms refuse.
    """

    work: WorkOverview
    hour: AnswerTimes
    day: AnswerTimes
    failures: Sequence[FailureKind]
    failed: int
    accounts: Sequence[AccountView]
    spent: SpendingLevel
    questions: int
    waiting_people: int
    agents: int
    closed_channels: int


@dataclass(frozen=True)
class OpenProblem:
    """A present problem, and the page that shows it."""

    subject: str
    words: str
    page: str = ""


@router.get(HOME)
async def show(request: Request, parts: Parts) -> Response:
    """Show the state of the installation."""
    checks = await parts.health.checks()
    return await asyncio.to_thread(_answered, request, checks)


def _answered(request: Request, checks: Mapping[str, str]) -> Response:
    # The state of servers and the current minute change without a commit, so they are part of the page's version.
    also = (f"{parts_of(request).clock():{MINUTE}}", *(f"{part}={state}" for part, state in checks.items()))
    return unchanged(request, *also) or _page(request, checks)


def _page(request: Request, checks: Mapping[str, str]) -> Response:
    parts = parts_of(request)
    with parts.store.view() as tx:
        sums = _sums(tx)
    settings = _values(parts)
    budget = settings["budgets.dayUsd"]
    connectors = parts.connectors.list().items
    return render(
        request,
        "overview.html",
        title=TITLE,
        problems=[*_broken_parts(checks), *_problems(sums, connectors)],
        checks=checks,
        sums=sums,
        ends=ENDS,
        kinds=KINDS,
        budget=budget if isinstance(budget, int | float) else 0,
        connectors=connectors,
        limited=[one for one in sums.accounts if one.state is not AccountState.ACTIVE],
        cautions=list(list_exposures(settings, PageOrigin(request.url.hostname or "", request.url.scheme == "https"))),
        temporal_ui_url=parts.jobs.temporal.ui_url,
    )


def _sums(tx: Transaction) -> _Sums:
    answers, failures = tx.system.overview.first_answers(tx.now - DAY), tx.system.overview.failures(tx.now - DAY)
    limits = tx.llm.accounts.limits()
    return _Sums(
        work=tx.system.overview.work(tx.now - DAY),
        hour=measure_answer_times(answers, tx.now - HOUR),
        day=measure_answer_times(answers, tx.now - DAY),
        failures=group_failures(failures),
        failed=len(failures),
        accounts=[account_view(account, limits) for account in tx.llm.accounts.all()],
        spent=tx.llm.budgets.level((BudgetScope.DAY, "")),
        questions=tx.jobs.questions.count_waiting(MOST_QUESTIONS),
        waiting_people=tx.users.pairings.count_pending(),
        agents=len(tx.agents.active()),
        closed_channels=len(tx.bots.channels.disabled()),
    )


def _broken_parts(checks: Mapping[str, str]) -> Iterator[OpenProblem]:
    yield from (OpenProblem(part, state) for part, state in checks.items() if state != OK)


def _problems(sums: _Sums, connectors: Sequence[ConnectorView]) -> Iterator[OpenProblem]:
    """Yield the problems that users notice although every part of the process works."""
    if sums.failed:
        count = f"{sums.failed:,} or more" if sums.failed >= SAMPLE else f"{sums.failed:,}"
        yield OpenProblem("Failed jobs", f"{count} in the last 24 hours", FAILED_JOBS)
    for one in connectors:
        if one.enabled and one.state in BROKEN:
            page = f"/accounts#connector-{one.platform}-{one.account}"
            yield OpenProblem(f"{one.platform}/{one.account}", one.detail or one.state, page)
    if sums.closed_channels:
        words = "1 channel is" if sums.closed_channels == 1 else f"{sums.closed_channels:,} channels are"
        yield OpenProblem("Closed channels", f"{words} refused by the platform, so no answer is sent there", CHANNELS)
    refused = [one for one in sums.accounts if _key_refused(one)]
    for account in refused:
        words = f"{account.provider} refuses its key, so it is not asked"
        yield OpenProblem(f"Account {account.name}", words, ACCOUNTS)
    if len(refused) < len(sums.accounts) and not any(one.state is AccountState.ACTIVE for one in sums.accounts):
        yield OpenProblem("Accounts", "none can be asked now: each is limited or disabled", "#accounts")


def _key_refused(account: AccountView) -> bool:
    return account.status is AccountStatus.DISABLED and account.last_error == AuthenticationFailed.__name__


def _values(parts: ApiParts) -> Mapping[str, JsonValue]:
    return {one.key: one.value for one in parts.settings.page().items}
