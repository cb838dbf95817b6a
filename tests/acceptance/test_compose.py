"""docker-compose.yml: what it says of every service, and those of Maestro at work as it starts them."""

import asyncio
import itertools
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from maestro.settings import Settings
from temporal.server_process import ServerConfig, server_command
from tests.support import postgresql
from tests.support.compose import Container, Machine, composed, run_script
from tests.support.dockerfile import image
from tests.support.llm_server import LLMServer
from tests.support.ports import free_ports
from tests.support.separate import TemporalApart
from tests.support.web_client import web_client
from tests.unit.architecture.source import ROOT

FILE = ROOT / "docker-compose.yml"
FOLDER = ROOT / "deploy"
COMPOSE = composed(FILE, {})
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"temporal-schema", "temporal-namespace", "migrate"}
LASTING = sorted(SERVICES.keys() - ONE_SHOT)
MAESTRO = ("migrate", "worker", "api", "connect")
SECRETS = {name: f"the {name}" for name in COMPOSE["secrets"]}

every = pytest.mark.parametrize("name", sorted(SERVICES))
lasting = pytest.mark.parametrize("name", LASTING)


# What the file says


def test_it_follows_the_specification_of_compose_files() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    subprocess.run([checker, "--builtin-schema", "vendor.compose-spec", FILE], check=True, capture_output=True)


