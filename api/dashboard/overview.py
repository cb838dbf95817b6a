"""The overview page: current problems, open jobs, answer times and today's cost."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.dashboard.pages import HOME, not_modified, render
from api.guards import Parts, PasswordRoute
from api.parts import ApiParts
from connectors.base import ConnectorState
from maestro.domain.connectors import ConnectorView
from maestro.domain.health import OK
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.accounts import AccountState, AccountStatus, AccountView, account_view
from maestro.domain.llm.budgets import BudgetScope
from maestro.domain.llm.calls import AuthenticationFailed
from maestro.domain.overview import DAY, HOUR, group_failures, list_exposures, measure_answer_times
from maestro.store.overviews.jobs import SAMPLE
from maestro.store.transaction import Transaction

MINUTE = "%Y-%m-%d %H:%M"
KINDS = 8
"""The most groups of similar failures on the page; the page of jobs lists all groups."""
ENDS = tuple(status for status in JobStatus if status.ended)
CHANNELS = "/accounts#channels"
ACCOUNTS = "/accounts#accounts"
BROKEN = (ConnectorState.FAILED, ConnectorState.DEGRADED)

router = APIRouter(route_class=PasswordRoute, include_in_schema=False)


@dataclass(frozen=True)
class OpenProblem:
    """A current problem, with the address of the page that shows its details."""

    subject: str
    words: str
    page: str = ""


@router.get(HOME)
async def show_overview(request: Request, parts: Parts) -> Response:
    """Show the current problems, jobs, answer times and cost of the installation."""
    checks = await parts.health.checks()
    return await asyncio.to_thread(_render_page, request, parts, checks)


def _render_page(request: Request, parts: ApiParts, checks: Mapping[str, str]) -> Response:
    # The health checks and the current minute change without a commit, so they are part of the page's ETag.
    version = (f"{parts.clock():{MINUTE}}", *(f"{part}={state}" for part, state in checks.items()))
    if response := not_modified(request, *version):
        return response
    with parts.store.view() as tx:
        limits = tx.llm.accounts.read_cooldown_ends()
        accounts = [account_view(account, limits) for account in tx.llm.accounts.list_accounts()]
        failures = tx.system.overview.list_failures(tx.now - DAY)
        figures, closed_channels = _read_figures(tx), len(tx.bots.channels.list_disabled_channels())
    settings = {setting.key: setting.value for setting in parts.settings.page().items}
    budget = settings["budgets.dayUsd"]
    connectors = parts.connectors.list().items
    return render(
        request,
        "overview.html",
        **figures,
        problems=[
            *(OpenProblem(part, state) for part, state in checks.items() if state != OK),
            *_find_failures(len(failures), connectors, closed_channels),
            *_find_account_problems(accounts),
        ],
        checks=checks,
        failures=group_failures(failures),
        ends=ENDS,
        kinds=KINDS,
        budget=budget if isinstance(budget, int | float) else 0,
        connectors=connectors,
        any_account=bool(accounts),
        limited=[account for account in accounts if account.state is not AccountState.ACTIVE],
        exposures=list(list_exposures(settings, request.url.hostname or "", secure=request.url.scheme == "https")),
        temporal_ui_url=parts.jobs.links.ui_url,
    )


def _read_figures(tx: Transaction) -> Mapping[str, object]:
    """Read the figures of the page; ``open_pairings`` is the number of open requests for access."""
    answers = tx.system.overview.read_first_answers(tx.now - DAY)
    return {
        "work": tx.system.overview.read_work(tx.now - DAY),
        "hour": measure_answer_times(answers, tx.now - HOUR),
        "day": measure_answer_times(answers, tx.now - DAY),
        "spent": tx.llm.budgets.read_level((BudgetScope.DAY, "")),
        "questions": tx.jobs.questions.count_open(1_000),
        "open_pairings": tx.users.pairings.count_pending(),
        "agents": len(tx.agents.list_active_agents()),
    }


def _find_failures(failed: int, connectors: Sequence[ConnectorView], closed_channels: int) -> Iterator[OpenProblem]:
    """Yield problems that no health check reports: failed jobs, broken connectors and refused channels."""
    if failed:
        count = f"{failed:,} or more" if failed >= SAMPLE else f"{failed:,}"
        yield OpenProblem("Failed jobs", f"{count} in the last 24 hours", "/queue?status=failed&age=24h&group=error")
    for connector in connectors:
        if connector.enabled and connector.state in BROKEN:
            page = f"/accounts#connector-{connector.platform}-{connector.account}"
            yield OpenProblem(connector.name, connector.detail or connector.state, page)
    if closed_channels:
        words = "1 channel is" if closed_channels == 1 else f"{closed_channels:,} channels are"
        yield OpenProblem("Closed channels", f"{words} refused by the platform, so no answer is sent there", CHANNELS)


def _find_account_problems(accounts: Sequence[AccountView]) -> Iterator[OpenProblem]:
    """Yield a problem for each account with a refused key, and one if no account can be called now."""
    refused = [
        account
        for account in accounts
        if account.status is AccountStatus.DISABLED and account.last_error == AuthenticationFailed.__name__
    ]
    for account in refused:
        words = f"{account.provider} refuses its key, so the account is not called"
        yield OpenProblem(f"Account {account.name}", words, ACCOUNTS)
    if len(refused) < len(accounts) and not any(account.state is AccountState.ACTIVE for account in accounts):
        yield OpenProblem("Accounts", "no account can be called now: each is limited or disabled", "#accounts")
