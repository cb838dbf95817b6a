"""Measures Maestro and its peers side by side: ``python -m benchmarks.peers``."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import this_machine
from benchmarks.model import Model, model
from benchmarks.peers.installed import NotInstalled, environment_of
from benchmarks.peers.peer import Peer
from benchmarks.peers.report import JSON, Result, as_json, table, write_page
from benchmarks.peers.servers import Hermes, LangGraph
from benchmarks.peers.sockets import Maestro, Nanobot
from benchmarks.peers.temporal_flow import TemporalFlow
from benchmarks.peers.trials import Values, measure
from benchmarks.processes import ROOT, end_on_sigterm
from benchmarks.progress import ProgressBar

PEERS: dict[str, type[Peer]] = {
    "maestro": Maestro,
    "nanobot": Nanobot,
    "hermes": Hermes,
    "langgraph": LangGraph,
    "temporal": TemporalFlow,
}
LONGEST = 600.0
"""Seconds for one round of one peer: only a failure takes so long."""


async def compare(names: Sequence[str], rounds: int) -> list[Result]:
    """Measure each peer in turn, as often as there are rounds."""
    end_on_sigterm()
    programs: dict[str, Path] = {}
    skipped: dict[str, str] = {}
    measured: dict[str, list[Values]] = {name: [] for name in names}
    for name in names:
        try:
            programs[name] = await environment_of(PEERS[name].requirements) if PEERS[name].requirements else ROOT
        except NotInstalled as reason:
            skipped[name] = str(reason)
    with tempfile.TemporaryDirectory(prefix="maestro-peers-") as folder:
        async with model(Path(folder)) as served:
            bar = ProgressBar(rounds * (len(names) - len(skipped)), "rounds of a peer")
            for number in range(rounds):
                for name in [name for name in names if name not in skipped]:
                    bar.show(sum(map(len, measured.values())), name)
                    try:
                        values = await _one(PEERS[name], Path(folder) / f"{name}-{number}", programs[name], served)
                    except (RuntimeError, TimeoutError) as reason:
                        skipped[name] = str(reason) or "it took too long"
                        continue
                    measured[name].append(values)
                    bar.clear()
                    figures = ", ".join(f"{key} {value:.3g}" for key, value in values.items())
                    print(f"{name}, round {number + 1} of {rounds}: {figures}", flush=True)
    return [_result(PEERS[name], skipped.get(name, ""), measured[name]) for name in names]


async def _one(kind: type[Peer], folder: Path, programs: Path, served: Model) -> Values:
    await asyncio.to_thread(folder.mkdir)
    async with asyncio.timeout(LONGEST):
        return await measure(kind(folder, programs, served), served)


def _result(kind: type[Peer], skipped: str, rounds: list[Values]) -> Result:
    version = kind.requirements[0].partition("==")[2] if kind.requirements else "this one"
    return Result(kind.name, version, kind.command, kind.door, skipped, [] if skipped else rounds)


def main() -> int:
    """Measure, tell, and return the exit code; only a run of all peers rewrites the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Measure Maestro and its peers.")
    parser.add_argument("--only", default=",".join(PEERS), metavar="NAMES", help=f"some of: {','.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every value (peers.json)")
    given = parser.parse_args()
    names = [name.strip() for name in given.only.split(",")]
    if unknown := sorted(set(names) - set(PEERS)):
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(PEERS)}")
    machine = this_machine()
    try:
        results = asyncio.run(compare(names, given.rounds))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; nothing is written", file=sys.stderr)
        return 130
    print("\n".join([*table(results), *(f"{one.name}: {one.skipped}" for one in results if one.skipped)]))
    target = given.json or (JSON if len(names) == len(PEERS) else None)
    if target is not None:
        target.write_text(as_json(machine, results))
    if target == JSON:
        write_page()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Temporal's native threads may abort a process that cleans up behind itself
