"""The published ledger: ``benchmarks/torture.json``, and the page ``docs/proof.md`` that is made from it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.torture.ledger import ALLOWED, ANSWERED_TWICE, BOUGHT_AGAIN, FIGURES, LOST, OUT_OF_ORDER, UNMARKED

ROOT = Path(__file__).parents[2]
JSON = ROOT / "benchmarks" / "torture.json"
PAGE = ROOT / "docs" / "proof.md"
LAYOUTS = ("one", "separate", "two-hosts")
STORES = ("sqlite", "postgresql")
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=<!-- figures of benchmarks/torture.json -->\n).*(?=<!-- end of the figures -->)", re.DOTALL)
PROMISED = {
    "messages lost": (LOST,),
    "answered twice, or repeated without a mark": (ANSWERED_TWICE, UNMARKED),
    "answered out of order": (OUT_OF_ORDER,),
    "held answers bought again": (BOUGHT_AGAIN,),
}
"""The four numbers of the README, each with the figures of the ledger that it sums."""
DESCRIPTIONS = {
    "one": "one process, `maestro up`, and its Temporal server",
    "separate": "`maestro worker`, `maestro api`, `maestro connect` and a Temporal server",
    "two-hosts": "two of each process, which share PostgreSQL and Temporal and nothing else",
}
Told = Mapping[str, Any]

HEAD = """\
# Proof: what kills leave behind

Maestro is killed, stopped and cut off at random moments and at named points while people and programs write to it, and
then each message is accounted for. `make torture` writes this page from `benchmarks/torture.json`.

"""
READING = """\
## How it is done

Everything is seen from outside: sockets, local servers that speak the protocols of the four platforms, a model server
with a log, and rows that are only read. The product runs as it is; the wrappers that let it die at a named point are in
`tests/support/crashing.py`. The model answers with marks, words that occur nowhere else, so that each part of an answer
is counted where it arrives.

A run consists of episodes. In each, messages of every kind are sent over the web and four platforms while processes are
disturbed; then everything has to be settled before the next one begins. Seed and number of an episode decide what is
sent and what is done, and when. What the processes do meanwhile depends on the machine, so a run that is repeated draws
the same moments and may meet them in another state.

* **lost**: a part of an answer did not arrive.
* **answered twice**, **repeated without a mark**: a part arrived again, on a platform that recognises repeats, or on
  one that cannot (Telegram, WhatsApp) without a row that counts the repeat.
* **out of order**: in one channel, a later message was answered, or its model call made, before an earlier one.
* **held answer bought again**: the model was asked once more than calls were recorded as cut off, or an answer that was
  recorded was bought again.
* **schedule missed**, **doubled**: a schedule that is due once did not come, or came twice.
* **effect of a tool repeated**: a tool that may not be called again was.
* **left open in the store**: a row that says that something is being done when nothing is.
* **process ended by itself**: a process ended, or did not become ready, without being killed.

