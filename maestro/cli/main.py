"""The command ``maestro``: its help, its exit codes, and how it ends."""

import os
import re
import sys
import traceback
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from maestro.cli.framework.options import Config, DataDir, Debug, Given
from maestro.cli.lazy import LazyGroup
from maestro.cli.version import show_version
from maestro.domain.errors import MaestroError

FAILED = 1
WRONG_USAGE = 2
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""How Python keeps a byte that is not UTF-8; no store takes it."""

HELP = """Let people talk to AI agents on chat platforms and the web, and lose no message on the way.

Begin with `maestro up`. It needs nothing else: open the address it prints and say hello. Without an account at a
provider of models the built-in demo model answers; set ANTHROPIC_API_KEY, or write a maestro.json, to talk to a real
one.

\b
Examples:
  maestro up                                   run everything, until Ctrl-C
  maestro up --port 9000 --data-dir ~/maestro  on another port, with the data elsewhere
  maestro chat what can you do                 talk to an agent from here
  maestro jobs list --status failed            what went wrong
  maestro jobs replay ID --wait                try it again, and see how it ends

`maestro COMMAND --help` explains a command; --config, --data-dir and --debug may stand before it or after it.
"""

app = typer.Typer(cls=LazyGroup, help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def begin(
    ctx: typer.Context,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
    version: Annotated[  # noqa: ARG001 - the option's callback prints the version
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""
    ctx.ensure_object(Given).take(config, data_dir, debug)


def main() -> NoReturn:
    """Run the command line of this process and end with its exit code: 0 fine, 1 failed, 2 wrong usage."""
    leave(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; errors become one line, and a traceback only with ``--debug``."""
    given = Given()
    if any(_HALF_CHARACTER.search(argument) for argument in arguments):
        print("maestro: what was typed is not UTF-8; check the language settings of the terminal", file=sys.stderr)
        return WRONG_USAGE
    try:
        get_command(app).main(arguments, prog_name="maestro", obj=given)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except MaestroError as error:
        return _failed(str(error) or error.public, given)
    # The CLI prints every error as one line on stderr; this is the outermost frame.
    except Exception as error:  # noqa: BLE001 - see above
        reason = f"unexpected {type(error).__name__}: {error}" if str(error) else f"unexpected {type(error).__name__}"
        hint = "" if given.debug else " (run again with --debug for the traceback)"
        return _failed(" ".join(reason.split()) + hint, given)
    return 0


def leave(code: int) -> NoReturn:
    """End the process with this exit code.

    Where Temporal's SDK was used, without the interpreter's own clean-up: its native threads may still run then and
    abort the process (measured: a finished command ended with SIGABRT). Maestro has closed its own resources by now.
    """
    deliberately = "temporalio.bridge" in sys.modules
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader closed the pipe: Python's flush at exit would fail again and print a warning.
            code, deliberately = code or FAILED, True
    if deliberately:
        os._exit(code)
    sys.exit(code)


def _failed(message: str, given: Given) -> int:
    if given.debug:
        traceback.print_exc()
    print(f"maestro: {message}", file=sys.stderr)
    return FAILED
