"""Lines of the log without secrets in them (docs/decisions.md: redaction)."""

import json
import logging
import random
import time
from typing import Literal

import pytest
import structlog

from maestro.domain.errors import StoreBusy
from maestro.observability.logs import line_redactor
from maestro.scanner.scanner import ShippedRules
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from tests.support.configured_logs import configured_logs
from tests.support.secret_corpus import draw


def token() -> str:
    return draw(random.Random(1), "ghp_{A36}")


def line_of(**scanner: object) -> str:
    settings = Settings.model_validate({"chat": {"scanner": scanner}})
    return line_redactor(LiveSettings.from_fixed(settings), "text")(f"failed key={token()} job=1")


def test_a_secret_does_not_reach_the_log() -> None:
    assert line_of() == "failed key=[redacted] job=1"


@pytest.mark.parametrize("scanner", [{"enabled": False}, {"scope": ["memory"]}])
def test_who_wants_lines_as_they_are_gets_them(scanner: dict[str, object]) -> None:
    assert token() in line_of(**scanner)


def test_what_a_line_says_stays() -> None:
    line = "2026-11-22T02:42:22Z [info] job.step agent=coder-1 job=message-01KXYZABCDEF0123456789 tokens=1234"
    assert line_redactor(LiveSettings.from_fixed(Settings()), "text")(line) == line


def test_json_stays_json() -> None:
    made = line_redactor(LiveSettings.from_fixed(Settings()), "json")
    for said in (f"token={token()}", f'{{"token": "{token()}"}}', f'raise X("{token()}")\n at y', f"pw: '{token()}\\"):
        told = json.loads(made(json.dumps({"event": "x", "problem": said, "level": "info"})))
        assert token() not in str(told)
        assert told["level"] == "info"


@pytest.mark.parametrize(("mode", "written"), [("open", "in order"), ("closed", "[redacted]")])
def test_a_line_that_takes_too_long_is_kept_or_not_as_fail_mode_says(
    mode: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: -1_000.0)  # for who sets the deadline: it is long over
    settings = Settings.model_validate({"chat": {"scanner": {"failMode": mode}}})
    assert line_redactor(LiveSettings.from_fixed(settings), "text")("in order") == written


def test_an_error_of_the_search_writes_nothing_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShippedRules, "find_spans", lambda *_: 1 / 0)
    assert line_of() == "[redacted]"


def test_the_log_of_a_process_is_written_so(capsys: pytest.CaptureFixture[str]) -> None:
    with configured_logs("text", line_redactor(LiveSettings.from_fixed(Settings()), "text")):
        structlog.get_logger("a").warning("said", text=f"it is {token()}")
        logging.getLogger("a library").warning("Authorization: Bearer %s", token())
        for platform in ("discord.http", "slack_sdk.socket_mode.aiohttp"):
            logging.getLogger(platform).error("POST https://platform.example/callback/as-good-as-a-token")
    written = capsys.readouterr().err
    assert written.count("[redacted]") == 2
    assert token() not in written
    assert "as-good-as-a-token" not in written


@pytest.mark.parametrize("style", ["text", "json"])
def test_of_an_error_that_is_not_ours_the_log_has_where_it_happened_and_not_its_text(
    style: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    words = "what a person said"
    with configured_logs(style, str):
        try:
            broken(words)
        except StoreBusy:
            structlog.get_logger("maestro").exception("broken")
    written = capsys.readouterr().err
    assert "test_log_lines.py" in written
    assert "ValueError" in written
    assert "StoreBusy: the store did not answer" in written
    assert words not in written


def broken(words: str) -> None:
    """Raise an error of ours behind which stands one that quotes the words."""
    try:
        int(words)
    except ValueError as error:
        raise StoreBusy("the store did not answer") from error
