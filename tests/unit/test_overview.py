"""What operators see first, as rules: how long people wait, what fails alike, and what is open to others."""

from datetime import timedelta
from typing import Any

import pytest

from maestro.domain.jobs.filters import FailedJob
from maestro.domain.overview import group_failures, is_local, list_exposures, measure_answer_times
from tests.support.job_rows import MORNING

SAFE: dict[str, Any] = {
    "webui.password": "set",
    "web.dmPolicy": "open",
    "connectors.slack.dmPolicy": "pairing",
    "connectors.discord.dmPolicy": "allowlist",
    "budgets.dayUsd": 5,
    "chat.enabled": True,
    "chat.scanner.enabled": True,
    "temporal.address": "",
    "temporal.tls": False,
}


def told(host: str = "localhost", *, secure: bool = False, **changes: Any) -> list[tuple[str, ...]]:
    settings = SAFE | {key.replace("_", "."): value for key, value in changes.items()}
    return [one.keys for one in list_exposures(settings, host, secure=secure)]


def test_half_and_95_of_100_wait_no_longer() -> None:
    answers = [(MORNING, timedelta(seconds=seconds)) for seconds in range(100, 0, -1)]
    found = measure_answer_times(answers, MORNING)
    assert (found.count, found.half_ms, found.most_ms) == (100, 50_000, 95_000)
    assert measure_answer_times(answers[:1], MORNING).most_ms == 100_000
    later = measure_answer_times(answers, MORNING + timedelta(seconds=1))
    assert (later.count, later.half_ms, later.most_ms) == (0, None, None)


def test_failures_of_one_kind_are_one_and_the_most_frequent_come_first() -> None:
    failures = [
        FailedJob("c", "ProviderDown", "no answer from 10.0.0.2 after 31 s", MORNING + timedelta(minutes=3)),
        FailedJob("b", "Refused", "no", MORNING + timedelta(minutes=2)),
        FailedJob("a", "ProviderDown", "no answer from 10.0.0.1 after 30 s", MORNING),
    ]
    first, second = group_failures(failures)
    assert (first.error, first.count, first.job_id, first.newest) == ("ProviderDown", 2, "c", failures[0].at)
    assert "10.0.0" not in first.reason
    assert (second.error, second.count) == ("Refused", 1)


def test_a_safe_maestro_is_not_warned_of() -> None:
    assert told() == []
    assert told("maestro.example", secure=True) == []


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"webui_password": ""}, "webui.password"),
        ({"connectors_slack_dmPolicy": "open"}, "connectors.slack.dmPolicy"),
        ({"chat_scanner_enabled": False}, "chat.scanner.enabled"),
        ({"temporal_address": "temporal.example:7233"}, "temporal.tls"),
    ],
)
def test_what_is_open_names_the_key_that_mends_it(changes: dict[str, Any], keys: str) -> None:
    (found,) = told(**changes)
    assert found[0] == keys


def test_a_password_that_can_be_read_on_the_way_is_said() -> None:
    assert told("maestro.example", secure=False) == [("webui.trustedProxies",)]
    assert told("192.0.2.1", secure=False) == [("webui.trustedProxies",)]


def test_what_is_off_is_no_hole() -> None:
    assert told(chat_enabled=False, chat_scanner_enabled=False) == []
    assert told(temporal_address="localhost:7233") == []
    assert told(temporal_address="temporal.example:7233", temporal_tls=True) == []


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("[::1]", True),
        ("me.localhost", True),
        ("10.0.0.1", False),
        ("x", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, local: bool) -> None:
    assert is_local(host) is local
