"""What the pages mention in their text and in blocks that no test runs: commands, operations, settings and metrics.

A command is held against the command line itself, the others against the generated pages of the reference.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from typer.main import get_command

from maestro.cli.main import app, load_command
from maestro.settings.keys import KEYS
from tests.documentation.blocks import PAGES, ROOT, Block

ENDS = "();<>|&\n"
SECTIONS = frozenset(path.partition(".")[0] for path in KEYS)
OMISSIONS = ("...", "…")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
DASHBOARD = "http://localhost:8080"
NO_SETTINGS = frozenset(
    {"chat.post", "chat.getNew", "connectors.base", "connectors.contract", "media.py"}
    | {"retention.done", "temporal.db", "temporal.example.org"}
)
"""Names of tools, modules, files, a line of the log and a host, which look like keys of settings."""
LEFT_OUT = ("docs/configuration.md", "docs/reference/", "docs/adr/")
"""Pages that are generated, and records, which also speak of what was replaced since."""

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_OPERATION = re.compile(rf"({'|'.join(METHODS)}) (/api/[^\s?]*|/(?:hooks|healthz|readyz|metrics)[^\s?]*)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_KEY = re.compile(r"[a-z]+(?:\.[a-z][A-Za-z]*)+")
_METRIC = re.compile(r"(maestro_[a-z_]+)(?:\{.*\})?")
_ADDRESS = re.compile(rf"{DASHBOARD}([\w/]*)")
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_PATH = re.compile(r"(?<![\w/.~$])(?!deploy/secrets/)(?:deploy|examples|tests|scripts)/[\w./-]*\w")


def texts() -> Mapping[str, str]:
    """Return the text of each page by hand that describes the present, without its blocks."""
    pages = [page for page in PAGES if not page.startswith(LEFT_OUT)]
    return {page: _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")) for page in pages}


def mentioned(text: str) -> Iterator[str]:
    """Yield what stands as code in a text."""
    return (" ".join(found.split()) for found in _CODE.findall(text))


# Commands


def command_lines(text: str) -> Iterator[Sequence[str]]:
    """Yield the words of each command in a block of commands, without variables that are set before it."""
    lexer = shlex.shlex(_COMMENT.sub("", text.replace("\\\n", " ")), posix=True, punctuation_chars=ENDS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if not set(word) <= set(ENDS):
            words += [word] if words or not _ASSIGNMENT.match(word) else []
        elif words:
            yield words
            words = []


def wrong_in_command(words: Sequence[str]) -> str | None:
    """Return what the command line of ``maestro`` does not know in these words; arguments may be left out."""
    command: Any = get_command(app)
    options, arguments, named = _options(command), 0, False
    rest = iter([word for word in words[1:] if word not in OMISSIONS])
    for word in rest:
        if word == "--":
            arguments += len(list(rest))
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            if name not in options:
                return f"no option {name}"
            if not (options[name].is_flag or value):
                next(rest, None)
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return f"no command {word}"
            command, named = command.commands[word] if named else load_command(word), True
            options = {**options, **_options(command)}
        else:
            arguments += 1
    return f"{arguments} arguments" if arguments > _most_arguments(command) else None


def _options(command: Any) -> Mapping[str, Any]:
    found = [each for each in command.params if each.param_type_name == "option"]
    return {name: each for each in found for name in (*each.opts, *each.secondary_opts, "--help")}


def _most_arguments(command: Any) -> float:
    numbers = [each.nargs for each in command.params if each.param_type_name == "argument"]
    return float("inf") if -1 in numbers else sum(numbers)


def wrong_in_block(block: Block) -> Iterator[str]:
    """Yield what cannot work in a block that no test runs: a command, a target of make, or a file that is not there."""
    for words in command_lines(block.text):
        if words[0] == "maestro" and (wrong := wrong_in_command(words)):
            yield wrong
        if words[0] == "make":
            yield from (f"no target {word}" for word in words[1:] if "=" not in word and word not in make_targets())
    yield from (f"no file {path}" for path in _PATH.findall(block.text + block.exempt) if not (ROOT / path).exists())


@cache
def make_targets() -> frozenset[str]:
    """Return the targets of the Makefile."""
    return frozenset(_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))


# The reference


@cache
def operations() -> frozenset[str]:
    """Return the operations of the page about REST, with a star for each parameter of a path."""
    return frozenset(map(_shape, _code_in_reference("rest")))


def unknown_operations(text: str) -> Iterator[str]:
    """Yield the operations that a text mentions and the API does not have."""
    found = (match for code in mentioned(text) if (match := _OPERATION.match(code)))
    return (match[0] for match in found if not _is_operation(match[0]))


def _is_operation(mention: str) -> bool:
    parts = _shape(mention).split("/")
    return any(
        len(parts) == len(known) and all(own in (part, "*") for part, own in zip(parts, known, strict=True))
        for known in (one.split("/") for one in operations())
    )


def _shape(operation: str) -> str:
    return re.sub(r"\{[^}]*\}", "*", operation)


def unknown_settings(text: str) -> Iterator[str]:
    """Yield what a text mentions as a key of the settings and is none."""
    found = (code for code in mentioned(text) if _KEY.fullmatch(code) and code.partition(".")[0] in SECTIONS)
    return (key for key in found if key not in NO_SETTINGS and not _is_key(key))


def _is_key(key: str) -> bool:
    return any(f"{path}.".replace("[]", "").startswith(f"{key}.") for path in KEYS)


def unknown_metrics(text: str) -> Iterator[str]:
    """Yield the metrics that a text mentions and the page about metrics does not have."""
    found = (match[1] for code in mentioned(text) if (match := _METRIC.fullmatch(code)))
    return (name for name in found if name not in metrics())


@cache
def metrics() -> frozenset[str]:
    """Return the metrics of the page about them."""
    return frozenset(_code_in_reference("metrics"))


def _code_in_reference(page: str) -> Iterable[str]:
    text = (ROOT / f"docs/reference/{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def dashboard_addresses() -> Mapping[str, str]:
    """Return the addresses of the dashboard that texts mention, each with a page that does."""
    return {path or "/": page for page, text in texts().items() for path in _ADDRESS.findall(text)}
