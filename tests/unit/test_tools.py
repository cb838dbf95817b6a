"""Which tools a configuration leads to, and which names in it lead nowhere."""

import pytest
from structlog.testing import capture_logs

from maestro.bootstrap.tools import build_tools, unknown_tools
from maestro.domain.settings.entries import AgentSettings
from maestro.domain.settings.jobs import DEFAULT_TOOLS, McpServerSettings, ToolSettings
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from tests.support.tool_agents import agent_with

FILES = ("read_file", "write_file", "list_files", "send_file")


def there(settings: Settings, *names: str) -> list[str]:
    return [spec.name for spec in build_tools(LiveSettings.from_fixed(settings)).list_tools(agent_with(names or None))]


def test_without_a_configuration_there_are_the_default_tools() -> None:
    with capture_logs() as logs:
        assert there(Settings()) == sorted(DEFAULT_TOOLS)
    assert logs == []


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (ToolSettings(), []),
        (ToolSettings(files=True), ["list_files", "read_file", "send_file", "write_file"]),
        (ToolSettings(shell=True), ["run_shell"]),
    ],
)
def test_files_and_shell_are_there_when_they_are_switched_on(tools: ToolSettings, names: list[str]) -> None:
    assert there(Settings(tools=tools), *FILES, "run_shell") == names


def test_every_tool_says_truly_whether_a_repeat_does_harm() -> None:
    settings = Settings(tools=ToolSettings(files=True, shell=True))
    everything = [*DEFAULT_TOOLS, *FILES, "run_shell"]
    found = [
        build_tools(LiveSettings.from_fixed(settings)).find_tool(name, agent_with(everything)) for name in everything
    ]
    assert {tool.spec.name for tool in found if not tool.idempotent} == {"run_shell"}
    changing = {"ask_question", "write_file", "send_file", "run_shell"}
    assert {tool.spec.name for tool in found if not tool.read_only} == changing


def test_every_description_and_argument_is_explained_to_the_model() -> None:
    settings = Settings(tools=ToolSettings(files=True, shell=True))
    for spec in build_tools(LiveSettings.from_fixed(settings)).list_tools(
        agent_with([*DEFAULT_TOOLS, *FILES, "run_shell"])
    ):
        assert len(spec.description) > 60
        lists = spec.parameters.count('"items"')
        assert spec.parameters.count('"description"') == spec.parameters.count('"type"') - 1 - lists


def test_names_that_nobody_has_are_told_with_the_fix() -> None:
    settings = Settings(
        tools=ToolSettings(
            default=("calculate", "calculator", "github_search", "gitlab_search"),
            approval=("run_shell",),
            mcp=(McpServerSettings(name="github", url="http://127.0.0.1:9/mcp"),),
        ),
        agents=(AgentSettings(slug="ada", tools=("read_file",)), AgentSettings(slug="bob")),
    )
    assert dict(unknown_tools(settings, {"calculate"})) == {
        "calculator": "correct the name in tools.default, tools.approval or an agent's tools",
        "gitlab_search": "correct the name in tools.default, tools.approval or an agent's tools",
        "read_file": "set tools.files to true, or take the name out",
        "run_shell": "set tools.shell to true, or take the name out",
    }
    with capture_logs() as logs:
        build_tools(LiveSettings.from_fixed(settings))
    assert sorted(entry["tool"] for entry in logs) == ["calculator", "gitlab_search", "read_file", "run_shell"]


def test_tools_of_a_server_that_is_not_connected_yet_are_left_out() -> None:
    server = McpServerSettings(name="github", command="no-such-program")
    settings = Settings(tools=ToolSettings(default=("calculate", "github_search"), mcp=(server,)))
    assert there(settings) == ["calculate"]
