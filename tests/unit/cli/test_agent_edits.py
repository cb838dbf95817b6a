"""``maestro agents`` and ``maestro clients`` as an operator uses them: make, change, look back, go back, bind, end."""

import io
from pathlib import Path

import pytest

from maestro.domain.agents.edits import NewBinding
from maestro.domain.llm.budgets import NewClient
from tests.support.job_rows import JobRows
from tests.unit.cli.conftest import Maestro, Ran


def worked(ran: Ran) -> Ran:
    assert (ran.code, ran.err) == (0, "")
    return ran


def refused(ran: Ran) -> str:
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    return ran.err


# Agents


def test_an_agent_is_made_with_all_that_it_can_be_given(maestro: Maestro, tmp_path: Path) -> None:
    (tmp_path / "zoe.md").write_text("Be kind.\nUmlaute wie ä sind erlaubt.\n", encoding="utf-8")
    worked(maestro("clients", "add", "Acme"))
    persona = (
        "--name",
        "Zoë",
        "--role",
        "coder",
        "--description",
        "writes code",
        "--voice",
        "dry",
        "--language",
        "German",
    )
    quirks = ("--quirk", "Says hm, often.", "--quirk", "Never swears.", "--prompt-file", "zoe.md")
    models = (
        "--model",
        "openai/gpt-4o",
        "--fallbacks",
        "o3, ollama/qwen3",
        "--client",
        "Acme",
        "--daily-budget",
        "2.5",
    )
    allowed = ("--tools", "", "--skills", "review", "--allow-users", "web:1,slack:U2", "--memory-scope", "conversation")
    made = worked(maestro("agents", "create", "zoe", *persona, *quirks, *models, *allowed, "--json")).json
    assert (made["name"], made["role"], made["voice"], made["client"]) == ("Zoë", "coder", "dry", "Acme")
    assert made["language"] == "German"
    assert made["quirks"] == ["Says hm, often.", "Never swears."]
    assert made["systemPrompt"] == "Be kind.\nUmlaute wie ä sind erlaubt.\n"
    assert (made["fallbacks"], made["tools"], made["skills"]) == (["o3", "ollama/qwen3"], [], ["review"])
    assert (made["allowUsers"], made["memoryScope"]) == (["web:1", "slack:U2"], "conversation")
    assert (made["dailyBudgetUsd"], made["version"]) == (2.5, 1)
    shown = worked(maestro("agents", "show", "zoe")).out
    for words in (
        "zoe  active, version 1",
        "tools             none",
        "language          German",
        "daily budget usd  2.5",
        "  Be kind.",
    ):
        assert words in shown


def test_a_budget_of_zero_is_shown_as_no_limit(maestro: Maestro) -> None:
    worked(maestro("agents", "edit", "ada", "--daily-budget", "0"))
    assert "daily budget usd  no limit" in worked(maestro("agents", "show", "ada")).out


