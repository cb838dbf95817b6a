"""The command ``maestro``: its help, its exit codes, and its subcommands, each imported only to run it."""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from maestro.cli.framework.options import Config, DataDir, Debug, Given, Json
from maestro.domain.errors import MaestroError
from maestro.domain.release import release
from maestro.importing import collector_off

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("installation:initial", "Write a first configuration, and prepare a Temporal cluster."),
    "doctor": ("installation:examination", "Check the installation, and say how to fix each fault."),
    "up": ("processes:up", "Run everything: Temporal, worker, connectors, API and dashboard."),
    "worker": ("processes:worker", "Run workflows and model calls, beside a Temporal server of your own."),
    "api": ("processes:api", "Run the dashboard and the API, beside a Temporal server of your own."),
    "connect": ("processes:connect", "Run connectors, beside a Temporal server of your own."),
    "chat": ("chat", "Talk to an agent from here."),
    "jobs": ("jobs", "List, show, replay and cancel jobs."),
    "questions": ("questions", "List and answer the questions of agents."),
    "agents": ("agents", "List, show, make, change and archive agents."),
    "clients": ("people:clients", "List, add, change and remove clients."),
    "connectors": ("connectors", "List, show, add, change, enable, disable and remove connectors of platforms."),
    "conversations": ("conversations", "List, show, search and delete conversations."),
    "memory": ("memory", "Show, search and correct what agents remember."),
    "accounts": ("accounts", "List, add, enable, disable and remove accounts at model providers."),
    "schedules": ("schedules", "List, show, add, change, run and remove heartbeats and crons of agents."),
    "webhooks": ("webhooks", "List, show, add, change, try and remove webhooks, at which other programs start jobs."),
    "skills": ("skills", "List, show, test, add, enable, disable and remove skills."),
    "audit": ("reports:audit_app", "Show the changes by operators: action, author, time and origin."),
    "usage": ("reports", "Show the usage and the cost of model calls."),
    "settings": ("settings", "List settings, and change some of them while Maestro runs."),
    "session": ("conversations:session_app", "Show, begin and end the session of #maestro, the chat of the agents."),
    "owner": ("people:owners", "Add, list and remove owners."),
    "pairings": ("people:pairings", "Approve requests for access to direct messages, and invite users."),
    "people": ("people", "List and remove users with access by a pairing."),
    "promote": ("promote", "Let new jobs begin with this release, while the one before finishes its own."),
    "migrate": ("installation:migration", "Create the database, or bring it up to this release."),
    "replay-check": ("replay_check", "Check that this release can continue the workflows of a running one."),
    "backup": ("backup:backup", "Write store, media and keys to one archive, beside a running Maestro."),
    "restore": ("backup:restore", "Restore a backup into an empty installation."),
    "fsck": ("backup:fsck", "Compare store, Temporal and media, and say how to fix each contradiction."),
    "version": ("main:version_app", "Show the version."),
}
"""Each command's module and help line; the name after ``:`` is the command's variable in the module, else ``app``."""


class LazyGroup(TyperGroup):
    """A group of commands that imports a command only to run it, or to complete its arguments.

    ``maestro up`` imports Temporal's SDK, an HTTP server and the database, which takes more than a second. The help,
    and the error for a mistyped command, need none of these imports.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, help_line) in COMMANDS.items():
            self.add_command(TyperCommand(name=name, callback=None, help=help_line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the chosen command, and return it in place of its placeholder."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else command, rest


def load_command(name: str) -> Any:
    """Import and return the command of this name."""
    path, _, attribute = COMMANDS[name][0].partition(":")
    with collector_off():
        return get_command(getattr(import_module(f"maestro.cli.{path}"), attribute or "app"))


FAILED = 1
WRONG_USAGE = 2

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

version_app = typer.Typer(rich_markup_mode=None, add_completion=False)
app = typer.Typer(cls=LazyGroup, help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@version_app.command()
def version(as_json: Json = False) -> None:
    """Show the version."""
    typer.echo(json.dumps({"version": release()}) if as_json else f"maestro {release()}")


def show_version(is_given: bool) -> None:
    """Print the version and exit if ``--version`` is given."""
    if is_given:
        version()
        raise typer.Exit


@app.callback()
def read_common_options(
    ctx: typer.Context,
    config: Config = None,
    data_dir: DataDir = None,
    debug: Debug = False,
    version: Annotated[  # noqa: ARG001 - the option's callback prints the version
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options before the name of the command, such as ``--config``."""
    ctx.ensure_object(Given).update(config, data_dir, debug)


def main() -> NoReturn:
    """Run the command line of this process and end with its exit code: 0 fine, 1 failed, 2 wrong usage."""
    exit_process(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; errors become one line, and a traceback only with ``--debug``."""
    given = Given()
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:  # Python represents bytes that are not UTF-8 by surrogates, which the store refuses
        print("maestro: what was typed is not UTF-8; check the language settings of the terminal", file=sys.stderr)
        return WRONG_USAGE
    try:
        get_command(app).main(arguments, prog_name="maestro", obj=given)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except Exception as error:  # noqa: BLE001 - every error has to become one line
        if given.debug:
            traceback.print_exc()
        if isinstance(error, MaestroError):
            message = str(error) or error.public
        else:
            reason = ": ".join(filter(None, (type(error).__name__, str(error))))
            hint = "" if given.debug else " (run again with --debug for the traceback)"
            message = " ".join(f"unexpected {reason}".split()) + hint
        print(f"maestro: {message}", file=sys.stderr)
        return FAILED
    return 0


def exit_process(code: int) -> NoReturn:
    """End the process with this exit code.

    If Temporal's SDK was used, the interpreter's clean-up is skipped, because native threads of the SDK could abort the
    process (measured: a finished command ended with SIGABRT). Maestro has closed its own resources by then.
    """
    skips_cleanup = "temporalio.bridge" in sys.modules
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader closed the pipe: Python's flush at exit would fail again and print a warning.
            code, skips_cleanup = code or FAILED, True
    if skips_cleanup:
        os._exit(code)
    sys.exit(code)
