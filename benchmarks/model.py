"""The model server of the benchmarks: that of the tests, in a process, with answers at once or after a delay."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.processes import run_process, wait_for_line

START_TIMEOUT = 20.0
REPLY = "The weather will be fine and the train runs on time. Take water, a hat and something against the rain."


@dataclass(frozen=True)
class Model:
    """A server with OpenAI's API on a port of this machine."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """The ``baseUrl`` for an account."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def set_delay(self, seconds: float) -> None:
        """Forget earlier requests, and answer each later one after so many seconds."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", trust_env=False) as http:
            (await http.post("/_reset")).raise_for_status()
            (await http.post("/_script", json={"reply": REPLY, "delay": seconds})).raise_for_status()


@asynccontextmanager
async def model(folder: Path) -> AsyncIterator[Model]:
    """Run the server."""
    command = (sys.executable, "-m", "tests.support.llm_server", "--port", "0")
    async with run_process(command, folder / "model.log") as process:
        [port] = await wait_for_line(process, "", START_TIMEOUT)
        model_server = Model(int(port), process.pid)
        await model_server.set_delay(0)
        yield model_server