def test_a_prompt_may_come_over_standard_input(maestro: Maestro, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Be kind."))
    worked(maestro("agents", "edit", "ada", "--prompt-file", "-"))
    assert maestro("agents", "show", "ada", "--json").json["systemPrompt"] == "Be kind."


def test_an_edit_changes_what_is_given_and_puts_back_what_is_reset(maestro: Maestro) -> None:
    worked(maestro("agents", "edit", "ada", "--tools", "calculate", "--allow-users", "web:1", "--daily-budget", "2"))
    said = worked(maestro("agents", "edit", "ada", "--reset", "allowUsers", "--reset", "daily-budget-usd"))
    assert said.out == "ada is at version 3 now, and active\n"
    ada = maestro("agents", "show", "ada", "--json").json
    assert (ada["tools"], ada["allowUsers"], ada["dailyBudgetUsd"]) == (["calculate"], None, None)
    again = worked(maestro("agents", "edit", "ada", "--reset", "allowUsers"))
    assert again.out == "ada has these values already; it stays at version 3\n"
    assert maestro("agents", "edit", "ada", "--reset", "slug").code == 2


def test_what_cannot_be_is_one_line(maestro: Maestro, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe4")
    assert "slug: expected up to 63 lower-case" in refused(maestro("agents", "create", "Zoe"))
    assert "there is an agent ada already" in refused(maestro("agents", "create", "ada"))
    assert "fallbacks[0]: expected" in refused(maestro("agents", "edit", "ada", "--fallbacks", "a b"))
    assert "gone cannot be read: No such file" in refused(maestro("agents", "edit", "ada", "--prompt-file", "gone"))
    assert "latin cannot be read: it is not UTF-8" in refused(
        maestro("agents", "edit", "ada", "--prompt-file", "latin")
    )
    assert "there is no agent 'bob'" in refused(maestro("agents", "pause", "bob"))


def test_an_agent_is_paused_resumed_archived_and_restored(maestro: Maestro) -> None:
    steps = {"pause": "paused", "resume": "active", "archive": "archived", "restore": "active"}
    for command, status in steps.items():
        assert worked(maestro("agents", command, "ada", "--json")).json["status"] == status
    assert maestro("agents", "show", "ada", "--json").json["channels"] == []


def test_an_agent_is_removed_for_good_only_when_nothing_speaks_of_it(rows: JobRows, maestro: Maestro) -> None:
    worked(maestro("agents", "create", "bob"))
    assert worked(maestro("agents", "archive", "bob", "--purge", "--json")).json == {"slug": "bob"}
    rows.add()
    assert "Archive it instead" in refused(maestro("agents", "archive", "ada", "--purge"))


def test_the_last_conductor_goes_only_by_force(maestro: Maestro) -> None:
    worked(maestro("agents", "create", "boss", "--role", "conductor"))
    assert "no agent would answer direct messages" in refused(maestro("agents", "archive", "boss"))
    assert "no agent would answer direct messages" in refused(maestro("agents", "edit", "boss", "--role", "coder"))
    worked(maestro("agents", "archive", "boss", "--force"))


# Versions


def test_the_history_says_who_when_what_and_why(maestro: Maestro) -> None:
    worked(maestro("agents", "edit", "ada", "--voice", "dry", "--reason", "too chatty"))
    head, second, first = worked(maestro("agents", "versions", "ada")).out.splitlines()
    assert head.split() == ["VERSION", "WHEN", "BY", "CHANGED", "REASON"]
    assert second.split()[3:] == ["operator", "voice", "too", "chatty"]
    assert first.split()[3:] == ["an", "earlier", "release", "made", "-"]
    page = maestro("agents", "versions", "ada", "--limit", "1", "--json").json
    assert ([one["version"] for one in page["items"]], page["next"]) == ([2], "2")
    assert "--cursor 2" in maestro("agents", "versions", "ada", "--limit", "1").out
    assert [
        one["version"] for one in maestro("agents", "versions", "ada", "--cursor", "2", "--json").json["items"]
    ] == [1]


def test_a_difference_is_shown_line_by_line(maestro: Maestro, tmp_path: Path) -> None:
    for text in ("One.\nTwo.\nThree.\n", "One.\n2\nThree.\n"):
        (tmp_path / "prompt").write_text(text)
        worked(maestro("agents", "edit", "ada", "--prompt-file", "prompt"))
    worked(maestro("agents", "edit", "ada", "--tools", "calculate"))
    lines = worked(maestro("agents", "diff", "ada", "--version", "3")).out.splitlines()
    assert "by operator, against version 2" in lines[0]
    assert lines[1:] == ["  systemPrompt:", "     One.", "    -Two.", "    +2", "     Three."]
    assert worked(maestro("agents", "diff", "ada")).out.splitlines()[1:] == ['  tools: null -> ["calculate"]']
    changes = worked(maestro("agents", "diff", "ada", "--version", "4", "--against", "1", "--json")).json["changes"]
    assert [change["field"] for change in changes] == ["systemPrompt", "tools"]
    assert worked(maestro("agents", "diff", "ada", "--against", "4")).out.splitlines()[1:] == ["nothing is different"]


def test_the_way_back_leads_to_the_version_before_or_to_any_other(maestro: Maestro) -> None:
    assert "has only one version" in refused(maestro("agents", "rollback", "ada"))
    for voice in ("dry", "warm"):
        worked(maestro("agents", "edit", "ada", "--voice", voice))
    assert worked(maestro("agents", "rollback", "ada", "--json")).json["voice"] == "dry"
    assert worked(maestro("agents", "rollback", "ada", "--to", "1", "--json")).json["voice"] == ""
    assert "ada has no version 9" in refused(maestro("agents", "rollback", "ada", "--to", "9"))


# Channels


def test_a_channel_is_bound_and_freed(rows: JobRows, maestro: Maestro) -> None:
    options = ("--permission", "read_only", "--key-by-user", "--busy", "collect", "--allow-bots")
    bound = worked(maestro("agents", "bind", "ada", "slack", "C1", *options, "--json")).json
    assert (bound["agent"], bound["permission"], bound["keyByUser"], bound["busy"]) == (
        "ada",
        "read_only",
        True,
        "collect",
    )
    assert "belongs to the agent ada already" in refused(maestro("agents", "bind", "ada", "slack", "C1"))
    shown = maestro("agents", "show", "ada").out
    assert ["2", "ada", "slack", "default", "C1", "read_only", "yes"] in [
        line.split()[:7] for line in shown.splitlines()
    ]
    group = ("telegram", "-1001234567890")
    worked(maestro("agents", "bind", "ada", *group, "--permission", "read_only"))
    assert "No such option: --permision" in maestro("agents", "bind", "ada", *group[:1], "C", "--permision", "full").err
    worked(maestro("agents", "unbind", *group))
    worked(maestro("agents", "unbind", "slack", "C1"))
    assert "slack/C1 is bound to no agent" in refused(maestro("agents", "unbind", "slack", "C1"))
    with rows.store.begin() as tx:
        tx.agents.set_configured_binding(tx.agents.get_agent_by_slug("ada"), NewBinding(platform="slack", channel="C2"))
    assert "under channels there" in refused(maestro("agents", "unbind", "slack", "C2"))


# Clients


def test_clients_are_added_listed_changed_and_removed(rows: JobRows, maestro: Maestro) -> None:
    assert worked(maestro("clients", "list")).out == "There are no clients.\n"
    worked(maestro("clients", "add", "Acme & Sons", "--slug", "acme", "--plan", "monthly", "--daily-budget", "3"))
    with rows.store.begin() as tx:
        tx.users.clients.set_configured(NewClient(name="Globex"))
    table = worked(maestro("clients", "list")).out.splitlines()
    assert table[1].split() == ["Acme", "&", "Sons", "acme", "monthly", "1", "3.00", "0.00", "made", "here"]
    assert table[2].split() == ["Globex", "-", "per_task", "1", "-", "0.00", "configuration"]
    changed = worked(maestro("clients", "edit", "acme", "--no-daily-budget", "--weight", "5", "--json")).json
    assert (changed["dailyBudgetUsd"], changed["weight"], changed["slug"]) == (None, 5, "acme")
    assert "change clients there" in refused(maestro("clients", "edit", "Globex", "--plan", "monthly"))
    assert "plan: expected a lower-case word" in refused(maestro("clients", "edit", "acme", "--plan", "A B"))
    assert worked(maestro("clients", "remove", "acme", "--json")).json == {"name": "Acme & Sons"}
    assert "there is no client 'acme'" in refused(maestro("clients", "remove", "acme"))
