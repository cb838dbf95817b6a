"""``maestro accounts``: what is listed, and how an account comes and goes without its key being shown."""

import io
import sys
from datetime import timedelta

import pytest

from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.installation.data_folder import open_keys
from maestro.settings import Settings
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro

KEY = "sk-KEY-SECRET-23-abcd"


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the key on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\nsomething else\n"))


def stored_key(rows: JobRows, name: str = "mine") -> str:
    """Return what a worker would send."""
    with rows.store.view() as tx:
        secret = tx.llm.accounts.get_account(name).secret
    return open_keys(Settings(), {}).reveal_key(secret).get_secret_value() if secret else ""


@pytest.mark.usefixtures("piped")
def test_an_account_is_added_with_a_key_that_is_never_shown(rows: JobRows, maestro: Maestro) -> None:
    ran = maestro("accounts", "add", "mine", "--provider", "openai", "--also", "gpt-4o", "--also", "o3")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "mine is used for openai/gpt-4o-mini from the next call on\n"
    assert stored_key(rows) == KEY
    shown = maestro("accounts", "show", "mine")
    for words in ("mine  active", "gpt-4o, o3", "...abcd", "0.0000 USD", "added"):
        assert words in shown.out
    for command in (("show", "mine"), ("list",), ("list", "--json"), ("show", "mine", "--json")):
        assert "SECRET" not in maestro("accounts", *command).out


def test_a_key_is_read_from_a_variable(rows: JobRows, maestro: Maestro, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    assert maestro("accounts", "add", "mine", "--key-env", "MY_KEY", "--json").json["last4"] == "abcd"
    assert stored_key(rows) == KEY
    ran = maestro("accounts", "add", "other", "--key-env", "NOT_THERE")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "NOT_THERE is not set" in ran.err


def test_a_reference_is_stored_and_a_key_is_refused_where_it_would_be_seen(rows: JobRows, maestro: Maestro) -> None:
    added = maestro("accounts", "add", "mine", "--key-ref", "env:MY_KEY", "--json").json
    assert (added["reference"], added["last4"]) == ("env:MY_KEY", "")
    assert "env:MY_KEY" in maestro("accounts", "list").out
    for wrong in (("--key-ref", KEY), ("--key-ref", "env:MY_KEY", "--key-env", "MY_KEY")):
        ran = maestro("accounts", "add", "other", *wrong)
        assert (ran.code, ran.out) == (2, "")
        assert "SECRET" not in ran.err


def test_who_needs_no_key_is_asked_for_none(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("accounts", "add", "local", "--provider", "ollama", "--base-url", "http://gpu:11434").code == 0
    assert maestro("accounts", "add", "plan", "--type", "cli", "--home-dir", "/home/me/.claude").code == 0
    assert (stored_key(rows, "local"), stored_key(rows, "plan")) == ("", "")
    assert "cli" in maestro("accounts", "show", "plan").out.split()


@pytest.mark.usefixtures("piped")
def test_a_mistake_is_one_line_and_the_key_is_not_in_it(maestro: Maestro) -> None:
    ran = maestro("accounts", "add", "mine", "--base-url", "gpu:11434")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "baseUrl" in ran.err
    assert "SECRET" not in ran.err
    assert maestro("accounts", "list").out.startswith("There are no accounts")


def test_an_account_is_disabled_enabled_and_removed(rows: JobRows, maestro: Maestro) -> None:
    maestro("accounts", "add", "mine", "--key-ref", "env:MY_KEY")
    assert maestro("accounts", "disable", "mine").out == "mine is not used any more\n"
    assert maestro("accounts", "show", "mine", "--json").json["state"] == "disabled"
    assert maestro("accounts", "enable", "mine").out == "mine is used again\n"
    assert maestro("accounts", "show", "mine", "--json").json["state"] == "active"
    assert maestro("accounts", "remove", "mine", "--json").json == {"name": "mine"}
    assert maestro("accounts", "show", "mine").code == 1
    with rows.store.view() as tx:
        log = [(entry.actor, entry.action, entry.detail) for entry in reversed(tx.system.audit.list_latest_entries(10))]
    assert log == [
        ("operator", "account.add", ""),
        ("operator", "account.change", "status"),
        ("operator", "account.change", "status"),
        ("operator", "account.remove", ""),
    ]


@pytest.mark.usefixtures("piped")
def test_an_account_whose_key_was_refused_gets_another(rows: JobRows, maestro: Maestro) -> None:
    maestro("accounts", "add", "mine", "--key-ref", "env:MY_KEY")
    with rows.store.begin() as tx:
        tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("mine"))
    assert "AuthenticationFailed" in maestro("accounts", "list").out
    enabled = maestro("accounts", "enable", "mine", "--new-key", "--json").json
    assert (enabled["state"], enabled["last4"], enabled["lastError"]) == ("active", "abcd", "")
    assert stored_key(rows) == KEY


def test_limits_are_listed_with_their_end(rows: JobRows, maestro: Maestro) -> None:
    maestro("accounts", "add", "mine", "--key-ref", "env:MY_KEY", "--tokens-per-minute", "50000", "--concurrency", "3")
    with rows.store.begin() as tx:
        tx.llm.accounts.begin_quota_wait("mine", timedelta(days=36500))
    assert "limited until 2126-" in maestro("accounts", "list").out
    shown = maestro("accounts", "show", "mine").out
    assert "every model until 2126-" in shown
    for line in ("tokens per minute    50000", "concurrency          3", "last error           QuotaExhausted"):
        assert line in shown


def test_an_account_of_the_configuration_may_only_be_switched(rows: JobRows, maestro: Maestro) -> None:
    with rows.store.begin() as tx:
        account = ModelAccount(
            name="main", provider="openai", model="gpt-4o", source=AccountSource.CONFIGURATION,
            created_at=tx.now, updated_at=tx.now,
        )  # fmt: skip
        tx.llm.accounts.set_configured([account])
    assert maestro("accounts", "disable", "main").code == 0
    ran = maestro("accounts", "remove", "main")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "llm.accounts" in ran.err


def test_an_account_that_does_not_exist_is_one_line(maestro: Maestro) -> None:
    for command in ("show", "enable", "disable", "remove"):
        ran = maestro("accounts", command, "nobody")
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "there is no account 'nobody'" in ran.err
