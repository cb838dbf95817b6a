"""What is known of an MCP server before it is asked."""

import re

from pydantic import SecretStr

from maestro.domain.settings.jobs import McpServerSettings
from maestro.tools.mcp_client import mask_secrets
from maestro.tools.registry import local_name


def test_a_tool_is_called_by_its_server_and_its_own_name() -> None:
    assert local_name("github", "search_issues") == "github_search_issues"


def test_what_providers_refuse_in_a_name_is_replaced() -> None:
    assert local_name("files", "read/file.now ü") == "files_read_file_now__"


def test_long_names_stay_within_bounds_and_apart() -> None:
    names = {local_name("server", "x" * 70 + end) for end in ("", "a", "b")}
    assert len(names) == 3
    assert all(re.fullmatch(r"server_x{48}_[0-9a-f]{8}", name) for name in names)
    assert local_name("server", "x" * 57) == "server_" + "x" * 57


def test_its_secrets_are_taken_out_of_texts() -> None:
    variables = {"KEY": SecretStr("sk-secret"), "DEBUG": SecretStr("1")}
    server = McpServerSettings(name="s", command="x", env=variables, headers={"A": SecretStr("Bearer t")})
    assert mask_secrets(server, "1 sk-secret and Bearer t") == "1 *** and ***"
    assert "secret" not in repr(server)
