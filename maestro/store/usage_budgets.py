"""How much of each budget is used today."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlmodel import col

from maestro.domain.agents.agent import Agent, AgentStatus
from maestro.domain.llm.budgets import BudgetScope, Client, DailyBudgets, Level, Scope, Spending
from maestro.domain.llm.usage_budgets import CONVERSATIONS, BudgetPage, Spender, Spenders, budget_page
from maestro.store.budgets import Budgets


class UsedBudgets(Budgets):
    """Reads only."""

    def used(self, budgets: DailyBudgets) -> BudgetPage:
        """Return every budget that has a limit, with what is used and reserved of it today."""
        levels = self._levels()
        return budget_page(budgets, self._spenders(levels), levels, self.today)

    def _levels(self) -> Mapping[Scope, Level]:
        found = select(
            col(Spending.scope), col(Spending.subject), col(Spending.spent_usd), col(Spending.reserved_usd)
        ).where(col(Spending.day) == self.today)
        return {(scope, subject): Level(spent, held) for scope, subject, spent, held in self._session.execute(found)}

    def _spenders(self, levels: Mapping[Scope, Level]) -> Spenders:
        agents = (
            select(col(Agent.id), col(Agent.slug), col(Agent.daily_budget_usd))
            .where(col(Agent.status) != AgentStatus.ARCHIVED)
            .order_by(col(Agent.slug))
        )
        clients = select(col(Client.id), col(Client.name), col(Client.daily_budget_usd)).order_by(col(Client.name))
        talk = [
            (level.spent_usd + level.reserved_usd, subject)
            for (scope, subject), level in levels.items()
            if scope is BudgetScope.CONVERSATION
        ]
        return Spenders(
            agents=[Spender(*row) for row in self._session.execute(agents)],
            clients=[Spender(*row) for row in self._session.execute(clients)],
            conversations=[subject for _, subject in sorted(talk, reverse=True)[:CONVERSATIONS]],
        )
