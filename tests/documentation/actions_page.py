"""The page about billable actions of Temporal Cloud, counted in the recorded histories of all ways of a message."""

import json
from collections.abc import Mapping
from pathlib import Path

from temporalio.client import WorkflowHistory

from benchmarks.billing import billable_actions

HISTORIES = Path(__file__).parents[1] / "histories"
WAYS: Mapping[str, tuple[str, int]] = {
    "answered": ("a message is answered", 2),
    "tool_rounds": ("an answer with two rounds of tool calls, four tool calls in all", 2),
    "provider_retry": ("the provider fails twice, and the third attempt is answered", 2),
    "delegated": ("a message whose answer gives another agent a task", 1),
    "task": ("that task", 2),
    "scheduled": ("a run of a schedule", 3),
    "webhook": ("an event of a webhook", 1),
    "control_reply": ("a control word such as `/status`, a question to a user, or the notice of a wait", 0),
    "question": ("a message until its job waits for the answer to a question", 1),
    "account_wait": ("a message until its job waits for an account", 1),
    "stopped": ("an answer that is stopped with `/stop`", 1),
    "failed": ("a message that fails, with the notice to its user", 1),
    "dropped": ("a message that is dropped", 0),
    "what_if": ("a what-if with a tool call", 0),
}
"""The recorded histories: the way of the message in words, and the actions that are not in its history.

Beside an embedded server one queue serves all steps. With the queue of a connector, the typing indicator is an activity
there, and the sending of an answer is one of its own. A run of a schedule is two actions besides those of its workflow.
"""
USD_PER_MILLION = 50
"""The list price of the smallest volume: https://docs.temporal.io/cloud/pricing."""
USD_PLAN, PLAN_ACTIONS = 100, 1_000_000
"""The price of the smallest plan for a month, and the actions that it includes."""
HEAD = """\
**A message that is answered costs {answered} billable actions: US$ {price:.4f}.** The smallest plan costs US$ {plan} a
month and includes a million actions, enough for about {included:,} messages a month. Each further million messages
costs US$ {usd_million:,}. A message that waits in its lane has no workflow and costs nothing meanwhile.

The price is the list price of the smallest volume, US$ {usd} per million actions
([prices](https://docs.temporal.io/cloud/pricing)); larger volumes cost less. Storage, support and fairness are billed
apart; `jobs.fairness` set to `false` does without fairness in Temporal's queues. [Use Temporal
Cloud](../howto/use-temporal-cloud.md) has the steps.
"""
TAIL = """
Three things come on top:

* **Heartbeats**: an activity that runs longer than 10 s, such as a slow model call, sends one at most every 15 s. A
  model call of 40 s costs two or three more actions. `temporal.heartbeatSeconds` makes them rarer; a dead worker
  is then noticed later.
* **The run after a wait** is a workflow run of its own.
* **Retries** of an activity are an action each; crashes are rare, failing providers are not.

The actions are counted in recorded histories of all ways that a message can go, by the rules of Temporal. The histories
are from an embedded server, where one process does all steps of a message in 4 actions; the table adds the typing
indicator and the sending, which are activities of the connector's queue on a cluster, and the two actions that Temporal
counts for each run of a schedule besides its workflow.
"""


def actions_page(note: str) -> str:
    """Describe what each way costs; ``note`` says how the page is written anew."""
    rows = "".join(_row(words, cloud_actions(name)) for name, (words, _) in WAYS.items())
    table = f"| way | actions | US$ per million of these |\n|---|---:|---:|\n{rows}"
    answered = cloud_actions("answered")
    head = HEAD.format(
        answered=answered,
        price=answered * USD_PER_MILLION / 1e6,
        usd=USD_PER_MILLION,
        plan=USD_PLAN,
        included=PLAN_ACTIONS // answered // 1000 * 1000,
        usd_million=answered * USD_PER_MILLION,
    )
    return f"# What a message costs on Temporal Cloud\n\n{note}\n\n{head}\n{table}{TAIL}"


def cloud_actions(way: str) -> int:
    """Return the billable actions of a way on a cluster, where each connector has a queue of its own."""
    return billable_actions(_history(way).events).total() + WAYS[way][1]


def _row(words: str, actions: int) -> str:
    return f"| {words} | {actions} | {actions * USD_PER_MILLION:,} |\n"


def _history(way: str) -> WorkflowHistory:
    return WorkflowHistory.from_json(way, json.loads((HISTORIES / f"{way}.json").read_text(encoding="utf-8")))
