"""``maestro init``: a first configuration from what is found, and a cluster made ready; again, it changes nothing."""

import json
import os
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

from maestro.settings import load
from temporal.client import connect
from temporal.endpoint import Endpoint
from temporal.namespace import find_missing_attributes
from tests.support.claude import FakeClaude
from tests.support.command import Ended, maestro
from tests.support.diagnosed import doctor
from tests.support.ports import free_ports
from tests.support.provider import Provider, ollama
from tests.support.separate import TemporalApart
from tests.support.temporal_gate import key_gate

KEY = "sk-not-to-be-written-anywhere"


@pytest.fixture
def nowhere() -> dict[str, str]:
    """An environment in which no Ollama is found, whatever runs on this machine, and no command claude."""
    return {"OLLAMA_BASE_URL": f"http://127.0.0.1:{free_ports(1)[0]}", "PATH": "/usr/bin:/bin"}


@pytest.fixture
def local() -> Iterator[Provider]:
    """An Ollama with a model for embeddings and one to talk to."""
    with ollama("nomic-embed-text:latest", "llama3:8b") as running:
        yield running


async def init(folder: Path, *options: str, environment: Mapping[str, str]) -> Ended:
    """Run it, and see that it never shows a key."""
    ended = await maestro("init", *options, folder=folder, environment=environment)
    assert KEY not in ended.output + ended.errors
    assert "Traceback" not in ended.errors
    return ended


def written(file: Path) -> Any:
    """Return what stands in the file."""
    text = file.read_text()
    assert KEY not in text
    return json.loads(text)


async def test_without_anything_the_demo_model_answers(tmp_path: Path, nowhere: dict[str, str]) -> None:
    ended = await init(tmp_path, "--yes", environment=nowhere)
    assert (ended.code, ended.errors) == (0, "")
    assert "demo model answers" in ended.output
    assert "ANTHROPIC_API_KEY" in ended.output
    file = tmp_path / "maestro.json"
    assert written(file)["llm"] == {"accounts": []}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["maestro.json"]
    assert load(file, {}, {}).settings.llm.accounts == ()


async def test_keys_are_written_by_the_names_of_their_variables(tmp_path: Path, nowhere: dict[str, str]) -> None:
    keys = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": f"{KEY}-too"}
    assert (await init(tmp_path, environment={**nowhere, **keys})).code == 0
    file = tmp_path / "maestro.json"
    first, second = written(file)["llm"]["accounts"]
    assert (first["provider"], first["apiKey"]) == ("anthropic", "env:ANTHROPIC_API_KEY")
    assert (second["provider"], second["apiKey"]) == ("openai", "env:OPENAI_API_KEY")
    accounts = load(file, keys, {}).settings.llm.accounts
    assert [account.api_key.get_secret_value() for account in accounts] == [KEY, f"{KEY}-too"]


async def test_a_local_ollama_is_used_with_a_model_it_has_and_doctor_agrees(tmp_path: Path, local: Provider) -> None:
    environment = {"OLLAMA_BASE_URL": f"127.0.0.1:{local.port}", "PATH": "/usr/bin:/bin"}
    ended = await init(tmp_path, environment=environment)
    assert "llama3:8b" in ended.output
    [account] = written(tmp_path / "maestro.json")["llm"]["accounts"]
    assert (account["model"], account["baseUrl"]) == ("llama3:8b", local.url)
    ports = free_ports(4)
    options = [
        f"{name}={port}"
        for name, port in zip(("--port", "--web-port", "--temporal-port", "--temporal-ui-port"), ports, strict=True)
    ]
    report = await doctor(tmp_path, *options)
    report.is_fine()
    assert "llama3:8b" in report.of("account ollama").found


