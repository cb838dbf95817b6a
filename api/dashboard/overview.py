"""The page that everything begins with: what works, what waits, what fails, and what it costs today."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from pydantic import JsonValue
from starlette.responses import Response

from api.dashboard.pages import HOME, render
from api.guards import PasswordRoute
from api.live import unchanged
from api.parts import ApiParts
from api.routes.surroundings import Parts, parts_of
from maestro.domain.health import Readiness
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.account_views import AccountState, AccountView, account_view
from maestro.domain.llm.budgets import BudgetScope, Level
from maestro.domain.overview import DAY, HOUR, FailureKind, Pace, Reached, Work, cautions, kinds_of, pace
from maestro.store.transaction import Transaction

TITLE = "Overview – Maestro"
MINUTE = "%Y-%m-%d %H:%M"
KINDS = 8
"""Kinds of failures that are shown; the page of jobs groups them all."""
MOST_QUESTIONS = 1000
ENDS = tuple(status for status in JobStatus if status.ended)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


@dataclass(frozen=True)
class _Sums:
    """What is read in one look at the store; ``waiting_people`` wish to be let in."""

    work: Work
    hour: Pace
    day: Pace
    failures: Sequence[FailureKind]
    failed: int
    accounts: Sequence[AccountView]
    spent: Level
    questions: int
    waiting_people: int
    agents: int


@router.get(HOME)
async def show(request: Request, parts: Parts) -> Response:
    """Show how everything is now."""
    checks = await parts.health.checks()
    return await asyncio.to_thread(_answered, request, checks)


def _answered(request: Request, checks: Mapping[str, str]) -> Response:
    # Servers fail and hours pass without a commit.
    also = (f"{parts_of(request).clock():{MINUTE}}", *(f"{part}={state}" for part, state in checks.items()))
    return unchanged(request, *also) or _page(request, checks)


def _page(request: Request, checks: Mapping[str, str]) -> Response:
    parts = parts_of(request)
    with parts.store.view() as tx:
        sums = _sums(tx)
    settings = _values(parts)
    budget = settings["budgets.dayUsd"]
    return render(
        request,
        "overview.html",
        title=TITLE,
        ready=Readiness.of(checks),
        sums=sums,
        ends=ENDS,
        kinds=KINDS,
        budget=budget if isinstance(budget, int | float) else 0,
        connectors=parts.connectors.list().items,
        limited=[one for one in sums.accounts if one.state is not AccountState.ACTIVE],
        cautions=list(cautions(settings, Reached(request.url.hostname or "", request.url.scheme == "https"))),
        temporal_ui_url=parts.temporal_ui_url,
    )


def _sums(tx: Transaction) -> _Sums:
    answers, failures = tx.overview.first_answers(tx.now - DAY), tx.overview.failures(tx.now - DAY)
    limits = tx.accounts.limits()
    return _Sums(
        work=tx.overview.work(tx.now - DAY),
        hour=pace(answers, tx.now - HOUR),
        day=pace(answers, tx.now - DAY),
        failures=kinds_of(failures),
        failed=len(failures),
        accounts=[account_view(account, limits) for account in tx.accounts.all()],
        spent=tx.budgets.level((BudgetScope.DAY, "")),
        questions=tx.questions.count_waiting(MOST_QUESTIONS),
        waiting_people=tx.pairings.waiting(),
        agents=len(tx.agents.active()),
    )


def _values(parts: ApiParts) -> Mapping[str, JsonValue]:
    return {one.key: one.value for one in parts.settings.page().items}
