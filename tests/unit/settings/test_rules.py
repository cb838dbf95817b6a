"""The defaults, and the rules that single settings keep."""

from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.errors import ConfigurationError
from maestro.domain.settings.entries import AccountSettings
from maestro.domain.settings.process import TemporalSettings
from maestro.domain.settings.section import is_loopback
from maestro.settings import Settings
from maestro.settings.environment import account_variable, found_accounts
from maestro.settings.keys import KEYS
from tests.unit.settings.configured import SECRET, loaded, problem

# Without anything


def test_maestro_runs_without_any_configuration() -> None:
    result = loaded()
    assert result.settings == Settings()
    assert result.file is None
    assert set(result.origins.values()) == {"default"}


def test_the_defaults_are_those_promised() -> None:
    settings = Settings()
    assert settings.data_dir == Path("data")
    assert settings.database == Path("data/maestro.db")
    assert (settings.webui.host, settings.webui.port) == ("localhost", 8080)
    assert (settings.web.host, settings.web.port) == ("localhost", 5070)
    assert (settings.temporal.port, settings.temporal.ui_port) == (7233, 8233)
    assert (settings.web.max_frame_bytes, settings.web.max_upload_bytes) == (4 * 1024 * 1024, 10 * 1024 * 1024)
    assert [agent.slug for agent in settings.agents if agent.role == "conductor"] == ["conductor"]


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().webui.port = 1  # type: ignore[misc]


def test_every_key_says_what_it_means() -> None:
    assert [path for path, key in KEYS.items() if not key.field.description] == []


def test_activities_are_missed_sooner_when_a_heartbeat_costs_nothing() -> None:
    assert TemporalSettings().heartbeat == timedelta(seconds=10)
    assert TemporalSettings(address="temporal:7233").heartbeat == timedelta(seconds=30)
    assert TemporalSettings(address="temporal:7233", heartbeat_seconds=0.5).heartbeat == timedelta(seconds=0.5)


# Rules of single settings


def test_a_certificate_that_would_not_be_used_is_refused() -> None:
    assert "temporal.tls must be true" in problem({"temporal": {"address": "a:1", "tlsCa": "PEM"}})
    assert "tlsCert and temporal.tlsKey belong together" in problem(
        {"temporal": {"address": "a:1", "tls": True, "tlsCert": "PEM"}}
    )


@pytest.mark.parametrize(
    "queues", [{"taskQueue": "one", "llmQueue": "one"}, {"connectorQueue": "maestro", "llmQueue": "maestro-llm"}]
)
def test_queues_that_would_be_shared_are_refused(queues: dict[str, str]) -> None:
    assert "temporal.taskQueue, temporal.llmQueue and temporal.toolsQueue must differ" in problem(
        {"temporal": {"address": "a:1", **queues}}
    )
    assert loaded({"temporal": queues}).settings.temporal.embedded, "beside an embedded server there is one queue"


@pytest.mark.parametrize("slug", ["", "Ada", "-ada", "a_b", "a" * 64, "ada\n", "ädа"])
def test_a_slug_is_short_and_plain(slug: str) -> None:
    assert "agents[0].slug: expected up to 63 lower-case letters" in problem({"agents": [{"slug": slug}]})


@pytest.mark.parametrize("owner", ["me", "discord:", ":1", "discord:1 2", "Discord:1"])
def test_an_owner_is_a_user_of_a_platform(owner: str) -> None:
    assert "owner.ids[0]: expected platform:userId" in problem({"owner": {"ids": [owner]}})


@pytest.mark.parametrize("address", ["temporal", "http://temporal:7233", "temporal:", "::1:7233"])
def test_the_address_of_temporal_has_a_port_and_no_scheme(address: str) -> None:
    assert "temporal.address: expected host:port" in problem({"temporal": {"address": address}})


@pytest.mark.parametrize("origin", ["*", "app.example.org", "https://app.example.org/", "https://*.example.org"])
def test_an_origin_is_exactly_one(origin: str) -> None:
    assert "web.allowedOrigins[0]: expected an origin" in problem({"web": {"allowedOrigins": [origin]}})


def test_the_store_is_sqlite_or_postgresql() -> None:
    assert loaded({"store": {"url": "sqlite:////srv/m.db"}}).settings.database == Path("/srv/m.db")
    url = f"postgresql://maestro:{SECRET}@db:5432/maestro?sslmode=require"
    settings = loaded({"store": {"url": url}}).settings
    assert settings.database == url
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("url", [f"mysql://m:{SECRET}@db/m", "postgresql://db", "sqlite:///", "sqlite:///:memory:"])
def test_no_other_database_is_accepted(url: str) -> None:
    expected = "store.url: expected an empty text (SQLite in dataDir), sqlite:///PATH or postgresql://"
    assert expected in problem({"store": {"url": url}})


def test_the_data_folder_may_start_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert loaded({"dataDir": "~/maestro"}).settings.data_dir == Path("/home/ada/maestro")


def test_names_are_unique() -> None:
    account = {"name": "main", "provider": "openai"}
    assert "two accounts have the name main; rename one" in problem({"llm": {"accounts": [account, account]}})
    assert "two agents have the slug ada; rename one" in problem({"agents": [{"slug": "ada"}, {"slug": "ada"}]})
    binding = {"platform": "web", "channel": "code", "agent": "ada"}
    assert "web/default/code is bound twice" in problem({"channels": [binding, {**binding, "agent": "bob"}]})


