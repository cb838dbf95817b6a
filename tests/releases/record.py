"""Records what a release leaves in its data folder: ``python -m tests.releases.record 0.1.0 COMMIT``.

The release's own wheel runs with the packages of this environment, which its lock file has to agree with. An operator
and users do with it what ``tests/acceptance/test_upgrade.py`` looks for; then it is killed while it works. The archive
holds its data folder as it was at that moment, and what the clients of the users knew.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from temporal.server_process import read_record
from tests.support.llm_script import Failure
from tests.support.llm_server import LLMServer
from tests.support.next_release import ReleasePart
from tests.support.ports import free_ports
from tests.support.web_client import WebClient, web_client

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
CLIENTS = "clients.json"

KEY = "sk-of-the-recorded-account"
CONDUCTOR = {"slug": "conductor", "role": "conductor"}
PROMPT = "You know everything about bread."
FACT = "The user bakes rye bread."
GREETING, SUM, QUESTION, FAILED, OPEN, BEHIND = (
    "Hello!",
    "What is 2 + 3?",
    "Help me.",
    "How hot?",
    "How long?",
    "And then?",
)
"""What users say, each with a client's id of its own: ``message_id``."""

LEFT_OUT = r"/(logs|.*\.(lock|pid|db-shm|db-reserve)|temporal\.json)$"
"""Files about processes of this machine, and what a start makes anew."""


def message_id(text: str) -> str:
    """Return the id by which a client names what it says."""
    return "-".join(re.findall(r"\w+", text.lower()))


def export_release(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit and unpack it, which is what an installation consists of."""
    source, unpacked = folder / "source", folder / "release"
    source.mkdir()
    tree = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", "--directory", source], input=tree, check=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--target", "wheel"], cwd=source, check=True)
    [wheel] = (source / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(unpacked)
    return unpacked


class Recording:
    """An installation of a release in an empty folder, which gets its answers from the model server of the tests."""

    def __init__(self, release: Path, folder: Path, llm: LLMServer) -> None:
        self._release, self._folder, self._llm = release, folder, llm
        self._clients: dict[str, WebClient] = {}
        self.web_port, webui, temporal, temporal_ui = free_ports(4)
        sections = {
            "web": {"host": "127.0.0.1", "port": self.web_port},
            "webui": {"host": "127.0.0.1", "port": webui},
            "temporal": {"port": temporal, "uiPort": temporal_ui},
            "agents": [CONDUCTOR],
        }
        (folder / "maestro.json").write_text(json.dumps(sections))

    def operate(self, *words: str) -> None:
        """Run a command of the release."""
        environment = {**os.environ, "PYTHONPATH": str(self._release), "KEY": KEY}
        subprocess.run([sys.executable, "-m", "maestro.cli", *words], cwd=self._folder, env=environment, check=True)

    async def write(self) -> None:
        """Let the release write all that is looked for, and kill it."""
        process = ReleasePart(self._release, self._folder / "data" / "maestro.db", self._folder, "up")
        try:
            await process.says("Maestro is ready", await process.begin())
            await asyncio.to_thread(self._set_up)
            await self._talk()
        finally:
            await process.end(signal.SIGKILL)
            if record := read_record(self._folder / "data" / "temporal.json"):
                os.kill(record.pid, signal.SIGKILL)

    def _set_up(self) -> None:
        account = ("--provider", "openai", "--model", "gpt-4o-mini", "--base-url", self._llm.base_url("openai"))
        self.operate("accounts", "add", "mine", *account, "--key-env", "KEY")
        (self._folder / "ada.md").write_text(PROMPT)
        self.operate("agents", "create", "ada", "--prompt-file", "ada.md")
        self.operate("agents", "edit", "ada", "--voice", "dry")
        self.operate("agents", "bind", "ada", "web", "kitchen")
        plan = ("--agent", "ada", "--channel", "kitchen")
        yearly = ("--when", "0 9 1 1 *", "--name", "new year", "--prompt", "Wish a happy new year.")
        self.operate("schedules", "add", "cron", *plan, *yearly)
        rarely = ("--when", "every 300d", "--name", "oven", "--prompt", "Look into the oven.")
        self.operate("schedules", "add", "heartbeat", *plan, *rarely)
        self.operate("schedules", "pause", "heartbeat-1")

    async def _talk(self) -> None:
        llm = self._llm
        llm.script(match=GREETING, reply=f"Noted. [MEMORY:user_preferences]{FACT}[/MEMORY]")
        llm.script(match=SUM, calls=(("calculate", '{"expression": "2 + 3"}'),), rounds=0)
        llm.script(match=QUESTION, calls=(("ask_question", '{"question": "Rye or wheat?"}'),), rounds=0)
        llm.script(match=FAILED, failure=Failure.status(400))
        llm.script(match=OPEN, held=True)
        async with self._client("kitchen") as kitchen, self._client("study") as study, self._client("cellar") as cellar:
            clients = {"kitchen": kitchen, "study": study, "cellar": cellar}
            for client, text in ((kitchen, GREETING), (kitchen, SUM), (study, QUESTION), (cellar, FAILED)):
                await client.ask(text, message_id(text))
            for text in (OPEN, BEHIND):
                await kitchen.say(text, message_id(text))
            await asyncio.to_thread(llm.wait_for, lambda requests: any(OPEN in one.last_user for one in requests))
            known = {name: {"resumeToken": one.resume_token, "lastId": one.last_id} for name, one in clients.items()}
        (self._folder / CLIENTS).write_text(json.dumps(known))

    def _client(self, channel: str) -> Any:
        return web_client(self.web_port, channelId=channel)


def pack(folder: Path, archive: Path) -> None:
    """Write databases, keys, media and what the clients knew into an archive, as a copy to another machine would."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return None if re.search(LEFT_OUT, entry.name) else entry

    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name in ("data", CLIENTS):
            packed.add(folder / name, name, filter=anonymous)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release")
    parser.add_argument("commit")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, LLMServer.running() as llm:
        release = export_release(chosen.commit, Path(place))
        folder = Path(place, "installation")
        folder.mkdir()
        asyncio.run(Recording(release, folder, llm).write())
        pack(folder, FOLDER / f"{chosen.release}.tar.xz")


if __name__ == "__main__":
    main()
