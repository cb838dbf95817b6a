"""Files in the conversation's folder, and nowhere else."""

import os
from pathlib import Path

import pytest

from maestro.tools.base import Arguments, AsyncTool, ToolCaller, ToolFailure
from maestro.tools.files import ListFiles, ReadFile, WriteFile

OUTSIDE = ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "out/secret.txt", "away", "loop", "\0", "x" * 5000]


@pytest.fixture
def caller(tmp_path: Path) -> ToolCaller:
    (tmp_path / "secret.txt").write_text("secret")
    return ToolCaller("job", 1, 1, tmp_path / "conversation")


async def use(tool: AsyncTool, caller: ToolCaller, arguments: Arguments) -> str:
    return str(await tool.run(arguments, caller))


async def test_what_is_written_can_be_read_and_is_listed(caller: ToolCaller) -> None:
    assert await use(ListFiles(), caller, {}) == "There are no files."
    await use(WriteFile(), caller, {"path": "notes/today.txt", "content": "größe\r\n"})
    await use(WriteFile(), caller, {"path": "a.txt", "content": ""})
    assert await use(ReadFile(), caller, {"path": "notes/today.txt"}) == "größe\r\n"
    assert await use(ListFiles(), caller, {}) == "a.txt (0)\nnotes/today.txt (9)"
    assert await use(ListFiles(), caller, {"path": "notes"}) == "notes/today.txt (9)"


async def test_writing_replaces_the_whole_file(caller: ToolCaller) -> None:
    for content in ("a long text", "short"):
        await use(WriteFile(), caller, {"path": "a.txt", "content": content})
    assert [file.name for file in caller.folder.iterdir()] == ["a.txt"]
    assert (caller.folder / "a.txt").read_text() == "short"


@pytest.mark.parametrize("path", OUTSIDE)
async def test_no_path_leads_out_of_the_folder(caller: ToolCaller, path: str) -> None:
    caller.folder.mkdir()
    (caller.folder / "out").symlink_to("..")
    (caller.folder / "away").symlink_to("../secret.txt")
    (caller.folder / "loop").symlink_to("loop")
    with pytest.raises(ToolFailure):
        await use(ReadFile(), caller, {"path": path})
    with pytest.raises(ToolFailure):
        await use(WriteFile(), caller, {"path": path, "content": "overwritten"})
    assert (caller.folder.parent / "secret.txt").read_text() == "secret"


async def test_listing_does_not_follow_links(caller: ToolCaller) -> None:
    caller.folder.mkdir()
    (caller.folder / "out").symlink_to("..")
    assert "secret" not in await use(ListFiles(), caller, {})
    with pytest.raises(ToolFailure, match="out of your folder"):
        await use(ListFiles(), caller, {"path": "out"})


async def test_a_long_file_comes_in_pieces(caller: ToolCaller) -> None:
    await use(WriteFile(), caller, {"path": "long.txt", "content": "a" * 20_000 + "b" * 5})
    first = await use(ReadFile(), caller, {"path": "long.txt"})
    assert first.startswith("a" * 20_000 + "\n[... 5 more")
    assert await use(ReadFile(), caller, {"path": "long.txt", "offset": 20_000}) == "bbbbb"
    with pytest.raises(ToolFailure, match="only 20,005 characters"):
        await use(ReadFile(), caller, {"path": "long.txt", "offset": 20_005})


async def test_what_is_no_text_file_is_a_failure_at_once(caller: ToolCaller) -> None:
    caller.folder.mkdir()
    os.mkfifo(caller.folder / "pipe")
    (caller.folder / "binary").write_bytes(b"\0\1\2")
    (caller.folder / "folder").mkdir()
    for path in ("pipe", "binary", "folder", "missing"):
        with pytest.raises(ToolFailure):
            await use(ReadFile(), caller, {"path": path})
    for path in ("folder", ".", "binary/inside"):
        with pytest.raises(ToolFailure):
            await use(WriteFile(), caller, {"path": path, "content": "x"})
    for path in ("binary", "missing"):
        with pytest.raises(ToolFailure):
            await use(ListFiles(), caller, {"path": path})


async def test_a_long_list_ends_with_a_mark(caller: ToolCaller) -> None:
    caller.folder.mkdir()
    for number in range(205):
        (caller.folder / f"{number:03}").touch()
    lines = (await use(ListFiles(), caller, {})).splitlines()
    assert (len(lines), lines[0], lines[-1]) == (201, "000 (0)", "[there are more; only 200 are listed]")
