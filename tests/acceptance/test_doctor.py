"""``maestro doctor``: whatever is wrong, one line names the cause and the fix, and nothing is changed by looking."""

import asyncio
import base64
import contextlib
import json
import os
import pty
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from maestro.domain.health import DiagnosisLevel
from tests.support.command import COMMAND, PATIENCE, Ports, maestro, up
from tests.support.database import change
from tests.support.diagnosed import Report, doctor
from tests.support.fresh_store import fresh_store
from tests.support.mounts import Mount, mounted
from tests.support.ports import free_ports
from tests.support.provider import ollama, provider
from tests.support.separate import TemporalApart
from tests.support.temporal_gate import key_gate, tls_gate

KEY = "sk-not-to-be-seen-by-anybody-9876"


@pytest.fixture
def ports() -> Ports:
    return Ports(*free_ports(4))


def configure(folder: Path, **sections: object) -> None:
    """Write the configuration of a test; every port in it is free."""
    web, webui, temporal, temporal_ui, worker, connect = free_ports(6)
    base: dict[str, object] = {
        "web": {"port": web},
        "webui": {"port": webui},
        "temporal": {"port": temporal, "uiPort": temporal_ui},
        "health": {"workerPort": worker, "connectPort": connect},
    }
    (folder / "maestro.json").write_text(json.dumps({**base, **sections}))


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with what is in it."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def account(**fields: object) -> dict[str, object]:
    """Return a section with one account."""
    return {"accounts": [{"name": "main", "provider": "openai", **fields}]}


# Configuration


@pytest.mark.sqlite_only(reason="is about the file of the database")
async def test_a_fresh_folder_is_fine_and_stays_empty(tmp_path: Path, ports: Ports) -> None:
    report = await doctor(tmp_path, *ports.options)
    report.is_fine()
    assert os.listdir(tmp_path) == []
    assert "can be created" in report.of("data folder").found
    assert "first start creates it" in report.of("store").found
    assert "maestro up" in report.of("Temporal").fix
    assert "signing: none yet" in report.of("keys").found
    assert "off" in report.of("retention").found
    assert "demo model" in report.of("accounts").found
    assert "ANTHROPIC_API_KEY" in report.of("accounts").fix


async def test_every_mistake_in_the_file_is_told_and_the_rest_of_it_is_checked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configure(tmp_path, webui={"prot": 1, "port": port}, owner={"ids": "me"}, llm=account(apiKey="env:NOWHERE"))
        report = await doctor(tmp_path)
    told = [problem.found for problem in report.all_of("configuration")]
    assert len(told) == 3
    assert any("did you mean webui.port" in problem for problem in told)
    assert any("owner.ids" in problem for problem in told)
    assert any("NOWHERE is not set" in problem for problem in told)
    assert "webui.port" in report.of(f"port {port}").fix
    assert report.code == 1


async def test_the_key_that_encrypts_payloads_is_told(tmp_path: Path) -> None:
    keys = [{"id": name, "key": base64.b64encode(os.urandom(32)).decode()} for name in ("new", "old")]
    configure(tmp_path, temporal={"codec": {"keys": keys}})
    report = await doctor(tmp_path)
    report.is_fine()
    assert report.of("encryption").found == "the key new encrypts the payloads of workflows; old for decryption only"


async def test_keys_and_retention_are_told_as_they_are_in_effect(tmp_path: Path) -> None:
    keys = {name: base64.b64encode(os.urandom(32)).decode() for name in ("signing", "secrets")}
    configure(tmp_path, keys=keys, retention={"callsDays": 7})
    assert (await maestro("migrate", folder=tmp_path)).code == 0
    assert (await maestro("settings", "set", "retention.messagesDays", "30", folder=tmp_path)).code == 0
    assert (await maestro("accounts", "add", "mine", "--provider", "openai", folder=tmp_path, piped=KEY)).code == 0
    report = await doctor(tmp_path)
    in_use = "signing: keys.signing (MAESTRO_KEYS_SIGNING); secrets: keys.secrets (MAESTRO_KEYS_SECRETS)"
    assert report.of("keys").found.startswith(in_use)
    assert report.of("retention").found == "deletes conversations after 30 days, texts of model calls after 7 days"


