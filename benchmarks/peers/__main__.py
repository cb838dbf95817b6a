"""Measure Maestro and its peers side by side: ``python -m benchmarks.peers``."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import this_machine
from benchmarks.model import Model, model
from benchmarks.peers.installed import environment_of
from benchmarks.peers.peer import Peer, PeerFailure
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
ROUND_TIMEOUT = 600.0
"""Seconds for one round of one peer; a working one takes about two minutes."""


async def compare(names: Sequence[str], rounds: int) -> list[Result]:
    """Measure each peer in turn, in each round; a peer that fails is left out with the reason."""
    end_on_sigterm()
    programs: dict[str, Path] = {}
    skipped: dict[str, str] = {}
    measured: dict[str, list[Values]] = {name: [] for name in names}
    for name in names:
        try:
            programs[name] = await environment_of(PEERS[name].requirements) if PEERS[name].requirements else ROOT
        except PeerFailure as failure:
            skipped[name] = str(failure)
    with tempfile.TemporaryDirectory(prefix="maestro-peers-") as folder:
        async with model(Path(folder)) as model_server:
            bar = ProgressBar(rounds * (len(names) - len(skipped)), "rounds of a peer")
            for number in range(rounds):
                for name in [name for name in names if name not in skipped]:
                    bar.show(sum(map(len, measured.values())), name)
                    try:
                        values = await _measure_round(
                            PEERS[name], Path(folder) / f"{name}-{number}", programs[name], model_server
                        )
                    except PeerFailure as failure:
                        skipped[name] = text = str(failure)
                    else:
                        measured[name].append(values)
                        text = ", ".join(f"{key} {value:.3g}" for key, value in values.items())
                    bar.clear()
                    print(f"{name}, round {number + 1} of {rounds}: {text}", flush=True)
    return [_result(PEERS[name], skipped.get(name, ""), measured[name]) for name in names]


async def _measure_round(kind: type[Peer], folder: Path, programs: Path, model_server: Model) -> Values:
    await asyncio.to_thread(folder.mkdir)
    try:
        async with asyncio.timeout(ROUND_TIMEOUT):
            return await measure(kind(folder, programs, model_server), model_server)
    except TimeoutError as error:
        raise PeerFailure(f"a round did not end within {ROUND_TIMEOUT:g} s") from error


def _result(kind: type[Peer], skipped: str, rounds: list[Values]) -> Result:
    return Result(kind.name, kind.describe_version(), kind.command, kind.access, skipped, [] if skipped else rounds)


def main() -> int:
    """Measure, print, and return the exit code; only a run of all peers rewrites the page."""
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
