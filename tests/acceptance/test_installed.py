"""What a newcomer installs: the wheel and what it needs to run, in an environment that has nothing else."""

import asyncio
import os
import re
import tomllib
from pathlib import Path

import httpx
import pytest

from tests.support.command import Ports, up
from tests.support.ports import free_ports
from tests.support.run_environment import RunEnvironment, make_run_environment
from tests.support.web_client import web_client
from tests.unit.architecture.source import ROOT

# The environment is made once for all of these.
pytestmark = pytest.mark.xdist_group("installed")

MOST_MEBIBYTES = 480
ASK_WITH_TOOLS = """
import asyncio, sys
sys.path.append(sys.argv[1])
from tests.support.llm_requests import MODELS, SEARCH, OneAccount, account_at, request_of
from tests.support.llm_server import LLMServer
from maestro.llm.litellm_client import LiteLLMClient

async def ask(server, client):
    for provider in sorted(MODELS):
        account = OneAccount(client, account_at(server, provider))
        await account.complete(request_of().model_copy(update={"tools": (SEARCH,)}))
        assert server.requests[-1].tools == ["web_search"], provider
    await client.library.close_connections()

with LLMServer.running() as server:
    asyncio.run(ask(server, LiteLLMClient(lambda _: b"")))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> RunEnvironment:
    return make_run_environment(tmp_path_factory.mktemp("installed"))


def test_it_takes_no_more_room_than_is_promised(installed: RunEnvironment) -> None:
    """The first test: Python adds bytecode for each module that is imported later."""
    assert installed.mebibytes() <= MOST_MEBIBYTES


async def test_it_answers_from_an_empty_folder(installed: RunEnvironment, tmp_path: Path) -> None:
    ports = Ports(*free_ports(4))
    async with up(tmp_path, ports, installed.command), web_client(ports.web) as client, httpx.AsyncClient() as browser:
        await client.authenticate()
        asked = asyncio.create_task(client.ask("hello"))
        base = f"http://127.0.0.1:{ports.webui}"
        page = await browser.get(f"{base}/", follow_redirects=True)
        assert page.status_code == 200
        for style in re.findall(r'href="(/[^"]+\.css[^"]*)"', page.text):
            assert (await browser.get(f"{base}{style}")).status_code == 200
        assert "demo model" in await asked
    assert set(os.listdir(tmp_path)) <= {"data", "skills"}


def test_its_code_is_that_of_the_wheel(installed: RunEnvironment, tmp_path: Path) -> None:
    said = installed.run("-c", "import maestro; print(maestro.__file__)", folder=tmp_path)
    assert Path(said.strip()).is_relative_to(installed.folder)


def test_models_are_offered_tools_without_the_packages_of_the_tests(installed: RunEnvironment, tmp_path: Path) -> None:
    installed.run("-c", ASK_WITH_TOOLS, ROOT, folder=tmp_path)


def test_nothing_is_missing_but_what_the_lock_leaves_out(installed: RunEnvironment, tmp_path: Path) -> None:
    """Every requirement of every package is there, except those that pyproject.toml names with their reasons."""
    left_out = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["exclude-dependencies"]
    check = (
        "import subprocess, sys; print(subprocess.run([sys.executable, *sys.argv[1:]], stdout=-1, text=True).stdout)"
    )
    said = installed.run("-c", check, "-m", "pip", "check", folder=tmp_path)
    assert sorted(re.findall(r"requires (\S+), which is not installed", said)) == sorted(left_out)
    assert len(said.strip().splitlines()) == len(left_out), said
