"""Where settings come from, and who wins."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.errors import ConfigurationError
from maestro.domain.settings.entries import AgentSettings
from maestro.settings import Settings, load, read_environment
from maestro.settings.environment import unknown_variables
from maestro.settings.keys import LEAVES
from tests.unit.settings.configured import SECRET, loaded, problem, write

ROOT = Path(__file__).parents[3]


# Who wins


def test_the_command_line_beats_the_environment_beats_the_file_beats_the_default() -> None:
    tree = {"webui": {"port": 1001}, "web": {"port": 1001}, "temporal": {"port": 1001}}
    environment = {"MAESTRO_WEB_PORT": "1002", "MAESTRO_TEMPORAL_PORT": "1002"}
    result = loaded(tree, environment, {"temporal.port": 1003, "temporal.uiPort": None})
    settings, origins = result.settings, result.origins
    assert (settings.webui.port, origins["webui.port"]) == (1001, "file")
    assert (settings.web.port, origins["web.port"]) == (1002, "environment")
    assert (settings.temporal.port, origins["temporal.port"]) == (1003, "command line")
    assert (settings.temporal.ui_port, origins["temporal.uiPort"]) == (8233, "default")


def test_the_password_of_the_environment_counts_only_when_the_file_has_none() -> None:
    environment = {"MAESTRO_WEBUI_PASSWORD": "from-environment"}
    for tree, password, origin in (
        ({"webui": {"password": "from-file"}}, "from-file", "file"),
        ({"webui": {"password": ""}}, "from-environment", "environment"),
        ({}, "from-environment", "environment"),
    ):
        result = loaded(tree, environment)
        assert result.settings.webui.password.get_secret_value() == password
        assert result.origins["webui.password"] == origin


def test_the_data_folder_may_come_as_a_path_from_the_command_line() -> None:
    assert loaded(None, {}, {"dataDir": Path("/srv/maestro")}).settings.data_dir == Path("/srv/maestro")


def test_an_unknown_option_of_the_command_line_is_an_error() -> None:
    assert problem({}, {}, {"webui.prot": 1}) == "command line: webui.prot: unknown key, did you mean webui.port?"


# Which file


def test_the_named_file_beats_the_one_of_the_environment_beats_the_one_here() -> None:
    here, other, named = (
        write({"webui": {"port": port}}, name)
        for name, port in (("maestro.json", 1001), ("other.json", 1002), ("named.json", 1003))
    )
    environment = {"MAESTRO_CONFIG": str(other)}
    assert load(named, environment, {}).settings.webui.port == 1003
    assert load(None, environment, {}).settings.webui.port == 1002
    assert load(None, {"MAESTRO_CONFIG": ""}, {}).settings.webui.port == 1001
    assert load(None, {}, {}).file == here


def test_a_named_file_must_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json does not exist; fix --config"):
        load(Path("nowhere.json"), {}, {})
    with pytest.raises(ConfigurationError, match=r"nowhere\.json does not exist; fix MAESTRO_CONFIG"):
        load(None, {"MAESTRO_CONFIG": "nowhere.json"}, {})


def test_a_link_that_leads_nowhere_is_not_taken_for_an_absent_file() -> None:
    Path("maestro.json").symlink_to("gone.json")
    with pytest.raises(ConfigurationError, match=r"maestro\.json cannot be read"):
        load(None, {}, {})


def test_the_example_loads() -> None:
    settings = load(ROOT / "maestro.example.json", {"ANTHROPIC_API_KEY": SECRET}, {}).settings
    assert settings.llm.accounts[0].api_key.get_secret_value() == SECRET


def test_a_file_of_a_windows_editor_loads() -> None:
    Path("maestro.json").write_text('{"webui": {"port": 1001}}', encoding="utf-8-sig")
    assert load(None, {}, {}).settings.webui.port == 1001


# The environment


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("MAESTRO_DATA_DIR", "/srv/maestro", "data_dir", Path("/srv/maestro")),
        ("MAESTRO_WEBUI_PORT", " 1001 ", "webui.port", 1001),
        ("MAESTRO__WEBUI__PORT", "1001", "webui.port", 1001),
        ("MAESTRO_TEMPORAL_UI_PORT", "1001", "temporal.ui_port", 1001),
        ("MAESTRO__JOBS__MAX_ATTEMPTS", "5", "jobs.max_attempts", 5),
        ("MAESTRO_JOBS_STOP_POLL_SECONDS", "0.05", "jobs.stop_poll_seconds", 0.05),
        ("MAESTRO_WEB_ENABLED", "no", "web.enabled", False),
        ("MAESTRO_TEMPORAL_TLS", "True", "temporal.tls", True),
        ("MAESTRO_OWNER_IDS", "discord:1, slack:U2", "owner.ids", ("discord:1", "slack:U2")),
        ("MAESTRO_OWNER_IDS", '["discord:1"]', "owner.ids", ("discord:1",)),
        ("MAESTRO_AGENTS", '[{"slug": "ada"}]', "agents", (AgentSettings(slug="ada"),)),
    ],
)
def test_every_key_can_stand_in_the_environment(variable: str, text: str, key: str, value: object) -> None:
    found: Any = loaded({}, {variable: text}).settings
    for name in key.split("."):
        found = getattr(found, name)
    assert found == value


def test_no_variable_stands_for_two_keys() -> None:
    variables = [variable for key in LEAVES for variable in key.variables]
    assert len(variables) == len(set(variables))


def test_an_empty_variable_counts_as_not_set() -> None:
    environment = {"MAESTRO_WEB_API_KEY": "", "MAESTRO_WEBUI_PORT": "", "MAESTRO_TYPO": ""}
    result = loaded({"web": {"apiKey": SECRET}}, environment)
    assert result.settings.web.api_key.get_secret_value() == SECRET
    assert result.origins["webui.port"] == "default"


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("MAESTRO_WEBUI_PORT", SECRET, "webui.port: expected a whole number"),
        ("MAESTRO_WEBUI_PORT", "1_000", "webui.port: expected a whole number"),
        ("MAESTRO_WEBUI_PORT", "70000", "webui.port: must be at most 65535"),
        ("MAESTRO_JOBS_DISPATCH_SECONDS", "nan", "jobs.dispatchSeconds: expected a number"),
        ("MAESTRO_JOBS_DISPATCH_SECONDS", "0", "jobs.dispatchSeconds: must be more than 0"),
        ("MAESTRO_WEB_ENABLED", "maybe", "web.enabled: expected true or false"),
        ("MAESTRO_OWNER_IDS", "[", "owner.ids: expected a list as JSON, such as [...]"),
        ("MAESTRO_OWNER_IDS", "discord:1,me", "owner.ids[1]: expected platform:userId, such as discord:1234"),
        ("MAESTRO_AGENTS", "ada", "agents: expected a list as JSON, such as [...]"),
        (
            "MAESTRO_AGENTS",
            '[{"slg": "ada", "slug": "ada"}]',
            "agents[0].slg: unknown key, did you mean agents[0].slug?",
        ),
        ("MAESTRO_LOGS_FORMAT", "xml", "logs.format: expected 'text' or 'json'"),
        ("MAESTRO_WEB_API_KEY", "\udcff", "web.apiKey: is not a text in UTF-8"),
    ],
)
def test_a_wrong_text_is_blamed_on_its_variable(variable: str, text: str, expected: str) -> None:
    assert problem({}, {variable: text}) == f"{variable}: {expected}"


@pytest.mark.parametrize("variable", ["MAESTRO__TEMPORAL__ENCRYPTION_KEY", "MAESTRO_TEMPORAL_ENCRYPTION_KEY"])
def test_a_variable_of_a_later_release_is_told_as_such(variable: str) -> None:
    assert "does not have it yet" in problem({}, {variable: "1"})


def test_an_unknown_variable_is_an_error_that_names_the_nearest() -> None:
    found = problem({}, {"MAESTRO_WEBUI_PROT": "1"})
    assert found == "MAESTRO_WEBUI_PROT: unknown environment variable, did you mean MAESTRO_WEBUI_PORT?"
    assert "docs/configuration.md" in problem({}, {"MAESTRO_XYZZY": "1"})


def test_a_key_set_by_two_variables_is_an_error() -> None:
    found = problem({}, {"MAESTRO_WEB_PORT": "1001", "MAESTRO__WEB__PORT": "1002"})
    assert found == "MAESTRO_WEB_PORT and MAESTRO__WEB__PORT both set web.port; unset one"


@pytest.mark.parametrize(
    "variable",
    ["MAESTRO", "MAESTROS_HOME", "MAESTRO_TEST_SCALE", "MAESTRO_SERVICE_HOST", "MAESTRO_WEB_PORT_5070_TCP_ADDR"],
)
def test_variables_that_are_not_settings_are_left_alone(variable: str) -> None:
    assert loaded({}, {variable: "x"}).settings == Settings()


def test_a_service_of_kubernetes_is_not_taken_for_a_port() -> None:
    environment = {"MAESTRO_PORT": "tcp://10.0.0.1:80", "MAESTRO_WEB_PORT": "tcp://10.0.0.1:5070"}
    assert loaded({}, environment).settings.web.port == 5070


def test_a_variable_that_the_file_refers_to_is_known() -> None:
    settings = loaded({"web": {"apiKey": "env:MAESTRO_MY_KEY"}}, {"MAESTRO_MY_KEY": SECRET}).settings
    assert settings.web.api_key.get_secret_value() == SECRET


def test_the_environment_is_read_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAESTRO_WEBUI_PORT", "1001")
    environment = read_environment()
    os.environ.pop("MAESTRO_WEBUI_PORT")
    assert environment["MAESTRO_WEBUI_PORT"] == "1001"


def test_the_example_of_an_environment_names_only_what_exists() -> None:
    names = re.findall(r"^#?(MAESTRO_\w+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert names
    assert unknown_variables(dict.fromkeys(names, "x"), frozenset()) == []


# Values that stand elsewhere


def test_a_value_can_be_read_from_the_environment_or_a_file() -> None:
    Path("keys").mkdir()
    Path("keys/main").write_text(f"{SECRET}\n")
    tree = {
        "web": {"apiKey": "file:main", "port": "env:PORT", "allowedOrigins": "env:ORIGINS"},
        "llm": {"accounts": [{"name": "a", "provider": "openai", "apiKey": "env:KEY", "priority": "env:PRIORITY"}]},
    }
    environment = {"KEY": SECRET, "PORT": "1001", "ORIGINS": "http://a.test,http://b.test", "PRIORITY": "7"}
    settings = load(write(tree, "keys/maestro.json"), environment, {}).settings
    assert settings.web.api_key.get_secret_value() == SECRET
    assert settings.web.port == 1001
    assert settings.web.allowed_origins == ("http://a.test", "http://b.test")
    assert settings.llm.accounts[0].api_key.get_secret_value() == SECRET
    assert settings.llm.accounts[0].priority == 7


def test_a_variable_may_refer_to_a_file_too() -> None:
    Path("password").write_text(SECRET)
    settings = loaded({}, {"MAESTRO_WEBUI_PASSWORD": "file:password"}).settings
    assert settings.webui.password.get_secret_value() == SECRET


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("env:NO_SUCH_KEY", "the environment variable NO_SUCH_KEY is not set; set it, or change this key"),
        ("env:EMPTY", "the environment variable EMPTY is not set; set it, or change this key"),
        ("env:", "env: must be followed by the name of an environment variable"),
        ("file:gone", "the file gone cannot be read (No such file or directory); fix the path or its rights"),
        ("file:.", "the file . cannot be read (Is a directory); fix the path or its rights"),
        ("file:empty", "the file empty is empty; fix the path or the file"),
        ("file:binary", "the file binary is not a text in UTF-8; fix the path or the file"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(value: str, expected: str) -> None:
    Path("empty").write_text("\n")
    Path("binary").write_bytes(b"\xff\xfe\xff")
    tree = {"llm": {"accounts": [{"name": "main", "provider": "openai", "apiKey": value}]}}
    assert problem(tree, {"EMPTY": ""}) == f"maestro.json: llm.accounts[0].apiKey: {expected}"


def test_a_value_read_from_elsewhere_is_checked_and_not_shown() -> None:
    assert problem({"web": {"port": "env:KEY"}}, {"KEY": SECRET}) == "maestro.json: web.port: expected a whole number"
    assert problem({"logs": {"level": "env:KEY"}}, {"KEY": SECRET}).startswith("maestro.json: logs.level: expected")


def test_who_calls_no_model_needs_no_keys(tmp_path: Path) -> None:
    file = tmp_path / "maestro.json"
    account = {"name": "main", "provider": "anthropic", "apiKey": "env:A_KEY_THAT_IS_ELSEWHERE"}
    file.write_text(json.dumps({"llm": {"accounts": [account], "maxOutputTokens": 5}}))
    variables = {"MAESTRO_LLM_ACCOUNTS": "file:/nowhere/accounts"}
    with pytest.raises(ConfigurationError, match="A_KEY_THAT_IS_ELSEWHERE"):
        load(file, {}, {})
    settings = load(file, variables, {}, accounts=False).settings
    assert settings.llm.accounts == ()
    assert settings.llm.max_output_tokens == 5
