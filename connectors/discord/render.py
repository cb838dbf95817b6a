"""Markdown as Discord shows it: what it does not know is written in another way that reads well."""

import re

from connectors.markdown import blocks

DEEP_HEADING = re.compile(r"[ \t]{0,3}#{4,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
IMAGE = re.compile(r"!(\[[^\]\n]*\]\([^)\s]+\))")


def render(text: str) -> str:
    """Return Markdown for Discord: tables become code, deep headings bold, images links; code stays as it is."""
    return "\n".join(line for block in blocks(text.split("\n"), _line) for line in block)


def _line(line: str) -> str:
    heading = DEEP_HEADING.match(line)
    return IMAGE.sub(r"\1", f"**{heading.group(1)}**" if heading else line)
