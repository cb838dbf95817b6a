"""docs/howto/run-on-several-machines.md as written: its files and commands, as two hosts with an address each.

Mapped is only what several machines have and one has not: the addresses of the hosts, and their folders. All ports are
those of the page.
"""

import asyncio
import json
import os
import random
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from configparser import ConfigParser
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Origin

from maestro.domain.settings.jobs import JobSettings
from tests.documentation.blocks import Block, blocks_of
from tests.documentation.mentions import wrong_in_command
from tests.documentation.shell import Surroundings, command_folder, run_blocks
from tests.support.forking import forked
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports
from tests.support.postgresql import empty_location
from tests.support.separate import READY, STANDS_BY, ForkedPart, TemporalApart
from tests.unit.architecture.source import ROOT

PAGE = "docs/howto/run-on-several-machines.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
BLOCKS = list(blocks_of(PAGE, TEXT))
NAME = "maestro.example.org"
PATIENCE = 60.0


def block_with(words: str) -> Block:
    """Return the block of the page with these words."""
    [found] = [block for block in BLOCKS if words in block.text]
    return found


def commands_of_hosts() -> list[list[list[str]]]:
    """Return the commands of each host in the table of the page, without the word ``maestro``."""
    rows = re.search(r"\| on host one \| on host two \|\n *\|---\|---\|\n((?: *\|.*\|\n)+)", TEXT)
    assert rows is not None
    columns = zip(*(row.strip(" |\n").split("|") for row in rows[1].splitlines() if row.count("`") == 4), strict=True)
    hosts = [[cell.strip(" `").split()[1:] for cell in column] for column in columns]
    [more] = re.findall(r"\| `maestro (worker --health-port \d+)` \| \|", rows[1])
    return [[*hosts[0], more.split()], hosts[1]]


class Machine:
    """One host: its address, its folders, and the processes that the page starts there."""

    def __init__(self, folder: Path, address: str, shared: Mapping[str, str]) -> None:
        self.folder = folder
        self.address = address
        folders = {"/etc/maestro": str(folder / "etc"), "/var/lib/maestro": str(folder / "lib")}
        self.here = {**shared, **folders, "chown -R maestro": f"chown -R {os.getuid()}"}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def config(self) -> Path:
        """The file of settings."""
        return self.folder / "etc" / "maestro.json"

    def write_config(self, model_address: str) -> None:
        """Write the file of the page; the provider's server is one of this machine."""
        text = block_with('"trustedProxies"').text.replace("0.0.0.0", self.address)
        for documented, real in self.here.items():
            text = text.replace(documented, real)
        settings = json.loads(text)
        settings["llm"]["accounts"][0]["baseUrl"] = model_address
        self.config.write_text(json.dumps(settings))

    async def run(self, block: Block, **environment: str) -> None:
        """Run a block of the page on this host."""
        with command_folder() as commands:
            path = {"PATH": f"{commands}:/usr/bin:/bin", "HOME": str(self.folder)}
            code, output = await run_blocks([block], Surroundings(self.folder, {**path, **environment}, self.here))
        assert code == 0, output

    def start(self, commands: list[list[str]]) -> dict[str, ForkedPart]:
        """Return the processes by their commands, not yet started."""
        return {
            " ".join(command): ForkedPart(["--config", str(self.config), *command], self.folder) for command in commands
        }

    async def status(self, port: int, path: str, host: str = "", password: str = "") -> int:
        """Return the HTTP status of a request, as the load balancer or a browser makes it."""
        auth = ("maestro", password) if password else None
        async with httpx.AsyncClient(trust_env=False, auth=auth, timeout=PATIENCE) as http:
            found = await http.get(f"http://{self.address}:{port}{path}", headers={"Host": host} if host else None)
        return found.status_code

    def secret(self, name: str) -> str:
        """Return what a file of the page holds."""
        return (self.folder / "etc" / name).read_text().strip()

    async def accepts(self, port: int) -> bool:
        """Return whether a TCP connection is accepted, which is the load balancer's check of the web connector."""
        try:
            _, writer = await asyncio.open_connection(self.address, port)
        except OSError:
            return False
        with closing(writer):
            return True


@asynccontextmanager
async def installed(folder: Path, llm: LLMServer) -> AsyncIterator[tuple[list[Machine], list[dict[str, ForkedPart]]]]:
    """Follow the page until its processes are to be started."""
    [temporal] = free_ports(1)
    cluster = TemporalApart(folder, temporal)
    url = empty_location(folder / "store.db")
    assert isinstance(url, str)
    shared = {
        "postgresql://maestro:$PGPASSWORD@db.example.org/maestro": url,
        "temporal.example.org:7233": f"127.0.0.1:{temporal}",
        "10.0.0.10": "127.0.0.1",
    }
    network = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
    one, two = (Machine(folder / name, f"{network}.{number}", shared) for number, name in enumerate(("one", "two"), 1))
    processes: list[dict[str, ForkedPart]] = []
    await cluster.start()
    try:
        await one.run(block_with("secrets.key\n"), ANTHROPIC_API_KEY="key-of-the-account")
        shutil.copytree(one.folder / "etc", two.folder / "etc")
        for machine in (one, two):
            machine.write_config(llm.base_url("anthropic"))
        await one.run(block_with("maestro init --yes"))
        processes += [
            machine.start(commands) for machine, commands in zip((one, two), commands_of_hosts(), strict=True)
        ]
        yield [one, two], processes
    finally:
        await asyncio.gather(*(part.end() for host in processes for part in host.values()))
        await cluster.end()


