"""The ports of tests: two that are given are never the same, whether within a process or between processes."""

import asyncio
import sys

from tests.support.ports import PORTS, free_port, free_ports

MANY = 300
GIVE = f"from tests.support.ports import free_ports; print(*free_ports({MANY}), flush=True); input()"


def test_a_process_gets_each_port_once() -> None:
    ports = free_ports(MANY)
    assert len({*ports, free_port()}) == MANY + 1
    assert set(ports) <= set(PORTS)


async def test_processes_beside_each_other_get_different_ports() -> None:
    pipe = asyncio.subprocess.PIPE
    running = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", GIVE, stdin=pipe, stdout=pipe) for _ in range(3)
    ]
    lines = [await process.stdout.readline() for process in running if process.stdout]
    for process in running:
        await process.communicate(b"\n")
    given = [port for line in lines for port in line.split()]
    assert len(set(given)) == len(given) == 3 * MANY
