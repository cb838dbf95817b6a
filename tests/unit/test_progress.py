"""The progress bar of long commands: a line for each tenth where the error output is no terminal."""

import asyncio
import sys

import pytest

from benchmarks import progress
from benchmarks.progress import ERASE_LINE, ProgressBar


def test_a_log_has_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(40, "kills")
    for done in range(41):
        bar.show(done, f"{2 * done} messages")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[0] == f"[{30 * '-'}] 0 of 40 kills, 0 messages, 0:00"
    assert lines[5] == f"[{15 * '#'}{15 * '-'}] 20 of 40 kills, 40 messages, 0:00, 0:00 left"
    assert ERASE_LINE not in "".join(lines)


def test_work_of_an_earlier_command_takes_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(100, "kills", 50)
    bar.show(50)
    assert "left" not in capsys.readouterr().err


def test_a_terminal_has_one_line_that_ends_with_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = ProgressBar(2, "measurements")
    bar.show(1, "latency")
    bar.clear()
    assert (
        capsys.readouterr().err
        == f"{ERASE_LINE}[{15 * '#'}{15 * '-'}] 1 of 2 measurements, latency, 0:00, 0:00 left{ERASE_LINE}"
    )
    bar.show(2)
    assert capsys.readouterr().err.endswith("left\n")


async def test_a_part_moves_the_bar_up_to_its_end_and_no_further(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.01)
    bar = ProgressBar(0.2, "expected s")
    written = ""
    async with asyncio.timeout(30), bar.advance(0.1, 0.1, "latency (2 of 2)"):
        while len(set(written.split(ERASE_LINE))) < 4:
            await asyncio.sleep(0.01)
            written += capsys.readouterr().err
    drawn = [line for line in written.split(ERASE_LINE) if line]
    assert drawn[0].startswith(f"[{15 * '#'}{15 * '-'}] 0.1 of 0.2 expected s, latency (2 of 2), 0:00, 0:00 left")
    assert "\n" not in written, "the line ends with the work"
