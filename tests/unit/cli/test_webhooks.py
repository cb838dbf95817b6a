"""``maestro webhooks``: made, listed, changed and removed from a terminal."""

from pathlib import Path

import pytest

from tests.support.hooks import SECRET
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro

ADD = ("webhooks", "add", "deploys", "--agent", "ada", "--channel", "builds", "--prompt", "{{payload.state}}")


def test_a_webhook_is_made_and_its_secret_shown_once(rows: JobRows, maestro: Maestro) -> None:
    del rows
    assert maestro("webhooks", "list").out.startswith("There are no webhooks")
    where, secret, hint = maestro(*ADD).out.splitlines()
    assert where == "deploys takes deliveries at http://localhost:8080/hooks/deploys"
    assert secret.startswith("secret: whsec_")
    assert "not shown again" in hint
    head, row = maestro("webhooks", "list").out.splitlines()
    assert head.split() == ["PATH", "AGENT", "CHANNEL", "SCHEME", "STATE", "TAKEN", "REFUSED", "LAST"]
    assert row.split() == ["deploys", "ada", "web/builds", "standard", "enabled", "0", "0", "-"]
    shown = maestro("webhooks", "show", "deploys").out
    assert f"ends in {secret[-4:]}" in shown
    assert "{{payload.state}}" in shown
    assert secret.split()[1] not in shown + maestro("webhooks", "show", "deploys", "--json").out


def test_the_secret_of_a_sender_is_taken_from_a_variable(
    rows: JobRows, maestro: Maestro, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    made = maestro(*ADD, "--secret-env", "HOOK_SECRET", "--json").json
    assert (made["secret"], made["last4"], made["reference"]) == ("", SECRET[-4:], "")
    with rows.store.view() as tx:
        assert SECRET not in tx.background.webhooks.get("deploys").secret
    rotated = maestro("webhooks", "rotate", "deploys", "--secret-ref", "env:HOOK_SECRET", "--json").json
    assert (rotated["secret"], rotated["reference"]) == ("", "env:HOOK_SECRET")
    made_here = maestro("webhooks", "rotate", "deploys", "--json").json
    assert made_here["secret"].startswith("whsec_")
    with rows.store.view() as tx:
        actions = [entry.action for entry in tx.system.audit.list_latest_entries(3)]
    assert actions == ["webhook.rotate", "webhook.rotate", "webhook.create"]


def test_a_webhook_is_changed_disabled_enabled_and_removed(rows: JobRows, maestro: Maestro, tmp_path: Path) -> None:
    del rows
    maestro(*ADD)
    prompt = tmp_path / "prompt.md"
    prompt.write_text("What now?\n{{payload}}")
    assert maestro("webhooks", "edit", "deploys", "--prompt-file", str(prompt), "--per-minute", "5").code == 0
    maestro("webhooks", "disable", "deploys")
    webhook = maestro("webhooks", "show", "deploys", "--json").json
    assert (webhook["promptTemplate"], webhook["perMinute"]) == ("What now?\n{{payload}}", 5)
    assert (webhook["enabled"], webhook["channel"]) == (False, "builds")
    assert "deploys takes deliveries again" in maestro("webhooks", "enable", "deploys").out
    assert maestro("webhooks", "remove", "deploys").out == "deploys is gone\n"
    assert maestro("webhooks", "show", "deploys").code == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--prompt", "{{user}}"), "promptTemplate: {{user}} does not begin with payload"),
        (("--prompt", "{{payload"), "promptTemplate: after {{ there must be the path"),
        (("--agent", "nobody"), "there is no agent 'nobody'"),
        (("--per-minute", "0"), "perMinute: must be at least 1"),
        (("--secret-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (("--secret-ref", "file:relative"), "file: must be followed by the whole path"),
    ],
)
def test_a_mistake_is_said_in_a_line(rows: JobRows, maestro: Maestro, options: tuple[str, ...], problem: str) -> None:
    del rows
    ran = maestro(*ADD, *options)
    assert ran.code == 1
    assert problem in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_secret_is_not_typed_on_the_line(rows: JobRows, maestro: Maestro) -> None:
    del rows
    ran = maestro(*ADD, "--secret-ref", SECRET)
    assert ran.code == 2
    assert "never given here" in ran.err


def test_a_delivery_that_nobody_takes_says_what_to_do(rows: JobRows, maestro: Maestro) -> None:
    del rows
    maestro(*ADD)
    ran = maestro("webhooks", "send", "deploys", "--port", "1")
    assert ran.code == 1
    assert "start Maestro, or name another address with --url" in ran.err
