"""Tools of other people, from packages that are really installed."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from maestro.tools.base import AsyncTool, ToolCaller
from maestro.tools.registry import installed_tools

MODULE = """
from maestro.tools.base import tool_spec

class Dice:
    idempotent = False
    read_only = True
    def __init__(self, name="roll_dice"):
        self.spec = tool_spec(name, "Roll a die.", {})
    async def run(self, arguments, caller):
        return "4"

def several():
    return [Dice("roll_two"), Dice("calculate"), Dice("roll_dice")]

class Broken:
    def __init__(self):
        raise RuntimeError("cannot be made")

class NoTool:
    spec = Dice().spec
"""
ENTRIES = """
[maestro.tools]
a_dice = extra_tools:Dice
b_several = extra_tools:several
c_broken = extra_tools:Broken
d_missing = extra_tools:nowhere
e_gone = no_such_module:tool
f_none = extra_tools:NoTool
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a tiny distribution where Python looks for modules."""
    (tmp_path / "extra_tools.py").write_text(MODULE)
    info = tmp_path / "extra_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_installed")
async def test_they_are_found_and_work() -> None:
    with capture_logs():
        tools = installed_tools(taken=["calculate"])
    assert [tool.spec.name for tool in tools] == ["roll_dice", "roll_two"]
    assert isinstance(tools[0], AsyncTool)
    assert await tools[0].run({}, ToolCaller("job", 1, 1, Path())) == "4"


@pytest.mark.usefixtures("_installed")
def test_what_is_broken_or_taken_is_reported_and_left_out() -> None:
    with capture_logs() as logs:
        installed_tools(taken=["calculate"])
    taken = [entry["tool"] for entry in logs if "taken" in entry["event"]]
    broken = {entry["entry"]: entry["error"] for entry in logs if "loaded" in entry["event"]}
    assert taken == ["calculate", "roll_dice"]
    assert set(broken) == {"extra_tools:Broken", "extra_tools:nowhere", "extra_tools:NoTool", "no_such_module:tool"}
    assert "NoTool is no tool" in broken["extra_tools:NoTool"]


def test_without_any_there_are_none() -> None:
    assert installed_tools(taken=[]) == []
