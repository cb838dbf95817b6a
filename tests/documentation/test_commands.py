"""Every block of commands in README and docs is run, beside a Maestro with something of everything."""

import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
import pytest_asyncio

from tests.documentation.blocks import blocks, blocks_of
from tests.documentation.mentions import dashboard_addresses
from tests.documentation.shell import Surroundings, command_folder, missing_programs, run_blocks
from tests.support.populated import KEY, PASSWORD, Populated, populated

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("documentation")]

RUN = [block for block in blocks() if block.language == "sh" and not block.exempt]
JOB = re.compile(r"\$(FAILED|COMPLETED|CHANNEL)\b")
COMMANDS = {page: list(found) for page, found in groupby(RUN, lambda block: block.page)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Populated]:
    """Run a Maestro with failed and waiting jobs, facts, questions and the rest."""
    async with populated(tmp_path_factory.mktemp("documented")) as found:
        yield found


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """Have a folder with the command ``maestro``."""
    with command_folder() as folder:
        yield folder


async def jobs_of_its_own(running: Populated, channel: str) -> dict[str, str]:
    """Return variables with two jobs in a channel of their own, for a page that changes such jobs."""
    async with running.instance.client(channel, api_key=KEY) as client:
        await client.ask("hello")
        await client.say("break it")
        [failed] = await running.instance.ended(channel, "failed")
    [completed] = await running.instance.ended(channel, "completed")
    return {"FAILED": failed["id"], "COMPLETED": completed["id"], "CHANNEL": channel}


def surroundings(running: Populated, commands: Path, folder: Path) -> Surroundings:
    """Return what the pages take for granted: the command, the password, and the addresses."""
    settings = running.instance.loaded.settings
    own = Path(sys.executable).parent
    (folder / ".curlrc").write_text("fail\nsilent\nshow-error\n")
    environment = {
        "PATH": f"{commands}:{own}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PASSWORD": PASSWORD,
        "SPARE_KEY": "sk-spare",
        "WEB_KEY": KEY,
        "MAESTRO_CONFIG": str(running.instance.config_file),
        "TEMPORAL_ADDRESS": f"localhost:{settings.temporal.port}",
    }
    addresses = {
        "localhost:8080": f"localhost:{settings.webui.port}",
        "localhost:5070": f"localhost:{settings.web.port}",
    }
    return Surroundings(folder / "here", environment, addresses)


@pytest.mark.parametrize("page", COMMANDS)
async def test_the_commands_of_a_page_work(page: str, running: Populated, commands: Path, tmp_path: Path) -> None:
    around = surroundings(running, commands, tmp_path)
    if any(JOB.search(block.given) for block in COMMANDS[page]):
        around.environment.update(await jobs_of_its_own(running, tmp_path.name))
    missing = {name for block in COMMANDS[page] for name in missing_programs(block)}
    code, output = await run_blocks([block for block in COMMANDS[page] if not missing_programs(block)], around)
    assert code == 0, output
    if missing:
        pytest.skip(f"some blocks need what this machine lacks: {', '.join(sorted(missing))}")


async def test_addresses_of_the_dashboard_open(running: Populated) -> None:
    found = dashboard_addresses()
    assert len(found) > 5
    answers = {path: await running.http.get(path, follow_redirects=True) for path in found}
    assert {path: found[path] for path, answer in answers.items() if not answer.is_success} == {}


async def test_a_broken_command_is_found(running: Populated, commands: Path, tmp_path: Path) -> None:
    around = surroundings(running, commands, tmp_path)
    for broken in (
        "maestro jobs lst",
        "maestro jobs list --stat failed",
        "maestro jobs show ID",
        "curl localhost:8080/no",
    ):
        [block] = blocks_of("page", f"<!-- given: ID=none -->\n```sh\nmaestro --version\n{broken}\n```\n")
        code, output = await run_blocks([block], around)
        assert code != 0, output
