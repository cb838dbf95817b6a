"""The table of the peers as lines for a terminal, and the page from ``peers.json``.

``python -m benchmarks.peers.report`` writes the page again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.figures import median
from benchmarks.machine import Machine
from benchmarks.peers.trials import (
    CALL_SECONDS,
    CALL_TIMEOUT,
    MODEL_SECONDS,
    QUESTIONS_EACH,
    QUICK_MESSAGES,
    QUICK_PAUSE,
    RESENDING_USERS,
    RESTART_TIMEOUT,
    USERS,
    WAITING_USERS,
    Values,
)

HERE = Path(__file__).parents[1]
JSON = HERE / "peers.json"
PAGE = HERE / "PEERS.md"

HEAD = f"""\
# Peers side by side

Written by `python -m benchmarks.peers`, which installs each peer into an environment of its own, runs one after another
on this machine, in turns, with the model server of the [benchmarks](README.md), and kills it. Bold: the best of a row.
A peer that cannot be installed, started or measured is named with the reason.

* The model repeats the question. It takes {MODEL_SECONDS:g} s while one user asks, and the table has the time beyond
  that; it takes no time while {USERS} users ask {QUESTIONS_EACH} questions each, the next after the answer.
* Memory and CPU time are those of all processes of a peer, a Temporal server included. The load average shows the other
  work of the machine: of the times, CPU time depends least on it.
* {QUICK_MESSAGES} quick messages go into one conversation, {QUICK_PAUSE * 1000:g} ms apart, and the model answers later
  ones faster. A peer may answer several messages at once.
* {WAITING_USERS + RESENDING_USERS} users ask, each in a conversation of its own. As soon as all these questions are in
  calls of the model, which take {CALL_SECONDS:g} s, or after {CALL_TIMEOUT:g} s, all processes of the peer get SIGKILL
  and are started again; a row of the table counts the questions that were in a call then. {WAITING_USERS} users connect
  again and wait; {RESENDING_USERS} send their message once more, as platforms do, with the same id where the peer takes
  one. Waiting ends after {RESTART_TIMEOUT:g} s.
"""

NOTES = """\
Notes:

* Each peer does more than these trials need. nanobot and Hermes Agent bring tools and long prompts for a personal
  agent, LangGraph runs any graph, Temporal any program; Maestro brings budgets, access and a dashboard for operators.
* nanobot adds a message that arrives while it works to the current task, and answers several messages together. After
  a crash it shows the interrupted task and continues when the user confirms. Clients of Hermes Agent see that the
  request failed, and can send it again.
* LangGraph's local server is meant for development. It polls for runs every half second, and writes its state to disk
  every ten seconds: what it accepted since then is lost with the process. Its server for production, on PostgreSQL and
  Redis, needs a licence and is not measured.
* The naive flow has no conversation and no order. An interrupted call is retried after its timeout of 30 s; heartbeats
  would make that shorter.
* OpenClaw and Oban Web run on Node.js and Elixir. Peers are Python packages, so both are not measured.
* The memory of Maestro includes the library for all providers, the dashboard and the Temporal server; that of the naive
  flow includes the Temporal server.