async def start_all(processes: list[dict[str, ForkedPart]]) -> None:
    """Start every process at once, host one first, and return when each is ready or waits for the lease."""
    for host in processes:
        for part in host.values():
            await part.begin()
        for command, part in host.items():
            await part.says(READY[command.split()[0]], 0, STANDS_BY if command.startswith("connect") else "")


async def ask(machine: Machine, words: str) -> str:
    """Ask as a page of the dashboard does, through the load balancer, and return the answer."""
    address = f"ws://{NAME}:5070/"
    async with connect(address, host=machine.address, origin=Origin(f"https://{NAME}"), proxy=None) as socket:
        await socket.send(json.dumps({"type": "auth", "apiKey": machine.secret("web.key")}))
        await socket.send(json.dumps({"type": "message", "content": words}))
        async with asyncio.timeout(PATIENCE):
            async for text in socket:
                frame = json.loads(text)
                if frame["type"] in ("message", "error"):
                    return str(frame.get("content", frame))
    raise AssertionError("it was closed")


def test_the_unit_of_systemd_starts_every_process_and_gives_it_time_to_end() -> None:
    page = (ROOT / "docs/howto/run-with-systemd.md").read_text(encoding="utf-8")
    unit = ConfigParser(strict=False, interpolation=None)
    unit.read_string(next(block.text for block in blocks_of("page", page) if "[Service]" in block.text))
    assert int(unit["Service"]["TimeoutStopSec"]) > 2 * JobSettings().drain_seconds
    assert unit["Service"]["ExecStart"].endswith("/maestro $COMMAND")
    commands = re.findall(r"^\| `maestro@\S+`.*\| `(.+)` \|$", page, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["up", "worker", "worker", "api", "connect"]
    assert [wrong for command in commands if (wrong := wrong_in_command(["maestro", *command.split()]))] == []


@pytest.mark.postgresql_only(reason="is about hosts that share a database server")
async def test_two_hosts_are_set_up_by_the_page(tmp_path: Path) -> None:
    with LLMServer.running() as llm:
        async with installed(tmp_path, llm) as (machines, processes):
            await start_all(processes)
            one, two = machines
            await assert_healthy_as_documented(one, two)
            await assert_reached_by_name(one)
            assert await ask(one, "hello") == "answer to: hello"
            assert llm.requests[-1].headers["x-api-key"] == "key-of-the-account"
            doctor = await asyncio.to_thread(forked, "--config", str(two.config), "doctor", folder=two.folder)
            assert doctor.code == 0, doctor.output
            for command, part in processes[0].items():
                if command != "api":
                    assert await part.end() == -signal.SIGKILL
            await processes[1]["connect web"].says(READY["connect"])
            assert [await one.accepts(5070), await two.accepts(5070)] == [False, True]
            assert await ask(two, "hello again") == "answer to: hello again"


async def assert_healthy_as_documented(one: Machine, two: Machine) -> None:
    """The checks of the load balancer find what the page says, and so do those of monitoring."""
    for machine in (one, two):
        assert await machine.status(8080, "/healthz") == HTTPStatus.OK
        assert await machine.status(8080, "/readyz") == HTTPStatus.UNAUTHORIZED
        assert await machine.status(8080, "/readyz", password=machine.secret("webui.password")) == HTTPStatus.OK
        assert await machine.status(9091, "/readyz") == HTTPStatus.OK
    assert await one.status(9093, "/readyz") == HTTPStatus.OK
    assert [await one.accepts(5070), await two.accepts(5070)] == [True, False]
    found = [await machine.status(9092, "/readyz") for machine in (one, two)]
    assert found == [HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE]


async def assert_reached_by_name(machine: Machine) -> None:
    """The dashboard answers under the name of the load balancer only, and knows that browsers use TLS."""
    assert await machine.status(8080, "/login", host=NAME) == HTTPStatus.OK
    assert await machine.status(8080, "/login", host="other.example.org") == HTTPStatus.MISDIRECTED_REQUEST
    headers = {"Host": NAME, "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    async with httpx.AsyncClient(trust_env=False) as http:
        page = await http.get(f"http://{machine.address}:8080/login", headers=headers)
    assert f"wss://{NAME}:5070" in page.headers["Content-Security-Policy"]