def with_claude(tmp_path: Path, nowhere: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which the command is found, with a home of its own."""
    claude = FakeClaude(tmp_path / "bin", "exit 1")
    return {**nowhere, "PATH": claude.path, "HOME": str(tmp_path / "home")}


async def test_the_command_claude_becomes_an_account(tmp_path: Path, nowhere: dict[str, str]) -> None:
    environment = with_claude(tmp_path, nowhere)
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    (tmp_path / "home" / ".claude" / ".credentials.json").write_text(f'{{"token": "{KEY}"}}')
    ended = await init(tmp_path, environment={**environment, "ANTHROPIC_API_KEY": KEY})
    assert str(tmp_path / "bin" / "claude") in ended.output
    by_key, by_command = written(tmp_path / "maestro.json")["llm"]["accounts"]
    assert by_command == {"name": "claude", "type": "cli", "model": "claude-sonnet-4-6", "priority": 10}
    assert by_command["priority"] < by_key["priority"]
    accounts = load(tmp_path / "maestro.json", {"ANTHROPIC_API_KEY": KEY}, {}).settings.llm.accounts
    assert [account.type for account in accounts] == ["api_key", "cli"]


async def test_a_command_without_a_login_is_not_used(tmp_path: Path, nowhere: dict[str, str]) -> None:
    environment = with_claude(tmp_path, nowhere)
    ended = await init(tmp_path, environment=environment)
    assert "no user is logged in" in ended.output
    assert written(tmp_path / "maestro.json")["llm"]["accounts"] == []
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".claude.json").write_text('{"oauthAccount": {"emailAddress": "ada@example.org"}}')
    assert (await init(tmp_path, "--force", environment=environment)).code == 0
    assert [account["name"] for account in written(tmp_path / "maestro.json")["llm"]["accounts"]] == ["claude"]


async def test_a_second_time_changes_nothing(tmp_path: Path, nowhere: dict[str, str]) -> None:
    await init(tmp_path, "--data-dir", "kept", environment=nowhere)
    file = tmp_path / "maestro.json"
    before = file.read_text(), file.stat().st_mtime_ns
    for options in ((), ("--force",)):
        ended = await init(tmp_path, *options, environment=nowhere)
        assert ended.code == 0
        assert "already as it should be" in ended.output
    assert (file.read_text(), file.stat().st_mtime_ns) == before
    assert os.listdir(tmp_path) == ["maestro.json"]


async def test_a_file_that_is_there_is_replaced_only_by_force_and_kept_beside_the_new_one(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    file, older = tmp_path / "maestro.json", {"dataDir": "precious", "agents": [{"slug": "ada"}]}
    file.write_text(json.dumps(older))
    refused = await init(tmp_path, "--yes", environment=nowhere)
    assert (refused.code, refused.output) == (1, "")
    assert refused.errors.count("\n") == 1
    assert "--force" in refused.errors
    assert json.loads(file.read_text()) == older

    for name in ("maestro.json.bak", "maestro.json.bak1"):
        file.write_text(json.dumps(older))
        ended = await init(tmp_path, "--yes", "--force", environment=nowhere)
        assert name in ended.output
        assert json.loads((tmp_path / name).read_text()) == older
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert written(file)["dataDir"] == "precious"


@pytest.mark.parametrize("text", ["{", '{"webui": {"prot": 1}}'])
async def test_a_broken_file_is_named_and_can_be_replaced(tmp_path: Path, nowhere: dict[str, str], text: str) -> None:
    file = tmp_path / "maestro.json"
    file.write_text(text)
    refused = await init(tmp_path, environment=nowhere)
    assert refused.code == 1
    assert "maestro.json" in refused.errors
    assert (await init(tmp_path, "--force", environment=nowhere)).code == 0
    assert load(file, {}, {}).file == file


async def test_the_file_may_have_another_name_and_folder(tmp_path: Path, nowhere: dict[str, str]) -> None:
    (tmp_path / "maestro.json").write_text("not for us")
    assert (await init(tmp_path, "--config", "other.json", environment=nowhere)).code == 0
    assert written(tmp_path / "other.json")["agents"] == [{"slug": "conductor", "role": "conductor"}]
    assert (await init(tmp_path, environment={**nowhere, "MAESTRO_CONFIG": "third.json"})).code == 0
    assert (tmp_path / "third.json").exists()
    nowhere_to_write = await init(tmp_path, "--config", "no/such/folder.json", environment=nowhere)
    assert nowhere_to_write.code == 1
    assert "cannot be written" in nowhere_to_write.errors


async def test_a_namespace_without_a_server_is_not_passed_over(tmp_path: Path, nowhere: dict[str, str]) -> None:
    refused = await init(tmp_path, "--namespace", "chat", environment=nowhere)
    assert refused.code == 1
    assert "--temporal-address" in refused.errors
    assert os.listdir(tmp_path) == []


async def test_programs_read_what_was_done(tmp_path: Path, nowhere: dict[str, str]) -> None:
    environment = {**nowhere, "ANTHROPIC_API_KEY": KEY}
    first = json.loads((await init(tmp_path, "--json", environment=environment)).output)
    assert first["action"] == "written"
    assert first["accounts"] == ["anthropic"]
    assert first["backup"] is None
    assert json.loads((await init(tmp_path, "--json", environment=environment)).output)["action"] == "unchanged"


# A Temporal server of one's own


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TemporalApart]:
    """A Temporal server that knows nothing of Maestro."""
    folder = tmp_path / "server"
    folder.mkdir()
    apart = TemporalApart(folder, free_ports(1)[0])
    await apart.start()
    try:
        yield apart
    finally:
        await apart.end()


async def test_a_namespace_and_its_search_attributes_are_made_once(
    tmp_path: Path, server: TemporalApart, nowhere: dict[str, str]
) -> None:
    address = f"127.0.0.1:{server.port}"
    options = ("--temporal-address", address, "--namespace", "chat", "--retention-days", "5")
    ended = await init(tmp_path, *options, environment=nowhere)
    assert ended.code == 0, ended
    assert "Created namespace chat" in ended.output
    assert "Added the search attributes" in ended.output
    assert written(tmp_path / "maestro.json")["temporal"] == {"address": address, "namespace": "chat"}

    client = await connect(Endpoint(address, "chat"))
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="chat"))
    assert described.config.workflow_execution_retention_ttl.ToTimedelta().days == 5
    assert not (await find_missing_attributes(client, "chat")).missing

    for again in (options, ()):
        ended = await init(tmp_path, *again, environment=nowhere)
        assert ended.code == 0
        assert "already as it should be" in ended.output
        assert "were there already" in ended.output


async def test_the_cluster_of_a_file_that_is_there_is_prepared_and_the_file_stays(
    tmp_path: Path, server: TemporalApart, nowhere: dict[str, str]
) -> None:
    file = tmp_path / "maestro.json"
    text = json.dumps({"agents": [{"slug": "ada"}]})
    file.write_text(text)
    environment = {**nowhere, "MAESTRO_TEMPORAL_ADDRESS": f"127.0.0.1:{server.port}"}
    ended = await init(tmp_path, environment=environment)
    assert ended.code == 0, ended
    assert "stays as it is" in ended.output
    assert "Added the search attributes" in ended.output
    assert file.read_text() == text


async def test_who_may_not_prepare_the_cluster_gets_the_commands_for_who_may(
    tmp_path: Path, server: TemporalApart, nowhere: dict[str, str]
) -> None:
    async with key_gate(server.port, key=KEY) as gate:
        gate.denied = frozenset({"RegisterNamespace", "AddSearchAttributes"})
        environment = {**nowhere, "MAESTRO_TEMPORAL_API_KEY": KEY}
        options = ("--temporal-address", gate.address, "--namespace", "theirs")
        ended = await init(tmp_path, *options, environment=environment)
    assert ended.code == 1
    assert "temporal operator namespace create" in ended.errors
    assert "temporal operator search-attribute create" in ended.errors


async def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, nowhere: dict[str, str]) -> None:
    ended = await init(tmp_path, "--temporal-address", "127.0.0.1:1", environment=nowhere)
    assert ended.code == 1
    assert ended.errors.startswith("maestro: ")
    assert "127.0.0.1:1" in ended.errors
    wrong = await init(tmp_path, "--force", "--temporal-address", "http://x", environment=nowhere)
    assert "host:port" in wrong.errors
