"""A file of the conversation's folder is kept for delivery, once, whatever a crash repeats."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from maestro.domain.deliveries import JobFile
from maestro.store.files import MediaFolder
from maestro.tools import files as send_file
from maestro.tools.base import Arguments, ToolCaller, ToolFailure
from maestro.tools.files import SendFile
from maestro.tools.registry import parse_arguments
from tests.support.job_rows import JobRows

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> MediaFolder:
    return MediaFolder(tmp_path / "media")


@pytest.fixture
def caller(rows: JobRows, tmp_path: Path) -> ToolCaller:
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "conversation"
    folder.mkdir()
    return ToolCaller(rows.add(), 1, 1, folder)


def send(rows: JobRows, files: MediaFolder, caller: ToolCaller, **arguments: object) -> str:
    """Call the tool as its step does."""
    tool = SendFile(files)
    ready: Arguments = tool.prepared(arguments, caller)
    with rows.store.begin() as tx:
        return tool.act(tx, ready, caller)


def kept(rows: JobRows, caller: ToolCaller) -> Sequence[JobFile]:
    with rows.store.view() as tx:
        return tx.deliveries.files.list_files_of_job(caller.job_id)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("plan.png", PNG, "image/png"),
        ("plan.txt", PNG, "image/png"),
        ("costs.csv", b"a,b\n", "text/csv"),
        ("page.html", b"<p>", "text/html"),
        ("notes", "größe".encode(), "text/plain"),
        ("dump", b"\x00\x01", "application/octet-stream"),
    ],
)
def test_a_file_is_kept_as_it_is_now(
    rows: JobRows, files: MediaFolder, caller: ToolCaller, name: str, content: bytes, kind: str
) -> None:
    (caller.folder / name).write_bytes(content)
    told = send(rows, files, caller, path=name, caption=" the plan ")
    assert told == f"{name} ({len(content)} bytes) goes out after your answer."
    (caller.folder / name).write_bytes(b"changed later")
    (file,) = kept(rows, caller)
    assert (file.filename, file.content_type, file.size, file.caption) == (name, kind, len(content), "the plan")
    assert files.read_content(file.digest) == content


def test_files_go_out_in_the_order_in_which_they_were_asked_for(
    rows: JobRows, files: MediaFolder, caller: ToolCaller
) -> None:
    """The calls of one round are made side by side."""
    for name, turn in (("last.txt", (2, 0)), ("second.txt", (1, 1)), ("first.txt", (1, 0))):
        (caller.folder / name).write_text(name)
        send(rows, files, replace(caller, turn=turn), path=name)
    assert [file.filename for file in kept(rows, caller)] == ["first.txt", "second.txt", "last.txt"]


def test_the_same_file_is_sent_once_and_another_version_of_it_too(
    rows: JobRows, files: MediaFolder, caller: ToolCaller
) -> None:
    for content in (b"one", b"one", b"two"):
        (caller.folder / "a.txt").write_bytes(content)
        for _ in range(2):
            send(rows, files, caller, path="a.txt")
    (caller.folder / "b.txt").write_bytes(b"one")
    send(rows, files, caller, path="b.txt")
    assert [(file.filename, files.read_content(file.digest)) for file in kept(rows, caller)] == [
        ("a.txt", b"one"),
        ("a.txt", b"two"),
        ("b.txt", b"one"),
    ]


def test_no_more_files_and_bytes_than_go_out_at_once(
    rows: JobRows, files: MediaFolder, caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_file, "MOST_BYTES", 25)
    for number in range(3):
        (caller.folder / f"{number}").write_bytes(b"x" * 10 + bytes([number]))
    send(rows, files, caller, path="0")
    send(rows, files, caller, path="1")
    with pytest.raises(ToolFailure, match="11 bytes; 3 more can be sent"):
        send(rows, files, caller, path="2")
    send(rows, files, caller, path="1")  # what is to be sent already takes no more
    (caller.folder / "huge").write_bytes(b"x" * 26)
    with pytest.raises(ToolFailure, match="larger than 25 bytes"):
        send(rows, files, caller, path="huge")
    monkeypatch.setattr(send_file, "MOST_FILES", 2)
    (caller.folder / "tiny").write_bytes(b"t")
    with pytest.raises(ToolFailure, match="2 files are waiting already"):
        send(rows, files, caller, path="tiny")
    assert [file.filename for file in kept(rows, caller)] == ["0", "1"]
    assert list((caller.folder.parent / "media").glob("arriving-*")) == []
    another = replace(caller, job_id=rows.add())
    send(rows, files, another, path="tiny")
    assert [file.filename for file in kept(rows, another)] == ["tiny"]


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "out/secret.txt", "away", "loop", "\0", "x" * 5000])
def test_no_path_leads_out_of_the_folder(rows: JobRows, files: MediaFolder, caller: ToolCaller, path: str) -> None:
    (caller.folder / "out").symlink_to("..")
    (caller.folder / "away").symlink_to("../secret.txt")
    (caller.folder / "loop").symlink_to("loop")
    with pytest.raises(ToolFailure):
        send(rows, files, caller, path=path)
    assert kept(rows, caller) == []


@pytest.mark.parametrize("what", ["folder", "pipe", "empty", "missing"])
def test_what_is_no_file_to_be_sent_is_told(rows: JobRows, files: MediaFolder, caller: ToolCaller, what: str) -> None:
    (caller.folder / "folder").mkdir()
    os.mkfifo(caller.folder / "pipe")
    (caller.folder / "empty").touch()
    with pytest.raises(ToolFailure, match=r"not a file|nothing to send|cannot be sent"):
        send(rows, files, caller, path=what)
    assert kept(rows, caller) == []


def test_a_strange_name_is_shown_as_platforms_take_it(rows: JobRows, files: MediaFolder, caller: ToolCaller) -> None:
    for name in ("a\nb.txt", "x" * 200 + ".tar", "ümläut – plan.txt", ".\u200b.", "a\u202etxt.exe", ".env"):
        (caller.folder / name).write_bytes(name.encode())
        send(rows, files, caller, path=name)
    assert [file.filename for file in kept(rows, caller)] == [
        "ab.txt",
        "x" * 96 + ".tar",
        "ümläut – plan.txt",
        "file",
        "atxt.exe",
        ".env",
    ]


@pytest.mark.parametrize(
    "arguments", ["{}", '{"path": ""}', '{"path": "a", "caption": ""}', f'{{"path": "a", "caption": "{"x" * 1001}"}}']
)
def test_arguments_that_say_nothing_or_too_much_are_refused(files: MediaFolder, arguments: str) -> None:
    with pytest.raises(ToolFailure):
        parse_arguments(SendFile(files).spec.name, SendFile(files).spec.parameters, arguments)
