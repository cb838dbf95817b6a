"""The rules of budgets: which limits hold for whom, and when one is used up."""

import pytest

from maestro.domain.llm.budgets import BudgetLimit, BudgetScope, Payer, SpendingLevel, applicable_limits, exceeded_limit
from maestro.domain.settings.llm import BudgetSettings

EVERY = BudgetSettings(day_usd=10, agent_day_usd=4, client_day_usd=3, conversation_day_usd=1)
PAYER = Payer(agent_id=7, agent="ada", client_id=8, client="Acme", conversation_id=9)
DAY, AGENT = BudgetLimit(BudgetScope.DAY, "", 10), BudgetLimit(BudgetScope.AGENT, "7", 4, "ada")


def shown(payer: Payer, budgets: BudgetSettings) -> dict[str, float]:
    return {f"{limit.scope}:{limit.subject}": limit.usd for limit in applicable_limits(payer, budgets)}


def test_a_job_keeps_the_limit_of_each_scope_it_belongs_to_everybody_first() -> None:
    assert list(shown(PAYER, EVERY).items()) == [("day:", 10), ("agent:7", 4), ("client:8", 3), ("conversation:9", 1)]


def test_a_job_without_client_or_conversation_has_no_limit_there() -> None:
    assert shown(Payer(agent_id=7), EVERY) == {"day:": 10, "agent:7": 4}


@pytest.mark.parametrize(
    ("own", "holds"), [({"agent_usd": 9}, {"agent:7": 9}), ({"client_usd": 0.5}, {"agent:7": 4, "client:8": 0.5})]
)
def test_a_limit_of_its_own_takes_the_place_of_the_general_one(own: dict[str, float], holds: dict[str, float]) -> None:
    payer = Payer(agent_id=7, client_id=8 if "client_usd" in own else None, **own)  # type: ignore[arg-type]
    assert shown(payer, BudgetSettings(day_usd=0, agent_day_usd=4, client_day_usd=3)) == holds


def test_zero_is_no_limit_in_either_place() -> None:
    assert shown(Payer(agent_id=7, agent_usd=0), BudgetSettings(day_usd=0, agent_day_usd=4)) == {}
    assert shown(PAYER, BudgetSettings(day_usd=0)) == {}


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        ([(DAY, SpendingLevel()), (AGENT, SpendingLevel())], None),
        ([(DAY, SpendingLevel(9.99)), (AGENT, SpendingLevel(3, 0.99))], None),
        ([(DAY, SpendingLevel(10)), (AGENT, SpendingLevel(4))], DAY),
        ([(DAY, SpendingLevel(1)), (AGENT, SpendingLevel(3, 1))], AGENT),
        ([(DAY, SpendingLevel(0, 11))], DAY),
        ([], None),
    ],
)
def test_a_limit_is_used_up_when_nothing_is_left_of_it(
    levels: list[tuple[BudgetLimit, SpendingLevel]], found: BudgetLimit | None
) -> None:
    known = {(limit.scope, limit.subject): level for limit, level in levels}
    assert exceeded_limit([limit for limit, _ in levels], known) is found


def test_an_operator_reads_whose_budget_it_is_and_where_it_is_set() -> None:
    assert str(DAY) == "the daily budget of all calls, 10 US dollars (budgets.dayUsd)"
    assert (
        str(AGENT) == "the daily budget of agent ada, 4 US dollars (budgets.agentDayUsd or the agent's dailyBudgetUsd)"
    )