@pytest.mark.parametrize(
    ("key", "problem"),
    [("file:gone.key", "gone.key"), (base64.b64encode(b"short").decode(), "AES-256 needs 32"), ("?", "openssl rand")],
)
async def test_a_key_that_cannot_encrypt_is_named(tmp_path: Path, key: str, problem: str) -> None:
    configure(tmp_path, temporal={"codec": {"keys": [{"id": "new", "key": key}]}})
    (await doctor(tmp_path)).is_broken("configuration", "temporal.codec.keys[0].key", problem)


@pytest.mark.parametrize(
    ("text", "word"), [("{,}", "line 1"), ("[]", "expected an object"), ("", "the file is not JSON")]
)
async def test_a_file_that_cannot_be_read_hides_nothing_else(
    tmp_path: Path, ports: Ports, text: str, word: str
) -> None:
    (tmp_path / "maestro.json").write_text(text)
    (await doctor(tmp_path, *ports.options)).is_broken("configuration", "maestro.json", word)


async def test_a_named_file_that_is_not_there_is_told(tmp_path: Path, ports: Ports) -> None:
    report = await doctor(tmp_path, *ports.options, "--config", "gone.json")
    report.is_broken("configuration", "gone.json", "maestro init")


async def test_an_unknown_variable_is_told_with_the_right_one(tmp_path: Path, ports: Ports) -> None:
    report = await doctor(tmp_path, *ports.options, environment={"MAESTRO_WEBUI_PROT": "1"})
    report.is_broken("configuration", "MAESTRO_WEBUI_PORT")


# Beside a running Maestro


