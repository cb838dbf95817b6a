"""What a person hears when Maestro cannot start: one clear line with the fix, no traceback, and nothing lost."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from maestro.store.store import Store
from temporal.server_process import read_record
from tests.support.command import COMMAND, PATIENCE, Ended, Ports, UpProcess, maestro, up
from tests.support.database import change, query
from tests.support.mounts import Mount, mounted
from tests.support.ports import free_ports
from tests.support.web_client import web_client


@pytest.fixture
def ports() -> Ports:
    return Ports(*free_ports(4))


async def refused(folder: Path, ports: Ports, *, config: str | None = None) -> str:
    """Start it, see it refused in the agreed way, and return what it said."""
    if config is not None:
        (folder / "maestro.json").write_text(config)
    ended = await maestro("up", *ports.options, folder=folder)
    assert ended.code == 1, ended
    assert "Traceback" not in ended.errors + ended.output
    assert "\nmaestro: " in f"\n{ended.errors}"
    return ended.errors


async def test_a_misspelt_key_is_named_with_the_right_one(tmp_path: Path, ports: Ports) -> None:
    said = await refused(tmp_path, ports, config='{"webui": {"prot": 8080}}')
    assert "webui.prot" in said
    assert "webui.port" in said


async def test_a_file_that_is_no_json_is_named_with_the_line(tmp_path: Path, ports: Ports) -> None:
    said = await refused(tmp_path, ports, config='{\n  "webui": {,}\n}')
    assert "maestro.json" in said
    assert "line 2" in said


async def test_an_unreadable_file_is_named(tmp_path: Path, ports: Ports) -> None:
    # A folder in the file's place is unreadable for everybody, whoever runs the test.
    (tmp_path / "maestro.json").mkdir()
    assert "maestro.json" in await refused(tmp_path, ports)


async def test_a_missing_secret_file_is_named(tmp_path: Path, ports: Ports) -> None:
    said = await refused(tmp_path, ports, config=json.dumps({"web": {"apiKey": "file:nowhere/key"}}))
    assert "web.apiKey" in said
    assert "nowhere/key" in said


async def test_a_start_can_be_ended_while_the_temporal_server_does_not_get_ready(tmp_path: Path, ports: Ports) -> None:
    process = await asyncio.create_subprocess_exec(
        COMMAND, "up", *ports.options, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while "Starting the Temporal server" not in (await process.stdout.readline()).decode():
            assert process.returncode is None
    record = read_record(tmp_path / "data" / "temporal.json")
    assert record is not None
    os.kill(record.pid, signal.SIGSTOP)
    try:
        assert await UpProcess(process).end() == 0
        assert not record.is_running()
    finally:
        if record.is_running():
            os.kill(record.pid, signal.SIGKILL)


async def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path, ports: Ports) -> None:
    database = tmp_path / "data" / "maestro.db"
    database.parent.mkdir()
    Store.open(database).close()
    change(database, "UPDATE alembic_version SET version_num = '9999', contract = 9")
    assert "newer version" in await refused(tmp_path, ports)
    assert query(database, "SELECT version_num FROM alembic_version")[0]["version_num"] == "9999"


@pytest.mark.sqlite_only(reason="is about the file of the database")
async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, ports: Ports) -> None:
    database = tmp_path / "data" / "maestro.db"
    database.parent.mkdir()
    database.write_text("minutes of the meeting " * 100)
    assert str(database.relative_to(tmp_path)) in await refused(tmp_path, ports)
    assert database.read_text().startswith("minutes of the meeting")


@pytest.mark.parametrize("taken", ["webui", "web", "temporal", "temporal_ui"])
async def test_a_taken_port_is_named_with_its_setting(tmp_path: Path, ports: Ports, taken: str) -> None:
    settings = {"webui": "webui.port", "web": "web.port", "temporal": "temporal.port", "temporal_ui": "temporal.uiPort"}
    port = getattr(ports, taken)
    with socket.create_server(("127.0.0.1", port)):
        said = await refused(tmp_path, ports)
    assert str(port) in said
    assert settings[taken] in said


async def refused_with(mount: Mount, folder: Path, ports: Ports, spare: int = 0) -> str:
    """Start it where its data folder is mounted like this, see it refused, and return what it said."""
    data = folder / "data"
    data.mkdir()
    process = await asyncio.create_subprocess_exec(
        *mounted(mount, data, spare),
        COMMAND,
        "up",
        *ports.options,
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    said = errors.decode()
    assert process.returncode == 1, said
    assert said.startswith("maestro: ")
    assert said.count("\n") == 1
    return said


async def test_a_read_only_data_folder_is_named_with_its_setting(tmp_path: Path, ports: Ports) -> None:
    said = await refused_with(Mount.READ_ONLY, tmp_path, ports)
    assert str(tmp_path / "data") in said
    assert "Read-only file system" in said
    assert "Set dataDir" in said


# Whoever needs the next bytes finds the disk full: the data folder itself, the store, or the Temporal server.
@pytest.mark.parametrize("spare", [0, 600_000, 1_200_000])
async def test_a_full_disk_is_named_whoever_finds_it_full(tmp_path: Path, ports: Ports, spare: int) -> None:
    said = await refused_with(Mount.FULL, tmp_path, ports, spare)
    assert "data" in said
    assert "No space left" in said or "full" in said
    assert "ree some space" in said or "the free space" in said
    assert "damaged" not in said


async def test_a_second_process_on_the_folder_is_refused_and_the_first_goes_on(tmp_path: Path, ports: Ports) -> None:
    (tmp_path / "maestro.json").write_text('{"llm": {"demoSeconds": 0}}')
    async with up(tmp_path, ports) as first:
        said = await refused(tmp_path, Ports(*free_ports(4)))
        assert str(first.process.pid) in said
        async with web_client(ports.web) as client:
            await client.authenticate()
            assert "demo model" in await client.ask("still there?")


async def test_a_wrong_command_line_is_wrong_usage(tmp_path: Path) -> None:
    for arguments in (("upp",), ("up", "--prot=1"), ("jobs", "replay")):
        ended: Ended = await maestro(*arguments, folder=tmp_path)
        assert ended.code == 2, arguments
        assert "Traceback" not in ended.errors


@pytest.mark.sqlite_only(reason="is about the file of the database")
async def test_without_a_data_folder_the_jobs_command_says_what_to_do(tmp_path: Path) -> None:
    ended = await maestro("jobs", "list", folder=tmp_path)
    assert ended.code == 1
    assert "maestro up" in ended.errors
    assert not (tmp_path / "data").exists()


async def test_debug_shows_the_traceback(tmp_path: Path, ports: Ports) -> None:
    (tmp_path / "maestro.json").write_text("{")
    ended = await maestro("--debug", "up", *ports.options, folder=tmp_path)
    assert ended.code == 1
    assert "Traceback" in ended.errors
