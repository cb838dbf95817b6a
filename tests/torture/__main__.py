"""``python -m tests.torture``: kill, stop and cut off Maestro many times, and count what became of each message."""

import argparse
import asyncio
import os
import sys
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.progress import ProgressBar
from tests.support import postgresql
from tests.torture import proof
from tests.torture.campaign import Order, Run, play

STOPPED = 130
"""The exit code after Ctrl-C or SIGTERM."""
FOLDER = proof.ROOT / "build" / "torture"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how often processes are killed (1000)")
    parser.add_argument("--seed", type=int, default=1, help="what everything is drawn from (1)")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite", help="the store (sqlite)")
    parser.add_argument("--layout", choices=proof.LAYOUTS, default="one", help="which processes there are (one)")
    parser.add_argument("--lanes", type=int, default=_lanes(), help=f"how many Maestros at once ({_lanes()})")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"for the run and the data of faults ({FOLDER})")
    parser.add_argument("--minutes", type=float, default=inf, help="begin no episode later; the next call goes on")
    parser.add_argument(
        "--publish", action="store_true", help=f"write {proof.JSON.name}, {proof.PAGE.name} and the README"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--points", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _lanes() -> int:
    return min((os.cpu_count() or 1) + 1, 8)


class Progress:
    """The progress of a run on the error output, with each fault as it is found."""

    def __init__(self, run: Run) -> None:
        self._seed = run.order.seed
        self._bar = ProgressBar(run.order.kills, "kills", run.kills)
        self._bar.show(run.kills, "starting, and learning the crash points")

    def __call__(self, run: Run) -> None:
        """Show how far the run is, and the fault of its last episode."""
        if run.outcomes[-1]["faults"]:
            self._bar.clear()
            print(_fault(run.outcomes[-1], self._seed), file=sys.stderr)
        self._bar.show(run.kills, f"{run.messages} messages, {len(run.faults)} episodes with faults")


def _torture(given: argparse.Namespace) -> int:
    run = Run.read(Order(given.kills, given.seed, given.store, given.layout, given.lanes, given.folder))
    if given.minutes:
        run.begin()
        try:
            asyncio.run(play(run, Progress(run), 60 * given.minutes))
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("stopped; the same command goes on from here", file=sys.stderr)
            return STOPPED
    outcome = run.as_json()
    print(proof.table([outcome]))
    if given.publish:
        proof.publish(outcome)
    return 1 if run.faults else 0


def _fault(outcome: dict[str, Any], seed: int) -> str:
    lines = [f"Episode {outcome['number']} of seed {seed}:", *outcome["faults"]]
    shortest = "; ".join(outcome["prefix"]) or "no beginning of it failed again"
    lines += [f"shortest: {shortest}", f"data: {outcome['data_folder']}", f"plan: {outcome['plan']}"]
    return "\n  ".join(lines)


def main() -> int:
    """Torture, or play what another process orders; return the exit code."""
    given = _arguments()
    if given.layout == "two-hosts" and given.store != "postgresql":
        print("the layout two-hosts needs --store postgresql", file=sys.stderr)
        return 2
    # As in tests/conftest.py: nothing depends on the keys and settings of the person who runs it.
    for name in [name for name in os.environ if name.startswith("MAESTRO_") and not name.startswith("MAESTRO_TEST_")]:
        del os.environ[name]
    os.environ[postgresql.SWITCH] = given.store
    if postgresql.wanted():
        postgresql.prepare()
    return _serve(given) if given.serve else _torture(given)


def _serve(given: argparse.Namespace) -> int:
    # Imported here because it takes seconds, and only the processes that play need it.
    from tests.support.fresh_store import copy_new_databases  # noqa: PLC0415
    from tests.support.one_dialect import share_compiled_statements  # noqa: PLC0415
    from tests.torture.lane_process import serve  # noqa: PLC0415

    share_compiled_statements()
    copy_new_databases()
    # What the processes under test write to the standard output goes elsewhere.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    try:
        asyncio.run(serve(given.layout, given.seed, given.folder, given.points, answers))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STOPPED
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