async def test_a_running_maestro_is_found_well_by_its_own_folder_and_in_the_way_by_another(
    tmp_path: Path, ports: Ports
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    async with up(here, ports) as running:
        report = await doctor(here, *ports.options)
        report.is_fine()
        assert f"process {running.process.pid}" in report.of("holder").found
        for check in ("Temporal", "namespace", "search attributes", "pollers", "connector web", "store"):
            assert report.of(check).verdict is DiagnosisLevel.FINE, report.text
        for port in (ports.webui, ports.web, ports.temporal, ports.temporal_ui):
            assert "served by" in report.of(f"port {port}").found

        other = await doctor(elsewhere, *ports.options)
        assert set(other.broken) == {
            f"port {port}" for port in (ports.webui, ports.web, ports.temporal, ports.temporal_ui)
        }
        assert f"another data folder, process {running.process.pid}" in other.of(f"port {ports.webui}").found

        without_options = await doctor(here, environment={"MAESTRO_WEBUI_PORT": str(free_ports(1)[0])})
        assert without_options.of("pollers").verdict is DiagnosisLevel.FINE
    ended = await doctor(here, *ports.options)
    ended.is_fine()
    assert "stopped" in ended.of("connector web").found


# Data folder and store


async def test_a_read_only_data_folder_is_named(tmp_path: Path, ports: Ports) -> None:
    data = tmp_path / "data"
    data.mkdir()
    report = await doctor(tmp_path, *ports.options, before=mounted(Mount.READ_ONLY, data))
    report.is_broken("data folder", str(data), "Read-only file system", "dataDir")


@pytest.mark.sqlite_only(reason="is about the file of the database")
async def test_a_read_only_folder_with_a_store_can_still_be_looked_at(tmp_path: Path, ports: Ports) -> None:
    data = tmp_path / "data"
    data.mkdir()
    fresh_store(data / "maestro.db").close()
    report = await doctor(tmp_path, *ports.options, before=mounted(Mount.READ_ONLY, data))
    report.is_broken("data folder", "Read-only file system")
    assert report.of("store").verdict is DiagnosisLevel.FINE


@pytest.mark.parametrize("spare", [0, 1_000_000])
async def test_a_full_disk_is_named(tmp_path: Path, ports: Ports, spare: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    report = await doctor(tmp_path, *ports.options, before=mounted(Mount.FULL, data, spare))
    report.is_broken("data folder", str(data), "Free some space", "dataDir")


async def test_a_file_in_the_place_of_the_data_folder_is_named(tmp_path: Path, ports: Ports) -> None:
    (tmp_path / "file").touch()
    report = await doctor(tmp_path, *ports.options, "--data-dir", "file/data")
    report.is_broken("data folder", "file is not a folder", "dataDir")


async def test_a_look_at_the_store_leaves_no_trace(tmp_path: Path, ports: Ports) -> None:
    data = tmp_path / "data"
    data.mkdir()
    fresh_store(data / "maestro.db").close()
    before = contents(tmp_path)
    (await doctor(tmp_path, *ports.options)).is_fine()
    assert contents(tmp_path) == before


async def test_a_database_of_a_newer_release_is_named_and_left_alone(tmp_path: Path, ports: Ports) -> None:
    data = tmp_path / "data"
    data.mkdir()
    fresh_store(data / "maestro.db").close()
    change(data / "maestro.db", "UPDATE alembic_version SET version_num = '9999', contract = 9")
    (await doctor(tmp_path, *ports.options)).is_broken("store", "newer version", "Install that version")


@pytest.mark.sqlite_only(reason="is about the file of the database")
async def test_a_file_that_is_no_database_is_named(tmp_path: Path, ports: Ports) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "maestro.db").write_text("minutes of the meeting " * 1000)
    before = contents(tmp_path)
    (await doctor(tmp_path, *ports.options)).is_broken("store", "not a Maestro database", "Move it away")
    assert contents(tmp_path) == before


async def test_a_connector_that_failed_is_told_with_its_reason(tmp_path: Path, ports: Ports) -> None:
    data = tmp_path / "data"
    data.mkdir()
    store = fresh_store(data / "maestro.db")
    with store.begin() as tx:
        tx.users.record_connector_state("web", "default", "failed", "the port was taken")
    store.close()
    (await doctor(tmp_path, *ports.options)).is_broken("connector web", "the port was taken")


@pytest.mark.parametrize(("state", "fix"), [("starting", "restart Maestro"), ("stopped", "maestro connect web")])
async def test_a_connector_that_does_not_run_is_not_called_fine(tmp_path: Path, state: str, fix: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    store = fresh_store(data / "maestro.db")
    with store.begin() as tx:
        tx.users.record_connector_state("web", "default", state, "")
    store.close()
    configure(tmp_path, temporal={"address": f"127.0.0.1:{free_ports(1)[0]}"})
    told = (await doctor(tmp_path)).of("connector web")
    assert told.verdict is DiagnosisLevel.NOTE
    assert f"web/default: {state}" in told.found
    assert fix in told.fix


# Ports


@pytest.mark.parametrize("taken", ["webui", "web", "temporal", "temporal_ui"])
async def test_a_taken_port_is_named_with_who_has_it_and_its_setting(tmp_path: Path, ports: Ports, taken: str) -> None:
    settings = {"webui": "webui.port", "web": "web.port", "temporal": "temporal.port", "temporal_ui": "temporal.uiPort"}
    port = getattr(ports, taken)
    with socket.create_server(("127.0.0.1", port)):
        report = await doctor(tmp_path, *ports.options)
    report.is_broken(f"port {port}", f"process {os.getpid()}", settings[taken])


async def test_a_port_that_is_given_twice_is_named(tmp_path: Path) -> None:
    configure(tmp_path, web={"port": 12001}, webui={"port": 12001})
    (await doctor(tmp_path)).is_broken("port 12001", "same port as web connector", "webui.port")


# Temporal


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


async def test_a_wrong_address_is_named(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    configure(tmp_path, temporal={"address": f"127.0.0.1:{port}"})
    (await doctor(tmp_path)).is_broken("Temporal", f"127.0.0.1:{port}", "temporal.address")


async def test_a_cluster_that_wants_tls_is_named(tmp_path: Path, server: TemporalApart) -> None:
    async with tls_gate(server.port) as gate:
        configure(tmp_path, temporal={"address": gate.address})
        (await doctor(tmp_path)).is_broken("Temporal", "temporal.tls")


async def test_an_authority_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    configure(tmp_path, temporal={"address": "localhost:1", "tls": True, "tlsCa": "garbage"})
    (await doctor(tmp_path)).is_broken("Temporal", "temporal.tlsCa", "certificate")


async def test_a_wrong_namespace_is_named(tmp_path: Path, server: TemporalApart) -> None:
    configure(tmp_path, temporal={"address": f"127.0.0.1:{server.port}", "namespace": "nowhere"})
    (await doctor(tmp_path)).is_broken("namespace", "nowhere", "temporal.namespace")


async def test_missing_search_attributes_are_named_until_init_adds_them(tmp_path: Path, server: TemporalApart) -> None:
    configure(tmp_path, temporal={"address": f"127.0.0.1:{server.port}"})
    (await doctor(tmp_path)).is_broken("search attributes", "Outcome", "maestro init", "temporal operator")
    assert (await maestro("init", folder=tmp_path)).code == 0
    report = await doctor(tmp_path)
    report.is_fine()
    assert "no worker has polled with a version yet" in report.of("worker versions").found
    assert "no worker polls maestro-llm" in report.of("pollers").found
    assert "maestro-connector-web-default" in report.of("pollers").found


async def test_an_expired_key_of_the_cluster_is_named(tmp_path: Path, server: TemporalApart) -> None:
    async with key_gate(server.port, key="the-new-key-of-this-month") as gate:
        configure(tmp_path, temporal={"address": gate.address, "apiKey": KEY})
        report = await doctor(tmp_path)
    report.is_broken("Temporal", "expired", "temporal.apiKey")
    assert KEY not in report.text


# Accounts


async def test_it_says_where_a_key_comes_from_and_asks_for_nothing_that_is_paid(tmp_path: Path) -> None:
    with provider(body={"data": []}) as openai:
        configure(tmp_path, llm=account(apiKey="env:MY_KEY", baseUrl=openai.url))
        report = await doctor(tmp_path, environment={"MY_KEY": KEY})
    report.is_fine()
    found = report.of("account main").found
    assert "environment variable MY_KEY" in found
    assert "…9876" in found
    assert KEY[:-4] not in report.text
    assert KEY[-5:] not in report.text
    assert [(method, path) for method, path, _ in openai.asked] == [("GET", "/models")]
    assert openai.asked[0][2]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("name", "code"), [("openai", 401), ("anthropic", 401), ("gemini", 400), ("openrouter", 403)])
async def test_a_refused_key_is_named(tmp_path: Path, name: str, code: int) -> None:
    with provider(code, {"error": f"bad key {KEY}"}) as refusing:
        configure(tmp_path, llm=account(provider=name, apiKey=KEY, baseUrl=refusing.url))
        report = await doctor(tmp_path)
    report.is_broken("account main", "expired or wrong", str(code), "Make a new key", "maestro.json itself")
    assert KEY not in report.text


async def test_a_key_that_was_copied_with_its_line_break_is_named(tmp_path: Path) -> None:
    configure(tmp_path)
    report = await doctor(tmp_path, environment={"OPENAI_API_KEY": f"{KEY[:9]}\n{KEY[9:]}"})
    report.is_broken("account openai", "OPENAI_API_KEY", "invalid character", "Copy the key again")


async def test_an_account_without_its_key_is_named(tmp_path: Path) -> None:
    configure(tmp_path, llm=account(provider="anthropic"))
    (await doctor(tmp_path)).is_broken("account main", "has no key", "ANTHROPIC_API_KEY")


async def test_an_ollama_that_does_not_run_is_named(tmp_path: Path) -> None:
    configure(tmp_path)
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    report = await doctor(tmp_path, environment={"OLLAMA_BASE_URL": nowhere})
    report.is_broken("account ollama", nowhere, "cannot be reached", "Start the server")


async def test_a_model_that_is_not_installed_is_named_with_those_that_are(tmp_path: Path) -> None:
    with ollama("llama3:latest") as local:
        configure(tmp_path, llm=account(provider="ollama", model="mistral", baseUrl=local.url))
        (await doctor(tmp_path)).is_broken("account main", "llama3:latest", "ollama pull mistral")
        configure(tmp_path, llm=account(provider="ollama", model="llama3", baseUrl=local.url))
        (await doctor(tmp_path)).is_fine()


# How it says so


async def test_it_ends_although_everything_it_asks_is_silent(tmp_path: Path) -> None:
    with contextlib.ExitStack() as silent:
        temporal, model, web = (silent.enter_context(silence()) for _ in range(3))
        configure(
            tmp_path,
            temporal={"address": f"127.0.0.1:{temporal}"},
            web={"port": web},
            llm=account(apiKey=KEY, baseUrl=f"http://127.0.0.1:{model}"),
        )
        report = await doctor(tmp_path)
    assert set(report.broken) == {"Temporal", "account main", f"port {web}"}


async def test_it_ends_although_every_file_it_opens_is_silent(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for path in (data / "maestro.lock", data / "temporal.json", tmp_path / "pipe.json"):
        os.mkfifo(path)
    configure(tmp_path)
    (await doctor(tmp_path)).is_fine()
    report = await doctor(tmp_path, "--config", "pipe.json")
    assert "took over" in report.of("configuration").found


@contextlib.contextmanager
def silence() -> Iterator[int]:
    """Take connections and never answer, on the port given."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_people_read_a_line_for_each_check_with_the_fix_below_it(tmp_path: Path, ports: Ports) -> None:
    with socket.create_server(("127.0.0.1", ports.web)):
        ended = await maestro("doctor", *ports.options, folder=tmp_path)
    assert (ended.code, ended.errors) == (1, "")
    lines = ended.output.splitlines()
    assert all(line.startswith(("ok ", "note ", "BROKEN ", " ")) for line in lines[:-2])
    told = next(index for index, line in enumerate(lines) if line.startswith("BROKEN"))
    assert f"port {ports.web}" in lines[told]
    assert lines[told + 1].strip().startswith("-> Stop that program")
    assert lines[-1] == "1 check found something broken."
    assert "\x1b" not in ended.output


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
async def test_a_terminal_sees_colours_unless_it_wants_none(
    tmp_path: Path, ports: Ports, no_color: str, coloured: bool
) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        COMMAND,
        "doctor",
        *ports.options,
        cwd=tmp_path,
        stdout=theirs,
        env={**os.environ, "NO_COLOR": no_color, "TERM": "xterm"},
    )
    os.close(theirs)
    text = await asyncio.to_thread(read_terminal, ours)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    assert ("\x1b[" in text) is coloured


def read_terminal(descriptor: int) -> str:
    """Read until the other end is closed, which a terminal reports as an error."""
    read = b""
    with contextlib.suppress(OSError), os.fdopen(descriptor, "rb", buffering=0) as terminal:
        while block := terminal.read(65536):
            read += block
    return read.decode()


async def test_reports_are_the_same_for_programs(tmp_path: Path, ports: Ports) -> None:
    report: Report = await doctor(tmp_path, *ports.options)
    assert set(json.loads(report.text)) == {"ok", "checks"}
    assert set(json.loads(report.text)["checks"][0]) == {"check", "verdict", "found", "fix"}
