"""The table of the peers: as lines for a terminal, and as the page made from ``peers.json``.

``python -m benchmarks.peers.report`` writes the page anew.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.figures import median
from benchmarks.machine import Machine
from benchmarks.peers.trials import (
    AGAIN,
    ANSWERED_WITHIN,
    APART,
    CALL,
    EACH,
    IN_CALL_WITHIN,
    PEOPLE,
    QUICK,
    SILENT,
    THINKS,
    Values,
)

HERE = Path(__file__).parents[1]
JSON = HERE / "peers.json"
PAGE = HERE / "PEERS.md"

HEAD = f"""\
# Peers side by side

Written by `python -m benchmarks.peers`, which installs each peer into an environment of its own, runs one after another
on this machine, in turns, with the model server of the [benchmarks](README.md), and kills it. Bold: the best of a row.
A peer that cannot be installed or started is named with the reason.

* The model repeats the question. It takes {THINKS:g} s while one user talks, and the table has the time beyond that; it
  takes no time while {PEOPLE} users ask {EACH} questions each, the next when the answer is there.
* Memory and CPU time are those of all processes of a peer, a Temporal server included. The load average says what else
  the machine did: the CPU time holds best on a busy one.
* {QUICK} quick messages go into one conversation, {APART * 1000:g} ms apart, and the model answers later ones faster. A
  peer may answer several messages at once.
* {SILENT + AGAIN} users ask, each in a conversation of its own. When the model works on all these questions, which
  takes it {CALL:g} s, or after {IN_CALL_WITHIN:g} s, all processes of the peer get SIGKILL and are started again.
  {SILENT} users connect again and wait; {AGAIN} send their message once more, as platforms do, with the same id where
  the peer takes one. Waiting ends after {ANSWERED_WITHIN:g} s.
"""

NOTES = """\
What to know when you read it:

* Each peer does more than this table asks of it. nanobot and Hermes Agent bring tools and long prompts for a personal
  agent, LangGraph runs any graph, Temporal any program; Maestro brings budgets, access and a dashboard for operators.
* A user who writes again while nanobot works changes its course: what came meanwhile goes into the same turn, which
  takes fewer model calls. After a crash it shows what was interrupted and continues when the user says so. Clients of
  Hermes Agent see that the request failed, and send it again.
* LangGraph's local server is meant for development. It looks for runs every half second, which is most of its time
  for one user, and writes its state to disk every ten seconds: what was accepted since then is lost with the process.
  Its server for production, on PostgreSQL and Redis, needs a licence and is not measured.
* The naive flow has no conversation and no order. A call that died is repeated when its timeout of 30 s is over;
  heartbeats would make that shorter, as they do in Maestro.
* Maestro takes the most memory: the library for all providers, the dashboard and the Temporal server are in it.
"""


@dataclass(frozen=True)
class Result:
    """A peer, and what was measured in each round, or why it was not."""

    name: str
    version: str
    command: str
    door: str
    skipped: str = ""
    rounds: list[Values] = field(default_factory=list)


def _median(unit: str, digits: int) -> Callable[[Sequence[float], int], str]:
    return lambda values, _: f"{median(values):.{digits}f} {unit}".rstrip()


def _of(group: int) -> Callable[[Sequence[float], int], str]:
    return lambda values, rounds: f"{sum(values):.0f} of {group * rounds}"


def _yes_or_no(values: Sequence[float], _: int) -> str:
    return "yes" if all(values) else "no"


LOWER, HIGHER, NEITHER = -1, 1, 0
ROWS: tuple[tuple[str, str, Callable[[Sequence[float], int], str], int], ...] = (
    (f"answers, {PEOPLE} users at once", "rate", _median("per s", 1), HIGHER),
    ("CPU time for one of these answers", "cpu", _median("ms", 0), LOWER),
    ("questions without an answer", "unanswered", _of(PEOPLE * EACH), LOWER),
    ("one user: beyond the model's time, p50", "p50", _median("ms", 0), LOWER),
    ("one user: beyond the model's time, p95", "p95", _median("ms", 0), LOWER),
    ("ready after its start", "ready", _median("s", 1), LOWER),
    ("memory, idle", "idle", _median("MiB", 0), LOWER),
    ("memory, after load", "loaded", _median("MiB", 0), LOWER),
    (f"answers to {QUICK} quick messages", "quick", _median("", 0), NEITHER),
    ("quick messages that these answer", "covered", _of(QUICK), HIGHER),
    ("in the order of the messages", "in_order", _yes_or_no, HIGHER),
    ("killed in mid-call: answered after the restart", "silent", _of(SILENT), HIGHER),
    ("continued only when the user says so", "offers", _of(SILENT), NEITHER),
    ("message sent again: answered", "again", _of(AGAIN), HIGHER),
    ("killed in mid-call: answered twice", "twice", _of(SILENT + AGAIN), LOWER),
    ("from the kill to the answer, p50", "took", _median("s", 1), LOWER),
    ("load average of the machine before", "load", _median("", 1), NEITHER),
)


def as_json(machine: Machine, results: Sequence[Result]) -> str:
    """Return everything with the values of every round."""
    return json.dumps({"machine": asdict(machine), "peers": [asdict(one) for one in results]}, indent=1) + "\n"


def page(text: str) -> str:
    """Return the page of a JSON text."""
    told = json.loads(text)
    machine, results = told["machine"], [Result(**one) for one in told["peers"]]
    about = (
        f"{machine['date']}; {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:g} GiB; "
        f"{machine['system']}; Python {machine['python']}; rounds: {max(len(one.rounds) for one in results)}; load "
        f"average before the run: {machine['load'][0]:.2f}."
    )
    peers = ["| | version | started by | messages reach it by |", "|---|---|---|---|"]
    peers += [f"| {one.name} | {one.version} | `{one.command}` | {one.door} |" for one in results]
    missing = [f"* {one.name} is not measured: {one.skipped}" for one in results if one.skipped]
    return "\n".join([HEAD, about, "", *table(results), "", *missing, *([""] if missing else []), NOTES, *peers, ""])


def table(results: Sequence[Result]) -> list[str]:
    """Return the table as lines of Markdown."""
    measured = [one for one in results if one.rounds]
    lines = [f"| | {' | '.join(one.name for one in measured)} |", f"|---{'|---:' * len(measured)}|"]
    for label, key, tell, better in ROWS:
        values = [[one_round[key] for one_round in one.rounds if key in one_round] for one in measured]
        ranks = [better * median(found) for found in values if found]
        cells = [
            _cell(tell(found, len(one.rounds)), min(ranks) < better * median(found) == max(ranks)) if found else "never"
            for one, found in zip(measured, values, strict=True)
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
