"""The table of the peers shows what was measured, and which peer did best."""

from benchmarks.machine import Machine
from benchmarks.peers.peer import keys_of, question
from benchmarks.peers.report import ROWS, Result, as_json, page, table

MACHINE = Machine("2026-11-24 10:00 UTC", "a processor", 2, 8.0, "Linux", "3.11.7", {}, (0.1, 0.2, 0.3))


def result(name: str, **values: float) -> Result:
    """Return a peer with two rounds of the same values, 1 where nothing else is said."""
    one_round = {key: values.get(key, 1.0) for _, key, _, _ in ROWS}
    return Result(name, "1.0", f"{name} run", "HTTP", "", [one_round] * 2)


def line(lines: list[str], label: str) -> str:
    """Return the line of a table that begins with a label."""
    [found] = [one for one in lines if one.startswith(f"| {label}")]
    return found


def test_the_best_of_a_row_is_bold_whether_more_or_less_is_better() -> None:
    lines = table([result("ours", rate=30, loaded=400), result("theirs", rate=50, loaded=200)])
    assert line(lines, "answers, 20 users").endswith("| 30.0 per s | **50.0 per s** |")
    assert line(lines, "memory, after load").endswith("| 400 MiB | **200 MiB** |")
    assert line(lines, "message sent again").endswith("| 2 of 20 | 2 of 20 |")


def test_counts_of_all_rounds_are_added() -> None:
    lines = table([result("ours", silent=10, twice=0), result("theirs", silent=0, twice=3)])
    assert line(lines, "killed in mid-call: answered after").endswith("| **20 of 20** | 0 of 20 |")
    assert line(lines, "killed in mid-call: answered twice").endswith("| **0 of 40** | 6 of 40 |")


def test_a_peer_that_never_answered_after_the_kill_has_no_time() -> None:
    never = result("theirs")
    del never.rounds[0]["took"]
    assert line(table([result("ours"), never]), "from the kill").endswith("| 1.0 s | never |")


def test_a_peer_that_was_not_installed_is_named_with_the_reason() -> None:
    text = page(as_json(MACHINE, [result("ours"), Result("theirs", "1.0", "run", "HTTP", "no wheel for this Python")]))
    assert "* theirs is not measured: no wheel for this Python" in text
    assert "| | ours |" in text


def test_an_answer_tells_which_questions_it_answers() -> None:
    assert keys_of(f"answer to: {question('quick-3')}") == ["quick-3"]
    assert keys_of(f"{question('quick-3')}\n{question('quick-4')}") == ["quick-3", "quick-4"]
    assert keys_of("something else") == []
