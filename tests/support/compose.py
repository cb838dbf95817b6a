"""docker-compose.yml run without containers: each service's own command and environment, as a process of this machine.

Only what a container runtime maps is mapped: mount points become folders and files of this machine, names of services
its loopback address, and ports that would be a container's own become free ones.
"""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.dockerfile import Image

PATIENCE = 120.0
"""Seconds for what must happen; long, because only a failure ever takes them."""
LOOK = 1.0
"""Seconds between two runs of a health check, each of which is a process: more of them keep what they look at busy."""

_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\})")


def composed(file: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return what the file says once its variables are filled in; raises ``KeyError`` for one without a value."""

    def value(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        given = variables.get(found["name"], "")
        return given or (found["default"] if found["default"] is not None else variables[found["name"]])

    tree: dict[str, Any] = _filled(yaml.safe_load(file.read_text()), lambda text: _VARIABLE.sub(value, text))
    return tree


def _filled(node: Any, fill: Callable[[str], str]) -> Any:
    """Fill in every text of a tree."""
    if isinstance(node, dict):
        return {name: _filled(below, fill) for name, below in node.items()}
    if isinstance(node, list):
        return [_filled(below, fill) for below in node]
    return fill(node) if isinstance(node, str) else node


@dataclass(frozen=True)
class Machine:
    """What stands on this machine for what containers have.

    ``mounts`` are places inside containers and the paths here, ``addresses`` are ``service:port`` and the address here,
    ``ports`` are those that each container would have to itself.
    """

    mounts: Mapping[str, Path]
    addresses: Mapping[str, str]
    ports: Mapping[int, int]

    def here(self, text: str) -> str:
        """Return a text of a container as it reads on this machine."""
        for inside, outside in (*self.addresses.items(), *((str(a), str(b)) for a, b in self.ports.items())):
            text = re.sub(rf"(?<![\w.]){re.escape(inside)}(?!\w)", outside, text)
        for inside in sorted(self.mounts, key=len, reverse=True):
            text = re.sub(rf"(?<![\w/]){re.escape(inside)}(?=[/:]|$)", str(self.mounts[inside]), text)
        return text


class Container:
    """One service of the file as a process."""

    def __init__(self, service: Mapping[str, Any], image: Image, machine: Machine) -> None:
        self._machine = machine
        self._command = [*image.entrypoint, *service["command"]]
        environment = {**image.environment, **service.get("environment", {})}
        self.environment = {name: machine.here(str(value)) for name, value in environment.items()}
        self._folder = Path(machine.here(image.working_directory))
        self._check: Sequence[str] = service.get("healthcheck", {}).get("test", [])[1:]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def started(self) -> bool:
        """Whether it was started."""
        return self._process is not None

    async def start(self) -> None:
        """Start it without waiting for anything."""
        self._process = await self._run(self._command)

    async def healthy(self) -> None:
        """Return when its health check succeeds; raises ``AssertionError`` with all it said if it never does."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self._process.returncode is None:
                    check = await self._run(self._check)
                    if await check.wait() == 0:
                        return
                    await asyncio.sleep(LOOK)
        raise AssertionError(f"it did not get healthy: {await self.stop()}")

    async def ended(self) -> tuple[int, str]:
        """Wait for its end and return its exit code and all it said."""
        assert self._process is not None
        said = await asyncio.wait_for(self._said(), PATIENCE)
        return await self._process.wait(), said

    async def stop(self) -> tuple[int, str]:
        """Stop it as a container runtime does, and return its exit code and all it said."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def _run(self, command: Sequence[str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *map(self._machine.here, command),
            cwd=self._folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def _said(self) -> str:
        assert self._process is not None
        output, _ = await self._process.communicate()
        return output.decode()


def run_script(script: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script of the file's one-shot services, with the programs of this environment on its path."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return subprocess.run(
        ["/bin/sh", str(script)], env={"PATH": path, **environment}, capture_output=True, text=True, check=False
    )
