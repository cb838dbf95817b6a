"""``maestro clients``: the customers that pay for answers."""

from dataclasses import replace
from typing import Annotated

from maestro.cli.framework.inputs import InputOptions
from maestro.cli.framework.operations import OperationCommands, Reference
from maestro.cli.framework.output import Columns
from maestro.domain.llm.budgets import ClientChange, NewClient
from maestro.operations.clients import ClientOperations

HELP = """List, add, change and remove clients.

Agents and channels may name a client, which then pays for the answers there. Clients are defined in clients of the
configuration, or are made here; this works whether Maestro runs or not.
"""
COLUMNS = Columns(
    "name slug plan weight a_day spent_today from",
    {
        "a day": lambda client: "" if client.daily_budget_usd is None else f"{client.daily_budget_usd:.2f}",
        "spent today": lambda client: f"{client.spent_usd:.2f}",
        "from": lambda client: "configuration" if client.configured else "made here",
    },
)
OPTIONS = InputOptions(NewClient, leave_out=["name"], spelling={"daily_budget_usd": "--daily-budget"})
NO_BUDGET = {"daily_budget_usd": ("--no-daily-budget", "Use budgets.clientDayUsd for the client again.")}

app = OperationCommands(
    HELP,
    lambda at: ClientOperations(at.store),
    Reference(
        "name",
        Annotated[str, "NAME: The name or the slug of the client."],
        Annotated[str, "NAME: A name of your choice, unique."],
    ),
)
app.list("List the clients by name, with the spend of today.", COLUMNS, "There are no clients.")
app.add("Add a client, which agents and channels may name.", NewClient, OPTIONS, " can be named by agents and channels")
app.edit("Change a client that was made here or on the API.", ClientChange, replace(OPTIONS, resets=NO_BUDGET))
app.remove("Remove a client to which no agent, channel or usage refers.", by_view=True)
