"""``maestro connectors``: what an operator adds, changes and reads from a terminal."""

import io

import pytest

from maestro.domain.messages import Address
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro

TOKEN = "discord-TOKEN-SECRET-23-abcd"


def test_a_connector_is_added_changed_and_removed(
    rows: JobRows, maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert maestro("connectors", "list").out.startswith("There are no connectors. Add one")
    monkeypatch.setenv("MAESTRO_TEST_TOKEN", TOKEN)
    added = maestro(
        *("connectors", "add", "discord/mine", "--secret-env", "token=MAESTRO_TEST_TOKEN", "--agent", "ada"),
        *("--set", 'channels=["100"]', "--set", "slashCommands=false", "--set", "baseUrl=http://127.0.0.1:1/api"),
    )
    assert (added.code, added.out) == (0, "discord/mine is connected as soon as Maestro runs\n")
    head, line = maestro("connectors", "list").out.splitlines()
    assert head.split()[:3] == ["CONNECTOR", "STATE", "AGENT"]
    assert line.split()[:5] == ["discord/mine", "not", "connected", "yet", "ada"]
    shown = maestro("connectors", "show", "discord/mine", "--json").json
    assert shown["options"] == {"channels": ["100"], "slashCommands": False, "baseUrl": "http://127.0.0.1:1/api"}
    assert "...abcd" in maestro("connectors", "show", "discord/mine").out
    assert maestro("connectors", "set", "discord/mine", "--set", "channels=", "--secret", "token=env:OTHER").code == 0
    assert maestro("connectors", "disable", "discord/mine").out == "discord/mine is disconnected\n"
    after = maestro("connectors", "show", "discord/mine", "--json").json
    assert (after["enabled"], after["secrets"][0]["reference"]) == (False, "env:OTHER")
    assert sorted(after["options"]) == ["baseUrl", "slashCommands"]
    assert maestro("connectors", "remove", "discord/mine").out == "discord/mine is gone\n"
    assert maestro("connectors", "show", "discord/mine").err.startswith("maestro: there is no connector discord/mine")


def test_every_secret_of_a_platform_is_asked_for(maestro: Maestro, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or read from a pipe, a line each, in the order in which the platform names them."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN}\nthe-app-secret\nthe-word\n"))
    assert maestro("connectors", "add", "whatsapp", "--set", "phoneNumberId=100").code == 0
    shown = maestro("connectors", "show", "whatsapp", "--json").json
    assert [secret["name"] for secret in shown["secrets"]] == ["accessToken", "appSecret", "verifyToken"]
    assert maestro("connectors", "add", "telegram", "--secret", "token=env:NOT_SET_HERE").code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN}\n"))
    refused = maestro("connectors", "add", "slack")
    assert (refused.code, "appToken is missing" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--secret", f"token={TOKEN}"), "a secret is never given here"),
        (("--secret-env", "token=NOT_SET"), "NOT_SET is not set"),
        (("--secret", "token=env:T", "--set", "channels"), "NAME=VALUE"),
        (("--secret", "token=env:T", "--set", "chanels=1"), "unknown field"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(maestro: Maestro, arguments: tuple[str, ...], says: str) -> None:
    refused = maestro("connectors", "add", "discord", *arguments)
    assert refused.code != 0
    assert says in " ".join(refused.err.replace("│", " ").split())
    assert "SECRET" not in refused.err


def test_a_closed_channel_is_listed_and_opened(rows: JobRows, maestro: Maestro) -> None:
    assert maestro("connectors", "closed-channels").out == "Every channel can be sent to.\n"
    with rows.store.begin() as tx:
        tx.bots.channels.disable(Address(platform="discord", account="mine", channel="100"), "Missing Access")
    _, line = maestro("connectors", "closed-channels").out.splitlines()
    assert line.split()[:2] == ["discord/mine", "100"]
    assert maestro("connectors", "open-channel", "discord/mine", "100").out == "100 is sent to again\n"
    assert maestro("connectors", "open-channel", "discord/mine", "100").code == 1
