"""Markdown as Discord shows it, and what a bot without a token is told."""

import pytest

from connectors.discord.connector import render
from connectors.options import Instance
from connectors.platforms import platform


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# One\n### Three\n**bold** [a](https://b.example)", "# One\n### Three\n**bold** [a](https://b.example)"),
        ("#### Four ####\n###### Six", "**Four**\n**Six**"),
        ("see ![a cat](https://b.example/cat.png)!", "see [a cat](https://b.example/cat.png)!"),
        ("a\n| x | y |\n|---|:-:|\n| 1 | 2 |\nb", "a\n```\n| x | y |\n|---|:-:|\n| 1 | 2 |\n```\nb"),
        (
            "```md\n#### kept\n| x |\n|---|\n![a](b)\n```\n#### not",
            "```md\n#### kept\n| x |\n|---|\n![a](b)\n```\n**not**",
        ),
        ("~~~~\n```\n#### kept\n~~~~", "~~~~\n```\n#### kept\n~~~~"),
        ("```\n#### never closed", "```\n#### never closed"),
        ("a | b\n- c", "a | b\n- c"),
        ("", ""),
    ],
)
def test_what_discord_does_not_know_reads_well(text: str, shown: str) -> None:
    assert render(text) == shown


def test_a_bot_without_a_token_is_told_where_to_get_one() -> None:
    found = platform("discord")
    problem = found.complete(Instance("default", {}, found.options()))
    assert problem is not None
    assert "developer portal" in problem
