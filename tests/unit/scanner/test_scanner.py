"""The scanner whole: patterns of an operator's own, what becomes of errors, and that nothing switches it off."""

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from structlog.testing import capture_logs

from maestro.domain.redaction import AllowList, ScanResult, ScanRules, allow_list_entry_problem
from maestro.scanner import pattern_program
from maestro.scanner.scanner import DetectSecretsScanner, GuardedScanner
from tests.support.secret_corpus import draw

HANGS = r"(a+)+$"
FOREVER = "a" * 64 + "!"
STAFF = r"EMP-\d{6}"


@pytest.fixture(scope="module")
def scanner() -> Iterator[DetectSecretsScanner]:
    made = DetectSecretsScanner()
    yield made
    made.end_processes()


def token() -> str:
    return draw(random.Random(1), "ghp_{A36}")


class Broken:
    """A scanner that cannot go on."""

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        raise RuntimeError(text)


def test_a_pattern_of_ones_own_is_found_beside_the_rules(scanner: DetectSecretsScanner) -> None:
    result = scanner.scan(f"EMP-123456 has {token()}", ScanRules(patterns=(STAFF,)))
    assert result.text == "[redacted] has [redacted]"
    assert not result.error


def test_a_group_named_secret_is_all_that_goes(scanner: DetectSecretsScanner) -> None:
    rules = ScanRules(patterns=(r"badge (?P<secret>\d+)",))
    assert scanner.scan("my badge 4711, his badge 4712", rules).text == "my badge [redacted], his badge [redacted]"


def test_a_pattern_does_not_match_marks(scanner: DetectSecretsScanner) -> None:
    rules = ScanRules(patterns=("redacted|x",))
    assert scanner.scan("[redacted] x", rules).text == "[redacted] [redacted]"


@pytest.mark.parametrize("allowed", [token(), f"here is {token()}", "re:ghp_[A-Za-z0-9]{36}"])
def test_what_is_allowed_stays_and_nothing_else(scanner: DetectSecretsScanner, allowed: str) -> None:
    other = draw(random.Random(2), "AKIA{U16}")
    rules = ScanRules(patterns=(STAFF,), allow=AllowList((allowed, "EMP-000001")))
    text = f"here is {token()}, not {other}, of EMP-000001 and EMP-123456"
    assert scanner.scan(text, rules).text == f"here is {token()}, not [redacted], of EMP-000001 and [redacted]"


@pytest.mark.parametrize("allowed", [token()[:-1], token() + "x", "re:ghp_", "re:ghp_.{35}"])
def test_what_is_allowed_in_part_does_not_stay(scanner: DetectSecretsScanner, allowed: str) -> None:
    assert scanner.scan(token(), ScanRules(allow=AllowList((allowed,)))).text == "[redacted]"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("msg-1234", None),
        ("(", None),
        ("re:msg-[0-9]+", None),
        ("re:(", "RE2"),
        ("re:(?!a)b", "RE2"),
        ("re:.*", "every finding"),
        ("re:[a-z]{1000}{5}", "RE2"),
    ],
)
def test_an_entry_of_the_allow_list_is_checked(entry: str, problem: str | None) -> None:
    found = allow_list_entry_problem(entry)
    assert found is None if problem is None else problem in str(found)


def test_a_pattern_that_is_none_is_named_and_the_others_count(scanner: DetectSecretsScanner) -> None:
    result = scanner.scan("EMP-123456", ScanRules(patterns=("(", STAFF)))
    assert result.text == "[redacted]"
    assert result.error == "invalid expression: chat.scanner.patterns 1"


def test_a_pattern_that_hangs_is_stopped_in_time_and_the_rules_still_count(scanner: DetectSecretsScanner) -> None:
    started = time.monotonic()
    result = scanner.scan(f"EMP-123456 {token()} {FOREVER}", ScanRules(timeout_ms=300, patterns=(STAFF, HANGS)))
    assert time.monotonic() - started < 20  # alone it would take longer than anybody waits
    assert result.text == f"[redacted] [redacted] {FOREVER}"
    assert result.error
    assert scanner.scan("EMP-123456", ScanRules(patterns=(STAFF, HANGS))).text == "[redacted]"


def test_scans_that_hang_hold_up_no_other(scanner: DetectSecretsScanner) -> None:
    slow, quick = ScanRules(timeout_ms=5_000, patterns=(HANGS,)), ScanRules(timeout_ms=60_000, patterns=(STAFF,))
    with ThreadPoolExecutor(4) as threads:
        hanging = [threads.submit(scanner.scan, FOREVER, slow) for _ in "abc"]
        assert [scanner.scan("EMP-123456", quick).text for _ in range(20)] == ["[redacted]"] * 20
        assert not any(one.done() for one in hanging)
        assert all(one.result().error for one in hanging)


def test_the_rules_count_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    result = DetectSecretsScanner().scan(f"EMP-123456 {token()}", ScanRules(patterns=(STAFF,)))
    assert result.text == "EMP-123456 [redacted]"
    assert result.error == "no process that searches for chat.scanner.patterns could be started"


def test_a_process_ends_when_nobody_can_ask_it_any_more() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen((sys.executable, "-I", "-S", pattern_program.__file__), stdin=theirs.fileno())
    ours.close()
    assert process.wait(timeout=60) == 0


def test_a_comment_does_not_switch_it_off(scanner: DetectSecretsScanner) -> None:
    for comment in (
        "# pragma: allowlist secret",
        "// pragma: whitelist secret",
        "# pragma: allowlist nextline secret\n",
    ):
        assert token() not in scanner.scan(f"{comment} key = '{token()}' {comment}", ScanRules()).text


def test_an_error_keeps_the_text_and_is_logged_and_counted() -> None:
    failed: list[bool] = []
    with capture_logs() as logs:
        result = GuardedScanner(Broken(), lambda: failed.append(True)).scan("what I said", ScanRules())
    assert (result.text, result.redacted, result.error) == ("what I said", False, "RuntimeError")
    assert [(line["scannerError"], line["log_level"]) for line in logs] == [(True, "error")]
    assert "what I said" not in str(logs)
    assert failed == [True]


def test_closed_redacts_the_whole_text() -> None:
    result = GuardedScanner(Broken()).scan("what I said", ScanRules(fail_mode="closed"))
    assert (result.text, result.redacted, result.error) == ("[redacted]", True, "RuntimeError")


def test_switched_off_it_is_not_asked() -> None:
    assert GuardedScanner(Broken()).scan("what I said", ScanRules(enabled=False)) == ScanResult("what I said")
