"""What ``maestro chat`` sends, what it takes for the answer, and where it remembers to have been."""

import os
import stat
from pathlib import Path

import pytest

from connectors.web_client import (
    ChatAnswer,
    ChatVisit,
    VisitFiles,
    display_text,
    is_failure,
    mention_agent,
    new_channel,
    resolve_choice,
    state_folder,
    web_address,
    without_controls,
)

URL = "ws://localhost:5070/"


def frame(number: int, reply_to: str = "", **marks: bool) -> dict[str, object]:
    return {"type": "message", "id": number, "content": "", **({"replyTo": reply_to} if reply_to else {}), **marks}


def test_an_answer_is_what_replies_to_us_and_what_follows_it_until_its_last_chunk() -> None:
    answer = ChatAnswer("mine")
    assert not answer.includes_message(frame(1))
    assert not answer.includes_message(frame(2, "local:other", more=True))
    assert not answer.includes_message(frame(3))
    assert answer.includes_message(frame(5, "local:mine", more=True))
    assert answer.includes_message(frame(6, more=True))
    assert not answer.includes_message(frame(7, "local:other"))
    assert answer.more
    assert answer.includes_message(frame(9))
    assert not answer.more
    assert not answer.includes_message(frame(10))
    assert answer.includes_message(frame(11, "local:mine"))  # a notice first, the answer later


@pytest.mark.parametrize(
    ("said", "notice", "failed"), [("hello", True, True), ("hello", False, False), ("/status", True, False)]
)
def test_a_notice_is_a_failure_unless_maestro_itself_was_spoken_to(said: str, notice: bool, failed: bool) -> None:
    assert is_failure(said, frame(1, notice=notice)) is failed


@pytest.mark.parametrize(
    ("text", "agent", "sent"),
    [
        ("hello", "", "hello"),
        ("hello", "ada", "@ada hello"),
        ("@ada hello", "ada", "@ada hello"),
        (" @ADA hello", "ada", " @ADA hello"),
        ("@adam hello", "ada", "@ada @adam hello"),
        ("ask @ada", "ada", "@ada ask @ada"),
        ("/stop", "ada", "/stop"),
        (" /NEW ", "ada", " /NEW "),
        ("/stop it", "ada", "@ada /stop it"),
    ],
)
def test_an_agent_is_mentioned_once_and_control_words_stay_alone(text: str, agent: str, sent: str) -> None:
    assert mention_agent(text, agent) == sent


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert without_controls("\x1b]0;title\x07a\r\n\tb\x9b2J\x00 é 👩‍🚀") == "]0;titlea\n\tb2J é 👩‍🚀"


def test_a_channel_says_who_talks_to_whom_and_is_nobody_elses() -> None:
    first, second = (new_channel("Grace Hopper\n", "ada") for _ in range(2))
    assert first.startswith("terminal-Grace-Hopper--ada-")
    assert first != second
    assert len(new_channel("x" * 500, "y" * 63)) <= 128
    assert new_channel("", "").startswith("terminal-")


def test_the_folder_is_where_the_system_says(tmp_path: Path) -> None:
    assert state_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "maestro"
    assert state_folder({}) == Path.home() / ".local" / "state" / "maestro"


def test_a_visit_is_kept_by_address_and_name_for_its_owner_alone(tmp_path: Path) -> None:
    visits = VisitFiles(tmp_path / "new" / "chat")
    visit = ChatVisit(url=URL, channel="c-1", resume_token="secret", instance="i", last_id=7)
    assert visits.find_visit(URL, "@ada") is None
    visits.save_visit("@ada", visit)
    visits.save_visit("@ada", visit.model_copy(update={"last_id": 8}))
    assert visits.find_visit(URL, "@ada") == visit.model_copy(update={"last_id": 8})
    assert visits.find_visit(URL, "@") is None
    assert visits.find_visit("ws://elsewhere/", "@ada") is None
    (file,) = visits.folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_person_is_the_same_in_all_their_channels(tmp_path: Path) -> None:
    visits = VisitFiles(tmp_path)
    for age, (name, url, token) in enumerate(
        (("@", URL, "old"), ("@ada", URL, "new"), ("#c", URL, ""), ("@", "ws://elsewhere/", "another"))
    ):
        visits.save_visit(name, ChatVisit(url=url, channel=name, resume_token=token, last_id=age))
        for file in tmp_path.glob("*.json"):
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 1_000_000_000))
    for name in ("@", "@ada", "#c"):
        visit = visits.find_visit(URL, name)
        assert visit is not None
        assert (visit.channel, visit.resume_token) == (name, "new")
    assert visits.find_token("ws://nowhere/") == ""


def test_a_visit_that_cannot_be_read_or_kept_is_no_error(tmp_path: Path) -> None:
    visits = VisitFiles(tmp_path)
    visits.save_visit("@", ChatVisit(url=URL, channel="c-1"))
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    assert visits.find_visit(URL, "@") is None
    VisitFiles(file / "no folder").save_visit("@", ChatVisit(url=URL, channel="c-1"))


BUTTONS = [{"label": "Red\x1b[2J", "value": "Red #7"}, {"label": "Blue", "value": "Blue #7"}]


def test_what_may_be_chosen_and_where_a_file_is_stands_below_the_words() -> None:
    file = {"filename": "plan\x1b.png", "size": 12_345, "url": "/api/file/c/9"}
    message = {"content": "Which?", "buttons": BUTTONS}
    assert display_text(message) == "Which?\n[1] Red[2J  [2] Blue"
    assert display_text({"content": "", "file": file}, "http://localhost:5070") == (
        "[file plan.png, 12.3 kB: http://localhost:5070/api/file/c/9]"
    )
    assert display_text({"content": "just words"}) == "just words"


@pytest.mark.parametrize(
    ("line", "says"), [("1", "Red #7"), (" 2 ", "Blue #7"), ("3", "3"), ("0", "0"), ("01", "01"), ("a 1", "a 1")]
)
def test_the_number_of_a_button_says_what_it_says(line: str, says: str) -> None:
    assert resolve_choice(line, {"buttons": BUTTONS}) == says
    assert resolve_choice(line, {"content": "later"}) == line


@pytest.mark.parametrize(
    ("socket", "address"),
    [("ws://localhost:5070/", "http://localhost:5070"), ("wss://[::1]:8443/x", "https://[::1]:8443")],
)
def test_files_are_fetched_beside_the_socket(socket: str, address: str) -> None:
    assert web_address(socket) == address