Allowed, and counted apart: a model call that was in flight when its process was disturbed is made again, once for
each disturbance; a call whose connection was cut is made again; a chunk that a platform may have, and cannot say, is
sent again and marked ([ADR 22](adr/0022-unconfirmed-sends-follow-a-rule.md)); a message waits while no account can
answer, and later ones may be answered before it ([lanes](invariants.md#lanes)); a process that starts while the store
cannot be used ends with the reason, and is started again as a supervisor does.

## Repeat it

<!-- not run: a thousand kills take hours; tests/chaos/test_torture.py makes forty -->
```sh
make torture KILLS=40
make torture KILLS=1000 SEED=1 STORE=sqlite LAYOUT=one
```

`STORE` is `sqlite` or `postgresql`, `LAYOUT` is `one`, `separate` or `two-hosts` (with PostgreSQL). Forty kills take
some minutes and are a part of `make test`. Each episode is written to a file in `build/torture` when it ends, so that
the same command goes on where it was cut off; `ARGS="--minutes 50"` makes pieces of a long run, and `ARGS=--publish`
writes the ledger. A fault is printed with its seed and with the shortest beginning of its episode that shows it, and
its data is kept there too.
"""


def publish(run: Told) -> None:
    """Put a run in the place of the one of the same layout and store, and write the page."""
    others = [one for one in read() if (one["layout"], one["store"]) != (run["layout"], run["store"])]
    runs = sorted([*others, run], key=lambda one: (LAYOUTS.index(one["layout"]), STORES.index(one["store"])))
    JSON.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    write_pages(runs)


def write_pages(runs: Sequence[Told]) -> None:
    """Write the page, and the four numbers of the README."""
    PAGE.write_text(page(runs), encoding="utf-8")
    filled = BLOCK.sub(lambda _: four_numbers(runs), README.read_text(encoding="utf-8"))
    README.write_text(filled, encoding="utf-8")


def four_numbers(runs: Sequence[Told]) -> str:
    """Return the sums over all runs of what the promise excludes, for the README."""
    kills, messages = sum(run["kills"] for run in runs), sum(sum(run["messages"].values()) for run in runs)
    rows = [
        (name, sum(run["figures"][figure] for run in runs for figure in figures)) for name, figures in PROMISED.items()
    ]
    table = "".join(f"| {name} | {number:,} |\n" for name, number in rows)
    return f"| after {kills:,} kills under {messages:,} messages | |\n|---|---:|\n{table}"


def read() -> list[dict[str, Any]]:
    """Return the published runs."""
    runs: list[dict[str, Any]] = json.loads(JSON.read_text(encoding="utf-8"))["runs"] if JSON.exists() else []
    return runs


def page(runs: Sequence[Told]) -> str:
    """Return the page of these runs."""
    skipped = sorted({f"* {_name(run)}: {name}: {why}" for run in runs for name, why in run["skipped"].items()})
    left_out = "\n".join(["", "Not possible on the machine of the run:", "", *skipped, ""]) if skipped else ""
    return (
        f"{HEAD}## Ledger\n\n{table(runs)}\n{_layouts(runs)}\n{left_out}\n## Disturbances\n\n{_harms(runs)}\n{READING}"
    )


def table(runs: Sequence[Told]) -> str:
    """Return the figures, a column for each run."""
    rows = [
        ("kills so far, of those ordered", [f"{run['kills']} of {run['ordered']}" for run in runs]),
        ("messages", [sum(run["messages"].values()) for run in runs]),
        ("disturbances", [sum(run["disturbances"].values()) for run in runs]),
        ("named points reached, of all", [f"{run['points']['reached']} of {run['points']['known']}" for run in runs]),
        *((f"**{name}**", [run["figures"][name] for run in runs]) for name in FIGURES),
        *((f"allowed: {name}", [run["allowed"][name] for run in runs]) for name in ALLOWED),
        ("minutes", [round(run["seconds"] / 60) for run in runs]),
    ]
    return "\n".join(_lines(runs, rows)) + "\n"


def _harms(runs: Sequence[Told]) -> str:
    names = sorted({name for run in runs for name in run["disturbances"]})
    kinds = sorted({name for run in runs for name in run["messages"]})
    rows = [(name, [run["disturbances"].get(name, 0) for run in runs]) for name in names]
    rows += [(f"messages: {name}", [run["messages"].get(name, 0) for run in runs]) for name in kinds]
    return "\n".join(_lines(runs, rows)) + "\n"


def _layouts(runs: Sequence[Told]) -> str:
    layouts = [
        f"* `{name}`: {text}" for name, text in DESCRIPTIONS.items() if any(run["layout"] == name for run in runs)
    ]
    return "\n".join([*layouts, *(f"* {_origin(run)}" for run in runs)]) + "\n"


def _origin(run: Told) -> str:
    machine = run["machine"]
    commits = ", ".join(f"{commit} ({kills} kills)" for commit, kills in run["commits"].items())
    return (
        f"{_name(run)}: seed {run['seed']}, commit {commits}, {machine['date']}, {machine['processor']} with "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}"
    )


def _name(run: Told) -> str:
    return f"{run['layout']}, {'SQLite' if run['store'] == 'sqlite' else 'PostgreSQL'}"


def _lines(runs: Sequence[Told], rows: Sequence[tuple[str, Sequence[object]]]) -> Iterator[str]:
    yield f"| | {' | '.join(map(_name, runs))} |"
    yield f"|---|{'---:|' * len(runs)}"
    for name, values in rows:
        yield f"| {name} | {' | '.join(map(str, values))} |"


if __name__ == "__main__":
    write_pages(read())