@every
def test_every_image_is_pinned_to_an_exact_version(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?", SERVICES[name]["image"])


def test_the_image_of_maestro_is_of_this_release_and_built_here() -> None:
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in MAESTRO:
        assert (SERVICES[name]["image"], SERVICES[name]["build"]) == (f"maestro:{release}", ".")


@every
def test_no_service_is_root_or_can_become_it(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert not service.get("privileged")
    assert not service.get("cap_add")


@every
def test_the_file_system_of_every_service_but_one_cannot_be_written(name: str) -> None:
    assert SERVICES[name].get("read_only", False) is (name != "temporal-ui")


@lasting
def test_every_lasting_service_is_checked_and_comes_back(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@every
def test_a_service_waits_for_the_health_of_lasting_ones_and_for_the_end_of_the_others(name: str) -> None:
    for other, dependency in SERVICES[name].get("depends_on", {}).items():
        expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
        assert dependency["condition"] == expected, other


@every
def test_ports_are_published_on_this_machine_only_and_under_their_own_number(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        address, outside, inside = port.split(":")
        assert address == "127.0.0.1"
        assert outside == inside


@pytest.mark.parametrize(
    ("variable", "name"),
    [("MAESTRO_WEBUI_PORT", "api"), ("MAESTRO_WEB_PORT", "connect"), ("MAESTRO_TEMPORAL_UI_PORT", "temporal-ui")],
)
def test_a_port_moves_everywhere_at_once(variable: str, name: str) -> None:
    service = composed(FILE, {variable: "9999"})["services"][name]
    assert service["ports"] == ["127.0.0.1:9999:9999"]
    assert "9999" in service["environment"].values()
    assert name == "connect" or ":9999/" in service["healthcheck"]["test"][-1]


def test_only_temporal_reaches_the_database() -> None:
    reaching = {name for name, service in SERVICES.items() if "database" in service.get("networks", ())}
    assert reaching == {"postgresql", "temporal", "temporal-schema"}
    assert SERVICES["postgresql"]["networks"] == ["database"]
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert not SERVICES["postgresql"].get("ports")


def test_maestros_own_database_is_there_only_with_its_profile() -> None:
    assert SERVICES["store"]["profiles"] == ["postgresql"]
    assert not any(service.get("profiles") for name, service in SERVICES.items() if name != "store")
    assert SERVICES["migrate"]["depends_on"]["store"]["required"] is False
    reaching = {name for name, service in SERVICES.items() if "store" in service.get("networks", ())}
    assert reaching == {"store", *MAESTRO}
    assert SERVICES["store"]["networks"] == ["store"]
    assert COMPOSE["networks"]["store"] == {"internal": True}


def test_all_processes_of_maestro_share_one_volume_and_one_configuration() -> None:
    first, *others = (SERVICES[name] for name in MAESTRO)
    assert first["volumes"] == ["maestro-data:/data"]
    for other in others:
        assert (other["volumes"], other["environment"]) == (first["volumes"], first["environment"])
    outside = SERVICES.keys() - set(MAESTRO)
    assert not any("maestro-data" in str(SERVICES[name].get("volumes")) for name in outside)


def test_every_secret_comes_from_a_file_that_git_ignores() -> None:
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    for name, secret in COMPOSE["secrets"].items():
        assert secret == {"file": f"deploy/secrets/{name}"}


@every
def test_no_secret_stands_in_the_environment(name: str) -> None:
    for variable, value in SERVICES[name].get("environment", {}).items():
        if re.search(r"PASSWORD|PWD|KEY|TOKEN|SECRET", variable):
            assert re.fullmatch(r"(file:)?/run/secrets/\w+", value), variable
            assert value.rpartition("/")[2] in SERVICES[name]["secrets"]


@pytest.mark.parametrize("name", ["worker", "api", "connect"])
def test_a_process_of_maestro_has_more_time_to_end_than_its_running_work(name: str) -> None:
    grace = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
    assert grace >= Settings().jobs.drain_seconds + 10


def test_its_temporal_server_is_told_what_the_one_of_maestro_up_is(tmp_path: Path) -> None:
    told = yaml.safe_load((FOLDER / "temporal" / "dynamic-config.yaml").read_text())
    command = server_command(ServerConfig(tmp_path, 7233, 8233), tmp_path / "temporal")
    embedded = {value for flag, value in itertools.pairwise(command) if flag == "--dynamic-config-value"}
    assert {f"{key}={json.dumps(values[0]['value'])}" for key, values in told.items()} == embedded


def test_every_file_that_it_mounts_is_there() -> None:
    for name, config in COMPOSE["configs"].items():
        assert (ROOT / config["file"]).is_file(), name


# The scripts beside it


def test_secrets_are_made_once_in_a_closed_folder(tmp_path: Path) -> None:
    script = tmp_path / "deploy" / "make-secrets"
    script.parent.mkdir()
    script.write_bytes((FOLDER / "make-secrets").read_bytes())
    keyless = run_script(script, {})
    assert (keyless.returncode, "deploy/secrets/model_api_key" in keyless.stderr) == (1, True)
    made = {path.name: path.read_text() for path in (script.parent / "secrets").iterdir()}
    assert run_script(script, {"ANTHROPIC_API_KEY": "sk-1"}).returncode == 0
    assert (script.parent / "secrets").stat().st_mode & 0o777 == 0o700
    found = {path.name: path.read_text() for path in (script.parent / "secrets").iterdir()}
    assert found == {**made, "model_api_key": "sk-1"}
    assert found.keys() == COMPOSE["secrets"].keys()
    url = made.pop("store_url")
    assert url == f"postgresql://maestro:{made['store_password']}@store/maestro"
    assert all(re.fullmatch("[0-9a-f]{48}", secret) for secret in made.values())


# Maestro's services at work


class Stack:
    """What `docker compose up` starts of Maestro, beside a Temporal server and a provider of models."""

    def __init__(self, folder: Path, llm: LLMServer, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        temporal, self.dashboard, self.web, worker, connect = free_ports(5)
        self.temporal = TemporalApart(folder, temporal)
        ports = {"MAESTRO_WEBUI_PORT": str(self.dashboard), "MAESTRO_WEB_PORT": str(self.web)}
        services = composed(FILE, {**ports, **variables})["services"]
        files = _secrets(folder, secrets)
        mounts = {
            "/data": folder / "data",
            "/opt/maestro": Path(sys.prefix),
            "/run/secrets": files,
            "/etc/maestro/maestro.json": _configuration(folder, files, llm),
        }
        addresses = {"temporal:7233": f"127.0.0.1:{temporal}"}
        machine = Machine(mounts, addresses, {9091: worker, 9092: connect})
        described = image(ROOT / "Dockerfile")
        (folder / "data").mkdir()
        self._container: Callable[..., Container] = lambda name, **other: Container(
            {**services[name], **other}, described, machine
        )
        self.services = {name: self._container(name) for name in MAESTRO}
        self.lasting = [self.services[name] for name in ("worker", "api", "connect")]

    async def up(self) -> None:
        """Start everything in the order that the file demands, and return when all is healthy."""
        await self.temporal.start()
        await self.services["migrate"].start()
        code, said = await self.services["migrate"].ended()
        assert code == 0, said
        for container in self.lasting:
            await container.start()
        await asyncio.gather(*(container.healthy() for container in self.lasting))

    async def run(self, name: str, *command: str) -> tuple[int, str]:
        """Run a command as `docker compose run` does: in a container of this service; return how it ended."""
        container = self._container(name, command=command)
        await container.start()
        return await container.ended()

    async def down(self) -> list[tuple[int, str]]:
        """Stop the lasting services and return how each ended."""
        return await asyncio.gather(*(container.stop() for container in self.lasting if container.started))


def _secrets(folder: Path, secrets: Mapping[str, str]) -> Path:
    """Write a file for each secret."""
    (folder / "secrets").mkdir()
    for name, secret in secrets.items():
        (folder / "secrets" / name).write_text(f"{secret}\n")
    return folder / "secrets"


def _configuration(folder: Path, secrets: Path, llm: LLMServer) -> Path:
    """Write the configuration as it is delivered, but for where the secrets and the provider's server are."""
    tree = json.loads((FOLDER / "maestro.json").read_text().replace("/run/secrets", str(secrets)))
    tree["llm"]["accounts"][0]["baseUrl"] = llm.base_url("anthropic")
    file = folder / "maestro.json"
    file.write_text(json.dumps(tree))
    return file


async def test_its_services_answer_a_message_and_end_in_good_order(tmp_path: Path) -> None:
    await _services_answer(tmp_path, {}, SECRETS)
    assert (tmp_path / "data" / "maestro.db").exists()


@pytest.mark.postgresql_only(reason="the profile runs PostgreSQL")
async def test_its_services_answer_a_message_with_postgresql_as_the_store(tmp_path: Path) -> None:
    url = postgresql.database_url(tmp_path / "store.db")
    await _services_answer(
        tmp_path, {"MAESTRO_STORE_URL": "file:/run/secrets/store_url"}, {**SECRETS, "store_url": url}
    )
    assert not (tmp_path / "data" / "maestro.db").exists()


async def _services_answer(folder: Path, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Start the services, have one message answered, and end them."""
    with LLMServer.running() as llm:
        stack, ended = Stack(folder, llm, variables, secrets), list[tuple[int, str]]()
        try:
            await stack.up()
            async with web_client(stack.web, apiKey=SECRETS["web_api_key"], channelId="first") as client:
                assert await client.ask("hello") == "answer to: hello"
            assert llm.requests[-1].headers["x-api-key"] == SECRETS["model_api_key"]
            await _dashboard_asks_for_its_password(stack.dashboard)
            ended = await stack.down()
            await _backup_comes_back(stack, folder)
        finally:
            ended = ended or await stack.down()
            await stack.temporal.end()
        assert [code for code, _ in ended] == [0, 0, 0], ended
        assert not any(secret in said for _, said in ended for secret in secrets.values())


async def _backup_comes_back(stack: Stack, folder: Path) -> None:
    """Run the commands with which docs/howto/run-with-docker-compose.md backs up and restores."""
    page = (ROOT / "docs/howto/run-with-docker-compose.md").read_text()
    runs = re.findall(r"^docker compose run --rm --no-deps (\w+) ((?:backup|restore) .*)$", page, re.MULTILINE)
    assert [(service, command.split()[0]) for service, command in runs] == [
        ("migrate", "backup"),
        ("worker", "restore"),
    ]
    for service, command in (*runs, ("worker", "fsck")):
        code, said = await stack.run(service, *command.split())
        assert code == 0, said
    with tarfile.open(folder / "data" / "before-upgrade.tar.gz") as archive:
        assert {"secrets.key", "signing.key"} <= {Path(name).name for name in archive.getnames()}


async def _dashboard_asks_for_its_password(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://localhost:{port}", trust_env=False) as http:
        assert (await http.get("/api/jobs")).status_code == 401
        answer = await http.get("/api/jobs", auth=("maestro", SECRETS["webui_password"]))
    assert [job["status"] for job in answer.json()["items"]] == ["completed"]


SQL_TOOL = """#!/bin/sh
# Keeps one file per database: it exists once the database does, and holds a version once one was set.
test "$SQL_PASSWORD" = secret || exit 9
while [ "$1" != --db ]; do shift; done
file="$STATE/$2"; shift 2
echo "$1" >> "$STATE/calls"
case "$1" in
  create) touch "$file" ;;
  setup-schema) echo 0.0 > "$file" ;;
  update-schema) test -s "$file" ;;
esac
"""


def test_an_empty_database_is_given_its_first_version_and_one_that_has_a_version_is_not(tmp_path: Path) -> None:
    tool, state, script = tmp_path / "temporal-sql-tool", tmp_path / "state", tmp_path / "set-up-schema.sh"
    state.mkdir()
    tool.write_text(SQL_TOOL)
    tool.chmod(0o755)
    (tmp_path / "password").write_text("secret\n")
    text = (FOLDER / "temporal" / "set-up-schema.sh").read_text()
    script.write_text(text.replace("/run/secrets/postgres_password", str(tmp_path / "password")))
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STATE": str(state)}
    assert run_script(script, where).returncode == 0
    first = ["create", "update-schema", "setup-schema", "update-schema"]
    assert (state / "calls").read_text().split() == first * 2
    (state / "calls").unlink()
    again = run_script(script, where)
    assert again.stdout.splitlines()[-1] == "The database temporal_visibility is up to date."
    assert (state / "calls").read_text().split() == ["create", "update-schema"] * 2


async def test_the_namespace_is_created_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    temporal = TemporalApart(tmp_path, port)
    await temporal.start()
    script = FOLDER / "temporal" / "create-namespace.sh"
    where = {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}", "TEMPORAL_NAMESPACE": "agents", "HOME": str(tmp_path)}
    try:
        first = await asyncio.to_thread(run_script, script, where)
        second = await asyncio.to_thread(run_script, script, where)
    finally:
        await temporal.end()
    assert (first.returncode, "registered" in first.stdout) == (0, True), first
    assert (second.returncode, second.stdout) == (0, "The namespace agents is there.\n")
