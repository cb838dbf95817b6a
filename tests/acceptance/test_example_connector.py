"""A connector of somebody else: built, installed beside Maestro, and talked to, with nothing of ours changed."""

import ast
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from matrix_homeserver import ADA, BOT, TOKEN, Fault, Homeserver

from tests.support.command import COMMAND, PATIENCE, UpProcess
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports
from tests.unit.architecture.source import PACKAGES, ROOT, Source, read

pytestmark = pytest.mark.xdist_group("example")

EXAMPLE = ROOT / "examples" / "maestro-matrix"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package as a wheel, and install it where nothing else is."""
    place = tmp_path_factory.mktemp("installed")
    alone = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    said(sys.executable, "-m", "pip", "install", *alone, "--target", str(place), str(EXAMPLE))
    return place


def said(*command: str, folder: Path | None = None, beside: Path | None = None) -> str:
    """Run a command to its end, where the package is ``beside`` Maestro, and return what it said."""
    environment = {**os.environ, "PYTHONPATH": str(beside or "")}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE * 2)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def test_the_package_passes_its_own_tests_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)
    options = ("-q", "-p", "no:cacheprovider", "-W", "error")
    summary = said(sys.executable, "-m", "pytest", *options, folder=tmp_path, beside=installed).splitlines()[-1]
    assert int(summary.split()[0]) > 40, summary
    assert summary.split()[1] == "passed", summary


def test_maestro_finds_it_by_its_entry_point_alone(installed: Path, tmp_path: Path) -> None:
    find = "from connectors.platforms import platform, platforms; print(*platforms(), platform('matrix').connector)"
    with_it = said(sys.executable, "-c", find, folder=tmp_path, beside=installed).split()
    assert {"discord", "matrix", "slack", "maestro_matrix.connector:connect"} <= set(with_it)
    without = said(sys.executable, "-c", "from connectors.platforms import platforms; print(*platforms())")
    assert "matrix" not in without.split()


def test_it_knows_of_maestro_only_what_is_offered_to_connectors() -> None:
    ours = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.|$)")
    known = {name for source in read(f"examples/{EXAMPLE.name}") for name in imported(source) if ours.match(name)}
    offered = re.compile(r"connectors\.(?:base|contract|failures|hub|options|platforms)|maestro\.(?:domain\..+|fetch)")
    assert {"connectors.base", "connectors.contract"} <= known
    assert [name for name in sorted(known) if not offered.fullmatch(name)] == []


def imported(source: Source) -> set[str]:
    """Return the modules that a file imports."""
    plain = {alias.name for node in source.walk(ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in source.walk(ast.ImportFrom)}


class Maestro:
    """Maestro in a folder and a process of its own, beside which the package is installed."""

    def __init__(self, folder: Path, server: Homeserver, llm: LLMServer, installed: Path) -> None:
        self.data, self.log, self._installed = folder / "data", folder / "log.txt", installed
        self._config = folder / "maestro.json"
        self._config.write_text(json.dumps(_settings(self.data, server, llm)))

    @asynccontextmanager
    async def up(self, end: signal.Signals) -> AsyncIterator[None]:
        """Run it for the length of a block, which ends with this signal; its log is kept."""
        environment = {**os.environ, "PYTHONPATH": str(self._installed), "BOTS_TOKEN": TOKEN}
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(COMMAND, "up", "--config", self._config, "--debug"),
                cwd=self.data.parent,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
            running = UpProcess(process)
            try:
                await running.ready()
                yield
            finally:
                await running.end(end)
                log.write("\n".join(running.said).encode())

    def holding(self, secret: str) -> list[Path]:
        """Return the files that hold these words."""
        files: Iterator[Path] = (path for path in self.data.parent.rglob("*") if path.is_file())
        return [path for path in files if secret.encode() in path.read_bytes()]


def _settings(data: Path, server: Homeserver, llm: LLMServer) -> Mapping[str, object]:
    web, webui, temporal, temporal_ui = free_ports(4)
    account = {"name": "local", "provider": "openai", "model": "gpt-4o-mini", "apiKey": "sk-test"}
    bot = {"platform": "matrix", "options": {"baseUrl": server.url}, "secrets": {"accessToken": "env:BOTS_TOKEN"}}
    return {
        "dataDir": str(data),
        "web": {"port": web},
        "webui": {"port": webui},
        "temporal": {"port": temporal, "uiPort": temporal_ui},
        "llm": {"accounts": [{**account, "baseUrl": llm.base_url("openai")}]},
        "owner": {"ids": [f"matrix:{ADA}"]},
        "connectors": {"bots": [bot]},
        "logs": {"level": "debug"},
    }


async def answered(server: Homeserver, room: str, texts: Sequence[str]) -> None:
    """Return once the bot has said this in a room, and nothing else."""
    there: Callable[[], bool] = lambda: len(server.shown(room)) >= len(texts)  # noqa: E731 - it has no name
    await until(there, what=f"{texts} in the room, where there is {server.shown(room)}")
    assert server.shown(room) == list(texts)


async def test_people_in_matrix_are_answered_before_and_after_a_kill(installed: Path, tmp_path: Path) -> None:
    with LLMServer.running() as llm:
        async with Homeserver.running() as server:
            maestro = Maestro(tmp_path, server, llm, installed)
            async with maestro.up(end=signal.SIGKILL):
                await server.listened()
                room = await server.room(ADA, invites=ADA)
                await server.say(room, "hello **you**")
                await answered(server, room, ["answer to: hello **you**"])
                assert server.rooms[room].joined().keys() == {ADA, BOT}
                assert "<strong>you</strong>" in server.sent(room)[0]["formatted_body"]
            await server.say(room, "are you there")
            server.faults["sync"].append(Fault(502))
            async with maestro.up(end=signal.SIGTERM):
                await answered(server, room, ["answer to: hello **you**", "answer to: are you there"])
            assert maestro.log in maestro.holding("matrix.disconnected"), "what is told of it is in the log"
            assert maestro.holding(TOKEN) == []
