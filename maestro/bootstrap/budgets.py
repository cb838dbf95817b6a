"""What may be spent in a day, from the settings: for the chain, which keeps it, and for operators, who look at it."""

from maestro.domain.llm.budgets import DailyBudgets
from maestro.settings import Settings


def daily_budgets(settings: Settings) -> DailyBudgets:
    """Return the budgets; nobody is asked instead unless the settings say so."""
    budgets = settings.budgets
    return DailyBudgets(
        day_usd=budgets.day_usd,
        agent_usd=budgets.agent_day_usd,
        client_usd=budgets.client_day_usd,
        conversation_usd=budgets.conversation_day_usd,
        fallback_model=budgets.fallback_model if budgets.on_limit == "fallback" else "",
    )
