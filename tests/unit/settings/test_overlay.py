"""What is set while Maestro runs, laid over what it was started with."""

from typing import Any

import pytest

from maestro.settings.control import secret_hint, settings_page, visible_value
from maestro.settings.live import apply_overrides
from tests.unit.settings.configured import SECRET, loaded, write


def test_a_value_beats_default_file_environment_and_command_line() -> None:
    started = loaded(
        {"chat": {"limits": {"maxMessageChars": 100}}}, {"MAESTRO_LOGS_LEVEL": "error"}, {"budgets.dayUsd": 7}
    )
    laid = apply_overrides(started, {"chat.limits.maxMessageChars": 200, "logs.level": "debug", "budgets.dayUsd": 1.5})
    settings = laid.settings
    assert (settings.chat.limits.max_message_chars, settings.logs.level, settings.budgets.day_usd) == (
        200,
        "debug",
        1.5,
    )
    assert started.settings.chat.limits.max_message_chars == 100, "what was loaded stays what it was"
    assert not laid.refused


def test_nothing_set_is_what_was_loaded() -> None:
    started = loaded({"jobs": {"maxAttempts": 9}})
    assert apply_overrides(started, {}).settings is started.settings


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "too small": ({"jobs.maxAttempts": 0}, "jobs.maxAttempts: must be at least 1"),
    "another type": ({"jobs.maxAttempts": "3"}, "jobs.maxAttempts: expected a whole number"),
    "true is no number": ({"jobs.maxAttempts": True}, "jobs.maxAttempts: expected a whole number"),
    "not a word for it": ({"logs.level": "loud"}, "logs.level: expected 'debug', 'info', 'warning' or 'error'"),
    "one of a list": ({"tools.approvers": ["nobody"]}, "tools.approvers[0]: expected platform:userId"),
    "not finite": ({"budgets.dayUsd": float("nan")}, "budgets.dayUsd: expected a number"),
    "a rule of its section": ({"budgets.onLimit": "fallback"}, "budgets: budgets.fallbackModel must be set"),
    "unknown": ({"jobs.maxAttempt": 1}, "jobs.maxAttempt: unknown key, did you mean jobs.maxAttempts?"),
    "an entry's key": ({"agents[].slug": "x"}, "agents: this key is read only at the start; set it in"),
    "a section": (
        {"chat.limits": 5},
        "chat.limits: this is a section; name one of its keys, such as chat.limits.maxMessageChars",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_this_release_refuses_is_left_out_and_said_to_be(case: str) -> None:
    values, sentence = REFUSED[case]
    laid = apply_overrides(loaded(), {**values, "jobs.crashLimit": 3})
    assert laid.settings.jobs.crash_limit == 3, "the others count"
    assert list(laid.refused) == list(values)
    assert sentence in "".join(laid.refused.values())


def test_a_structural_key_says_where_it_is_set_instead() -> None:
    laid = apply_overrides(loaded(), {"webui.port": 9})
    assert laid.settings.webui.port == 8080
    assert laid.refused == {
        "webui.port": "webui.port: this key is read only at the start; set it in maestro.json or in "
        "MAESTRO_WEBUI_PORT, and restart Maestro"
    }
    named = apply_overrides(loaded({}), {"chat.enabled": False})
    assert f"set it in {write({})} or in MAESTRO_CHAT_ENABLED" in named.refused["chat.enabled"]


def test_a_file_that_changed_may_make_a_value_impossible() -> None:
    values = {"budgets.onLimit": "fallback"}
    assert not apply_overrides(loaded({"budgets": {"fallbackModel": "openai/small"}}), values).refused
    assert list(apply_overrides(loaded({}), values).refused) == ["budgets.onLimit"]


def test_every_key_is_shown_and_no_secret() -> None:
    tree = {
        "webui": {"password": SECRET, "viewerPassword": f"another {SECRET}"},
        "web": {"apiKey": "short"},
        "temporal": {"apiKey": SECRET},
        "llm": {
            "accounts": [
                {
                    "name": "a",
                    "provider": "openai",
                    "apiKey": SECRET,
                    "baseUrl": f"https://me:{SECRET}@host/v1?key={SECRET}",
                }
            ]
        },
        "tools": {"mcp": [{"name": "m", "command": "run", "args": ["--key", SECRET], "env": {"TOKEN": SECRET}}]},
    }
    started = loaded(tree, {"MAESTRO_LOGS_LEVEL": "error"})
    page = settings_page(started, apply_overrides(started, {"jobs.maxAttempts": 5}), 4)
    assert SECRET not in page.model_dump_json()
    found = {one.key: one for one in page.items}
    assert found["temporal.apiKey"].value == f"...{SECRET[-4:]}"
    assert (found["web.apiKey"].value, found["temporal.tlsKey"].value) == ("set", "")
    assert (found["webui.password"].value, found["webui.viewerPassword"].value) == ("set", "set"), "people chose them"
    assert (found["webui.password"].type, found["webui.password"].changes) == ("secret", "restart")
    one = found["jobs.maxAttempts"]
    assert (one.value, one.default, one.origin, one.changes, one.type) == (5, 3, "runtime", "live", "integer")
    assert (one.limits, one.variable) == ("at least 1; at most 100", "MAESTRO_JOBS_MAX_ATTEMPTS")
    assert found["logs.level"].origin == "environment"
    assert found["logs.level"].choices == ("debug", "info", "warning", "error")
    assert (found["tools.mcp"].origin, found["jobs.crashLimit"].origin) == ("file", "default")
    assert (page.version, page.file) == (4, "maestro.json")


def test_a_hint_tells_little_of_a_long_secret_and_nothing_of_a_short_one() -> None:
    assert [secret_hint(""), secret_hint("0123456789"), secret_hint("0123456789abcdef")] == ["", "set", "...cdef"]
    assert visible_value("http://me:pass@host/x?token=abc&y=1") == "http://host/x?&"
