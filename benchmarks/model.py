"""The model server of the benchmarks: the tests' own, as a process of its own, answering at once or after a delay."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.processes import running, until_said

STARTS_WITHIN = 20.0
REPLY = "The weather will be fine and the train runs on time. Take water, a hat and something against the rain."


@dataclass(frozen=True)
class Model:
    """Speaks OpenAI's wire on a port of this machine."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """What an account's ``baseUrl`` is set to."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def answers_after(self, seconds: float) -> None:
        """Forget all earlier requests, and let every answer take so long from now on."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", trust_env=False) as http:
            (await http.post("/_reset")).raise_for_status()
            (await http.post("/_script", json={"reply": REPLY, "delay": seconds})).raise_for_status()


@asynccontextmanager
async def model(folder: Path) -> AsyncIterator[Model]:
    """Run the server."""
    command = (sys.executable, "-m", "tests.support.llm_server", "--port", "0")
    async with running(command, folder / "model.log") as process:
        [port] = await until_said(process, "", STARTS_WITHIN)
        served = Model(int(port), process.pid)
        await served.answers_after(0)
        yield served
