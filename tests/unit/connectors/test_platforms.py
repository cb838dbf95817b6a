"""Platforms of other packages are found by their entry point, and asked for nothing before a bot of theirs runs."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from pydantic import SecretStr

import connectors.platforms
from connectors.options import Instance
from connectors.platforms import platform, platforms
from maestro.domain.errors import ConfigurationError
from maestro.settings import survey_settings
from tests.support.memory_context import MemoryContext

PACKAGE = """
from connectors.options import Options
from connectors.platforms import Platform


class PaperOptions(Options):
    size: str = "A4"


platform = Platform("paper", {"pen": "what it is written with"}, "paper_connector.connector:make", PaperOptions)
"""
CONNECTOR = """
import paper_library


class Paper:
    def __init__(self, instance, context):
        self.platform, self.account, self.context = "paper", instance.account, context
        self.size = instance.options.size


def make(instance, context):
    return Paper(instance, context)
"""


@pytest.fixture
def fresh_entry_points() -> Iterator[None]:
    """Empty the cache of entry points before and after a test."""
    connectors.platforms._entry_points_by_name.cache_clear()
    yield
    connectors.platforms._entry_points_by_name.cache_clear()


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_entry_points: None) -> Path:
    """Install a package that connects paper."""
    package, described = tmp_path / "paper_connector", tmp_path / "paper_connector-1.0.dist-info"
    package.mkdir()
    described.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "connector.py").write_text(CONNECTOR)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-connector\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[maestro.connectors]\npaper = paper_connector:platform\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("paper_connector", "paper_connector.connector", "paper_library"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_package_of_others_is_a_platform_like_ours(paper: Path) -> None:
    assert platforms() == ("discord", "paper", "slack", "telegram", "whatsapp")
    found = platform("paper")
    assert (found.secrets, found.options().model_dump(by_alias=True)["size"]) == (
        {"pen": "what it is written with"},
        "A4",
    )
    bots = [{"platform": "paper", "account": "desk", "secrets": {"pen": "blue"}, "options": {"size": "A3"}}]
    settings = survey_settings(None, {}, {"connectors.bots": bots}).settings
    [bot] = settings.connectors.enabled_bots()
    assert (bot.platform, bot.account, bot.options) == ("paper", "desk", {"size": "A3"})
    instance = Instance("desk", bot.secrets, found.options.model_validate(bot.options))
    with pytest.raises(ConfigurationError, match="connector paper cannot be loaded: No module named 'paper_library'"):
        found.connect(instance, MemoryContext())
    (paper / "paper_library.py").write_text("")
    connected = found.connect(instance, MemoryContext())
    assert (connected.platform, connected.account, getattr(connected, "size", "")) == ("paper", "desk", "A3")


def test_a_platform_that_nobody_connects_is_named_with_those_that_there_are() -> None:
    with pytest.raises(
        ConfigurationError,
        match="there is no connector for 'icq'; the installed ones are: discord, slack, telegram, whatsapp",
    ):
        platform("icq")


def test_the_entry_points_are_read_once(fresh_entry_points: None, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[str] = []

    def entry_points(group: str) -> metadata.EntryPoints:
        groups.append(group)
        return metadata.entry_points(group=group)

    monkeypatch.setattr(connectors.platforms, "entry_points", entry_points)
    assert [platform(name).name for name in platforms()] == ["discord", "slack", "telegram", "whatsapp"]
    assert groups == ["maestro.connectors"]


def test_the_first_of_two_packages_with_one_name_counts(
    fresh_entry_points: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [
        metadata.EntryPoint("paper", f"connectors.{name}.platform:platform", "maestro.connectors")
        for name in ("slack", "discord")
    ]
    monkeypatch.setattr(connectors.platforms, "entry_points", lambda group: both)
    assert platform("paper").name == "slack"


def test_something_else_under_the_entry_point_is_told(paper: Path) -> None:
    (paper / "paper_connector" / "__init__.py").write_text("platform = 1")
    with pytest.raises(ConfigurationError, match="the entry point paper"):
        platform("paper")


@pytest.mark.parametrize(
    ("name", "secrets", "missing"),
    [
        ("discord", {}, "token is missing"),
        ("slack", {"appToken": "xapp"}, "botToken is missing"),
        ("slack", {"botToken": "xoxb"}, "appToken is missing"),
        ("telegram", {}, "token is missing"),
        ("whatsapp", {"appSecret": "s", "verifyToken": "v"}, "accessToken is missing"),
        ("whatsapp", {"accessToken": "t", "verifyToken": "v"}, "appSecret is missing"),
        ("whatsapp", {"accessToken": "t", "appSecret": "s", "verifyToken": "v"}, "phoneNumberId is missing"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_imported(name: str, secrets: dict[str, str], missing: str) -> None:
    found = platform(name)
    instance = Instance("default", {key: SecretStr(text) for key, text in secrets.items()}, found.options())
    assert (found.complete(instance) or "").startswith(missing)


def test_a_process_without_bots_imports_no_library_of_a_platform() -> None:
    look = (
        "import sys, maestro.bootstrap.up, maestro.operations.connectors, connectors.platforms as p; "
        "[p.platform(name) for name in p.platforms()]; "
        "print([name for name in ('discord', 'slack_sdk', 'aiohttp') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