def test_an_account_without_a_model_takes_the_default_of_its_provider() -> None:
    assert AccountSettings(name="a", provider="gemini").model == "gemini-2.5-flash"
    assert AccountSettings(name="a", provider="gemini", model="gemini-2.5-pro").model == "gemini-2.5-pro"
    assert AccountSettings(name="a", provider="demo").model == "demo"
    unknown = {"llm": {"accounts": [{"name": "a", "provider": "mistral", "model": ""}]}}
    assert "llm.accounts[0]: model must be set" in problem(unknown)


def test_secrets_are_not_shown() -> None:
    tree = {"web": {"apiKey": SECRET}, "webui": {"password": SECRET}, "temporal": {"apiKey": SECRET}}
    tree["llm"] = {"accounts": [{"name": "a", "provider": "openai", "apiKey": SECRET}]}  # type: ignore[dict-item]
    settings = loaded(tree).settings
    assert SECRET not in repr(settings)
    assert SECRET not in settings.model_dump_json()


# What others can reach is guarded (docs/decisions.md: exposed ports)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "maestro.example.org"])
def test_a_bind_beyond_this_machine_needs_a_key(host: str) -> None:
    assert "web.apiKey must be set" in problem({"web": {"host": host}})
    assert "webui.password (or MAESTRO_WEBUI_PASSWORD) must be set" in problem({}, {"MAESTRO_WEBUI_HOST": host})
    assert loaded({"web": {"host": host, "apiKey": SECRET}}).settings.web.host == host
    assert loaded({"webui": {"host": host}}, {"MAESTRO_WEBUI_PASSWORD": SECRET}).settings.webui.host == host
    assert not loaded({"web": {"host": host, "enabled": False}}).settings.web.enabled


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "::ffff:127.0.0.1"]
)
def test_loopback_reaches_only_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "::ffff:10.0.0.1", "10.0.0.1", "localhost.example.org", "127.1"])
def test_anything_else_may_be_reached_by_others(host: str) -> None:
    assert not is_loopback(host)


# Keys of providers found in the environment


def test_accounts_are_found_in_the_environment_in_order_of_priority() -> None:
    environment = {
        "OLLAMA_BASE_URL": "localhost:11434",
        "GEMINI_API_KEY": "g",
        "OPENROUTER_API_KEY": "r",
        "OPENAI_API_KEY": "o",
        "ANTHROPIC_API_KEY": f"{SECRET}\n",
    }
    accounts = found_accounts(environment)
    assert [(account.provider, account.model, account.priority) for account in accounts] == [
        ("anthropic", "claude-haiku-4-5", 20),
        ("openai", "gpt-4o-mini", 50),
        ("openrouter", "anthropic/claude-sonnet-4", 60),
        ("gemini", "gemini-2.5-flash", 70),
        ("ollama", "qwen2.5-coder:7b", 200),
    ]
    assert accounts[0].api_key.get_secret_value() == SECRET
    assert accounts[-1].base_url == "http://localhost:11434"


def test_further_keys_of_a_provider_have_numbers_behind_them() -> None:
    names = ("OPENAI_API_KEY_1", "OPENAI_API_KEY_7", "OPENAI_API_KEY_50", "OPENAI_API_KEY", "OLLAMA_BASE_URL_2")
    accounts = found_accounts(dict.fromkeys(names, "http://here:1") | {"OPENAI_API_KEY_51": "x"})
    assert [account.name for account in accounts] == ["openai", "openai-1", "openai-7", "openai-50", "ollama-2"]
    assert [account.priority for account in accounts] == [50, 50, 50, 50, 200]
    assert {account_variable(account) for account in accounts} == set(names)


def test_an_empty_key_is_no_account() -> None:
    assert found_accounts({"ANTHROPIC_API_KEY": " ", "OPENAI_API_KEY": ""}) == ()


def test_a_key_that_cannot_be_one_is_named() -> None:
    with pytest.raises(ConfigurationError, match="OLLAMA_BASE_URL: baseUrl: expected an address"):
        found_accounts({"OLLAMA_BASE_URL": "ftp://localhost"})
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY: a text is not UTF-8"):
        found_accounts({"OPENAI_API_KEY": "\udcff"})
    with pytest.raises(ConfigurationError, match="OLLAMA_BASE_URL_3: baseUrl: expected an address"):
        found_accounts({"OLLAMA_BASE_URL_3": "ftp://localhost"})


# Who looks


def test_a_viewer_has_another_password_than_the_operator() -> None:
    assert "webui.viewerPassword must differ from webui.password" in problem(
        {"webui": {"password": SECRET, "viewerPassword": SECRET}}
    )
    settings = loaded(
        {"webui": {"password": SECRET, "viewerPassword": "env:VIEWING"}}, {"VIEWING": "only look"}
    ).settings
    assert settings.webui.viewer_password.get_secret_value() == "only look"


def test_without_a_password_there_is_nobody_to_tell_a_viewer_from() -> None:
    assert "webui.viewerPassword counts only beside webui.password" in problem({"webui": {"viewerPassword": "look"}})


@pytest.mark.parametrize("proxy", ["", "proxy.example.org", "10.0.0.0/8/8", "10.0.0.1/8", "*"])
def test_a_proxy_is_named_by_its_address(proxy: str) -> None:
    refused = problem({"webui": {"password": SECRET, "trustedProxies": [proxy]}})
    assert "webui.trustedProxies[0]: expected an address or a network" in refused


def test_behind_a_proxy_a_password_is_needed() -> None:
    assert "webui.trustedProxies: a proxy lets other machines in" in problem(
        {"webui": {"trustedProxies": ["10.0.0.5"]}}
    )
    names = ("10.0.0.5", "10.1.0.0/16", "2001:db8::/32")
    webui = loaded({"webui": {"password": SECRET, "trustedProxies": list(names)}}).settings.webui
    assert webui.trusted_proxies == names