"""


@dataclass(frozen=True)
class Result:
    """A peer with the values of each round, or with the reason for their absence."""

    name: str
    version: str
    command: str
    access: str
    skipped: str = ""
    rounds: list[Values] = field(default_factory=list)


def _median(unit: str, digits: int) -> Callable[[Sequence[float]], str]:
    return lambda values: f"{median(values):.{digits}f} {unit}".rstrip()


def _count_of(group: int) -> Callable[[Sequence[float]], str]:
    return lambda values: f"{sum(values):.0f} of {group * len(values)}"


def _yes_or_no(values: Sequence[float]) -> str:
    return "yes" if all(values) else "no"


LOWER, HIGHER, NEITHER = -1, 1, 0
ROWS: tuple[tuple[str, str, Callable[[Sequence[float]], str], int], ...] = (
    (f"answers, {USERS} users at once", "rate", _median("per s", 1), HIGHER),
    ("CPU time for one of these answers", "cpu", _median("ms", 0), LOWER),
    ("questions without an answer", "unanswered", _count_of(USERS * QUESTIONS_EACH), LOWER),
    ("one user: beyond the model's time, p50", "p50", _median("ms", 0), LOWER),
    ("one user: beyond the model's time, p95", "p95", _median("ms", 0), LOWER),
    ("ready after its start", "ready", _median("s", 1), LOWER),
    ("memory, idle", "idle", _median("MiB", 0), LOWER),
    ("memory, after load", "loaded", _median("MiB", 0), LOWER),
    (f"answers to {QUICK_MESSAGES} quick messages", "quick", _median("", 0), NEITHER),
    ("quick messages that these answer", "covered", _count_of(QUICK_MESSAGES), HIGHER),
    ("all answered, in the order of the messages", "in_order", _yes_or_no, HIGHER),
    ("questions in a call of the model at the kill", "in_calls", _count_of(WAITING_USERS + RESENDING_USERS), NEITHER),
    ("asked before the kill: answered after the restart", "silent", _count_of(WAITING_USERS), HIGHER),
    ("asked before the kill: continued only if the user confirms", "offers", _count_of(WAITING_USERS), NEITHER),
    ("message sent again after the kill: answered", "again", _count_of(RESENDING_USERS), HIGHER),
    ("asked before the kill: answered twice", "twice", _count_of(WAITING_USERS + RESENDING_USERS), LOWER),
    ("from the kill to the answer, p50", "took", _median("s", 1), LOWER),
    ("load average of the machine before the round", "load", _median("", 1), NEITHER),
)


def as_json(machine: Machine, results: Sequence[Result]) -> str:
    """Return everything with the values of every round."""
    return json.dumps({"machine": asdict(machine), "peers": [asdict(one) for one in results]}, indent=1) + "\n"


def page(text: str) -> str:
    """Return the page of a JSON text."""
    document = json.loads(text)
    machine, results = document["machine"], [Result(**one) for one in document["peers"]]
    about = (
        f"{machine['date']}; {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:g} GiB; "
        f"{machine['system']}; Python {machine['python']}; rounds: {_count_rounds(results)}; load average before the "
        f"run: {machine['load'][0]:.2f}."
    )
    reasons = list_doubts(results, machine["cores"])
    doubts = (
        [f"**Latency and throughput of this run are not comparable: {'; '.join(reasons)}.**", ""] if reasons else []
    )
    peers = ["| | version | started by | interface |", "|---|---|---|---|"]
    peers += [f"| {one.name} | {one.version} | `{one.command}` | {one.access} |" for one in results]
    missing = [f"* {one.name} is not measured: {one.skipped}" for one in results if one.skipped]
    tables = [*table(results), "", *missing, *([""] if missing else []), NOTES, *peers, ""]
    return "\n".join([HEAD, about, "", *doubts, *tables])


def list_doubts(results: Sequence[Result], cores: int) -> list[str]:
    """Return why latency and throughput are not comparable: a single round, or other work on the machine."""
    highest = max((values["load"] for one in results for values in one.rounds), default=0.0)
    return [
        *(["each peer was measured in one round"] if _count_rounds(results) == 1 else []),
        *([f"before a round the load average was {highest:.1f} on {cores} cores"] if highest > cores else []),
    ]


def _count_rounds(results: Sequence[Result]) -> int:
    return max((len(one.rounds) for one in results), default=0)


def table(results: Sequence[Result]) -> list[str]:
    """Return the table as lines of Markdown."""
    measured = [one for one in results if one.rounds]
    lines = [f"| | {' | '.join(one.name for one in measured)} |", f"|---{'|---:' * len(measured)}|"]
    for label, key, describe, better in ROWS:
        values = [[one_round[key] for one_round in one.rounds if key in one_round] for one in measured]
        ranks = [better * median(found) for found in values if found]
        absent = "never" if key == "took" else "not recorded"
        cells = [
            _cell(describe(found), min(ranks) < better * median(found) == max(ranks)) if found else absent
            for found in values
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _cell(text: str, best: object) -> str:
    return f"**{text}**" if best else text


def write_page() -> None:
    """Write the page from the results."""
    PAGE.write_text(page(JSON.read_text()))


if __name__ == "__main__":
    write_page()
