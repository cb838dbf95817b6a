"""How many tokens a text takes: one estimator, used wherever a budget is kept.

The rule, per character of the UTF-8 form, rounded up:

========================================  ==================
ASCII letters, blanks and line breaks     1 token per 4
ASCII digits                              1 token per 2.2
ASCII punctuation                         0.6 each
everything else                           0.55 per byte: about 1 per Cyrillic letter, 1.6 per Chinese character
characters outside the basic plane        1 more each (emoji)
runs of 25 and more without a blank       0.45 more each (hashes, base64, long addresses)
========================================  ==================

It leans high: measured against two real tokenizers it gives 0.8 to 1.8 times the true count over prose, code, JSON,
base64 and a dozen languages, so a prompt that fits by this count fits. It reads 300 kB in a few milliseconds.
"""

import math
import re
import string
from collections.abc import Iterable
from functools import lru_cache

from maestro.domain.llm.prompts import LLMRequest, PromptMessage, ToolSpec

MESSAGE_OVERHEAD = 4
"""Tokens a provider adds around every message for its role and borders."""

IMAGE_TOKENS = 1_600
"""The most an image of ordinary size costs with the providers we know."""

_LEFT_OUT = "\n\n[{:,} characters of this message are left out here, because they do not fit]\n\n"

_DIGITS = string.digits.encode()
_PUNCTUATION = string.punctuation.encode()
_NOT_ASCII = bytes(range(0x80, 0x100))
_ASTRAL_LEADS = bytes(range(0xF0, 0xF8))
_DENSE_RUN = re.compile(rb"[A-Za-z0-9+/=_-]{25,}")
_DENSE = string.ascii_letters.encode() + _DIGITS + b"+/=_-"
_IF_DENSE = bytes.maketrans(_DENSE, b"x" * len(_DENSE))
_SHORTEST_DENSE = b"x" * 25


def estimate(text: str) -> int:
    """Estimate the tokens of a text; 0 for an empty one."""
    data = text.encode("utf-8", "surrogatepass")
    digits, punctuation = _count(data, _DIGITS), _count(data, _PUNCTUATION)
    other, astral = (0, 0) if text.isascii() else (_count(data, _NOT_ASCII), _count(data, _ASTRAL_LEADS))
    plain = len(data) - digits - punctuation - other
    dense = sum(map(len, _DENSE_RUN.findall(data))) if _SHORTEST_DENSE in data.translate(_IF_DENSE) else 0
    weight = plain / 4 + digits / 2.2 + punctuation * 0.6 + other * 0.55 + astral + dense * 0.45
    return math.ceil(weight)


def estimate_messages(messages: Iterable[PromptMessage]) -> int:
    """Estimate the tokens of a whole prompt, with the overhead per message, its images and the tools it asked for."""
    return sum(
        MESSAGE_OVERHEAD
        + estimate(message.content)
        + IMAGE_TOKENS * len(message.images)
        + sum(MESSAGE_OVERHEAD + estimate(call.name) + estimate(call.arguments) for call in message.tool_calls)
        for message in messages
    )


def estimate_input(request: LLMRequest) -> int:
    """Estimate the tokens that a provider reads: the prompt and what it is told of the tools."""
    return estimate_messages(request.messages) + estimate_tools(request.tools)


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """Estimate the tokens of what a model is told of its tools."""
    return sum(map(_estimate_tool, tools))


@lru_cache(maxsize=1_000)
def _estimate_tool(tool: ToolSpec) -> int:
    return MESSAGE_OVERHEAD + estimate(tool.name) + estimate(tool.description) + estimate(tool.parameters)


def cut(text: str, limit: int) -> str:
    """Return the longest beginning of a text that takes at most ``limit`` tokens; all of it if it fits."""
    if estimate(text) <= limit:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if estimate(text[:middle]) <= limit else (fits, middle)
    return text[:fits]


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Return the beginning and the end of a text that is too long, and how many characters were left out between them.

    It takes at most ``limit`` tokens, and more only where the mark between them does.
    """
    half = max(0, limit - estimate(_LEFT_OUT.format(len(text)))) // 2
    beginning, end = cut(text, half), cut(text[::-1], half)[::-1]
    left_out = len(text) - len(beginning) - len(end)
    return f"{beginning}{_LEFT_OUT.format(left_out)}{end}", left_out


def _count(data: bytes, members: bytes) -> int:
    """Count the bytes that belong to a class, at C speed."""
    return len(data) - len(data.translate(None, members))
