"""The caller of a model is read in one statement, and says the same as the reads of each of its parts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maestro.domain.context.composition import Composition
from maestro.domain.errors import NotFound
from maestro.domain.llm.budgets import BudgetScope, Client, SpendingLevel
from maestro.domain.llm.prompts import CallKey, ComposedTurn, Role
from tests.support.job_rows import JobRows

TURN = ComposedTurn(Role.USER, "hello")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def job_id(rows: JobRows) -> str:
    """A job whose prompt is built, of a client with a weight of its own, at an account that shows answers grow."""
    job_id = rows.add()
    with rows.store.begin() as tx:
        client = Client(name="Acme", daily_budget_usd=3, weight=2)
        tx.llm.budgets._session.add(client)
        tx.llm.budgets._session.flush()
        tx.jobs.update_job(job_id, client_id=client.id, priority=3)
        tx.llm.prompts.add_prompt(job_id, Composition(messages=(TURN,), layers=(), facts=()))
        job = tx.jobs.read(job_id)
        tx.deliveries.drafts.set_edit_interval((job.platform, job.account), 0.5)
    return job_id


def test_a_caller_is_its_job_its_agent_and_its_prompt(rows: JobRows, job_id: str) -> None:
    with rows.store.view() as tx:
        job = tx.jobs.read(job_id)
        agent, prompt, precedence = (
            tx.agents.read(job.agent_id),
            tx.llm.prompts.get_prompt_of_job(job_id),
            tx.jobs.read_precedence(job),
        )
    with rows.store.view() as tx:
        caller = tx.jobs.callers.read_caller(job_id)
        assert tx.jobs.read(job_id) is caller.job, "the job is not read again"
    assert vars(caller.job) == vars(job)
    assert vars(caller.agent) == vars(agent)
    assert (caller.turns, caller.precedence, caller.edit_interval) == (prompt.turns, precedence, 0.5)
    assert precedence.weight == 2


def test_a_caller_knows_what_each_scope_of_its_payer_has_spent(rows: JobRows, job_id: str) -> None:
    key = CallKey(job_id=job_id, number=1)
    with rows.store.begin() as tx:
        payer = tx.jobs.callers.read_payer(job_id)
        assert (payer.client, payer.client_usd) == ("Acme", 3)
        tx.llm.budgets.reserve_cost(key, payer, 0.25)
        tx.llm.budgets.add_cost(key, 0.5)
    with rows.store.view() as tx:
        levels = tx.jobs.callers.read_spending_levels(job_id)
        assert levels == {scope: tx.llm.budgets.read_level(scope) for scope in payer.scopes}
    assert levels[BudgetScope.CLIENT, str(payer.client_id)] == SpendingLevel(0.5, 0.25)
    rows.clock.go(days=1)
    with rows.store.view() as tx:
        assert set(tx.jobs.callers.read_spending_levels(job_id).values()) == {SpendingLevel()}


def test_a_caller_needs_a_job_and_a_prompt(rows: JobRows) -> None:
    unprepared = rows.add()
    with rows.store.view() as tx:
        with pytest.raises(NotFound, match="does not exist"):
            tx.jobs.callers.read_caller("nobody")
        with pytest.raises(NotFound, match="has no prompt yet"):
            tx.jobs.callers.read_caller(unprepared)


def test_a_change_of_a_job_is_seen_by_its_caller(rows: JobRows, job_id: str) -> None:
    with rows.store.begin() as tx:
        tx.jobs.callers.load_columns(job_id)
        tx.jobs.update_later(job_id, priority=1)
        tx.jobs.update_job(job_id, conversation_id=None)
        assert tx.jobs.callers.read_caller(job_id).precedence.priority == 1
