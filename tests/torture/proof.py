"""The published ledger: ``benchmarks/torture.json``, and the tables of README and ``docs/proof.md`` made from it."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.torture.ledger import (
    ALLOWED,
    ANSWERED_TWICE,
    BOUGHT_AGAIN,
    ENDED,
    FIGURES,
    IN_FLIGHT,
    LEFT_OPEN,
    LOST,
    MARKED,
    OUT_OF_ORDER,
    REFUSED,
    UNMARKED,
    WAITED,
)
from tests.torture.plan import Harm

ROOT = Path(__file__).parents[2]
JSON = ROOT / "benchmarks" / "torture.json"
PAGE = ROOT / "docs" / "proof.md"
LAYOUTS = ("one", "separate", "two-hosts")
STORES = ("sqlite", "postgresql")
README = ROOT / "README.md"
BEGIN, END = "<!-- figures of benchmarks/torture.json -->\n", "<!-- end of the figures -->"
"""What is around the figures in a page."""
PROMISED = {
    "messages lost": (LOST,),
    "answered twice, or repeated without a record": (ANSWERED_TWICE, UNMARKED),
    "answered out of order": (OUT_OF_ORDER,),
    "stored answers bought again": (BOUGHT_AGAIN,),
}
"""The four numbers of the README, each with the figures of the ledger that it sums."""
LABELS = {
    LOST: "message lost",
    UNMARKED: "repeated without a record",
    BOUGHT_AGAIN: "stored answer bought again",
    LEFT_OPEN: "row left as running",
    ENDED: "process ended without a kill",
    IN_FLIGHT: "call in flight repeated, may be charged again",
    MARKED: "possible duplicate, recorded",
    WAITED: "message waited for a model",
    REFUSED: "start refused and repeated",
    Harm.CRASH.value: "kill at a crash point",
    Harm.UPGRADE.value: "change of release",
}
"""The words of the pages for names of the ledger that only its readers know; other names are their own words."""
DESCRIPTIONS = {
    "one": "one process, `maestro up`, and its Temporal server",
    "separate": "`maestro worker`, `maestro api`, `maestro connect` and a Temporal server",
    "two-hosts": "two of each process, which share PostgreSQL and Temporal and nothing else",
}
JsonObject = Mapping[str, Any]


def publish(run: JsonObject) -> None:
    """Put a run in the place of the one of the same layout and store, and write the page."""
    others = [one for one in read() if (one["layout"], one["store"]) != (run["layout"], run["store"])]
    runs = sorted([*others, run], key=lambda one: (LAYOUTS.index(one["layout"]), STORES.index(one["store"])))
    JSON.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    write_pages(runs)


def write_pages(runs: Sequence[JsonObject]) -> None:
    """Write the figures of the page, and those of the README."""
    for path, figures in ((PAGE, page_figures(runs)), (README, readme_figures(runs))):
        before, marker, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        path.write_text(f"{before}{marker}{figures}{rest[rest.index(END) :]}", encoding="utf-8")


def read_figures(path: Path) -> str:
    """Return the figures that a page has now."""
    return path.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def readme_figures(runs: Sequence[JsonObject]) -> str:
    """Return the sums over all runs for the README: the four numbers, and what was reached and allowed."""
    kills, messages = sum(run["kills"] for run in runs), sum(sum(run["messages"].values()) for run in runs)
    shares = [run["points"]["reached"] / run["points"]["known"] for run in runs]
    again, recorded = (sum(run["allowed"][name] for run in runs) for name in (IN_FLIGHT, MARKED))
    rows = [
        (name, sum(run["figures"][figure] for run in runs for figure in figures)) for name, figures in PROMISED.items()
    ]
    table = "".join(f"| {name} | {number:,} |\n" for name, number in rows)
    return (
        f"| after {kills:,} kills under {messages:,} messages | |\n|---|---:|\n{table}\n"
        f"Crash points reached in each run: at least {math.floor(min(shares) * 100)}%; `make crash-points` kills at\n"
        "every one that a message on the web passes. Model calls in flight that were made again, and may be charged\n"
        f"twice: {again:,}. Possible duplicates on Telegram and WhatsApp, which their jobs record: {recorded:,}.\n"
    )


def read() -> list[dict[str, Any]]:
    """Return the published runs."""
    runs: list[dict[str, Any]] = json.loads(JSON.read_text(encoding="utf-8"))["runs"] if JSON.exists() else []
    return runs


def page_figures(runs: Sequence[JsonObject]) -> str:
    """Return the ledger of these runs, their origin and what was done to Maestro, for the page."""
    skipped = sorted({f"* {_name(run)}: {name}: {why}" for run in runs for name, why in run["skipped"].items()})
    left_out = "\n".join(["", "Not possible on the machine of the run:", "", *skipped, ""]) if skipped else ""
    return f"{table(runs)}\n{_layouts(runs)}{left_out}\n## Disturbances\n\n{_harms(runs)}"


def table(runs: Sequence[JsonObject]) -> str:
    """Return the figures, a column for each run."""
    rows = [
        ("kills made / planned", [f"{run['kills']} / {run['ordered']}" for run in runs]),
        ("messages", [sum(run["messages"].values()) for run in runs]),
        ("disturbances", [sum(run["disturbances"].values()) for run in runs]),
        ("crash points reached / existing", [f"{run['points']['reached']} / {run['points']['known']}" for run in runs]),
        *((f"**{_label(name)}**", [run["figures"][name] for run in runs]) for name in FIGURES),
        *((f"allowed: {_label(name)}", [run["allowed"][name] for run in runs]) for name in ALLOWED),
        ("minutes", [round(run["seconds"] / 60) for run in runs]),
    ]
    return "\n".join(_lines(runs, rows)) + "\n"


def _harms(runs: Sequence[JsonObject]) -> str:
    names = sorted({name for run in runs for name in run["disturbances"]})
    kinds = sorted({name for run in runs for name in run["messages"]})
    rows = [(_label(name), [run["disturbances"].get(name, 0) for run in runs]) for name in names]
    rows += [(f"messages: {name}", [run["messages"].get(name, 0) for run in runs]) for name in kinds]
    return "\n".join(_lines(runs, rows)) + "\n"


def _layouts(runs: Sequence[JsonObject]) -> str:
    layouts = [
        f"* `{name}`: {text}" for name, text in DESCRIPTIONS.items() if any(run["layout"] == name for run in runs)
    ]
    return "\n".join([*layouts, *(f"* {_origin(run)}" for run in runs)]) + "\n"


def _origin(run: JsonObject) -> str:
    machine = run["machine"]
    commits = ", ".join(f"{commit} ({kills} kills)" for commit, kills in run["commits"].items())
    return (
        f"{_name(run)}: seed {run['seed']}, commit {commits}, {machine['date']}, {machine['processor']} with "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}"
    )


def _label(name: str) -> str:
    return LABELS.get(name, name)


def _name(run: JsonObject) -> str:
    return f"{run['layout']}, {'SQLite' if run['store'] == 'sqlite' else 'PostgreSQL'}"


def _lines(runs: Sequence[JsonObject], rows: Sequence[tuple[str, Sequence[object]]]) -> Iterator[str]:
    yield f"| | {' | '.join(map(_name, runs))} |"
    yield f"|---|{'---:|' * len(runs)}"
    for name, values in rows:
        yield f"| {name} | {' | '.join(map(str, values))} |"


if __name__ == "__main__":
    write_pages(read())
