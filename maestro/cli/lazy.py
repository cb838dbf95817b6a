"""Commands that are imported only when they are run."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from maestro.importing import collector_off

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("processes.init", "Write a first configuration, and prepare a Temporal cluster."),
    "doctor": ("processes.doctor", "Check everything, and say how to mend what is broken."),
    "up": ("processes.up", "Run everything: Temporal, worker, connectors, API and dashboard."),
    "worker": ("processes.worker", "Run workflows and model calls, beside a Temporal server of your own."),
    "api": ("processes.api", "Run the dashboard and the API, beside a Temporal server of your own."),
    "connect": ("processes.connect", "Run connectors, beside a Temporal server of your own."),
    "chat": ("chat.command", "Talk to an agent from here."),
    "jobs": ("jobs.commands", "List, show, replay and cancel jobs."),
    "questions": ("questions", "List and answer the questions of agents."),
    "agents": ("agents", "List, show, make, change and archive agents."),
    "clients": ("clients", "List, add, change and remove clients."),
    "connectors": ("connectors", "List, show, add, change, enable, disable and remove connectors of platforms."),
    "conversations": ("conversations", "List, show, search and delete conversations."),
    "memory": ("memory", "Show, search and mend what agents remember."),
    "accounts": ("accounts", "List, add, enable, disable and remove accounts at providers of models."),
    "schedules": ("schedules", "List, show, add, change, run and remove what agents do by the clock."),
    "webhooks": ("webhooks", "List, show, add, change, try and remove what programs outside may send."),
    "skills": ("skills", "List, show, test, add, enable, disable and remove skills."),
    "audit": ("audit", "Show the changes by operators: action, author, time and origin."),
    "usage": ("usage", "Show what model calls took and cost."),
    "settings": ("settings", "List settings, and change some of them while Maestro runs."),
    "session": ("session", "Show, begin and end the session of #maestro, the chat of the agents."),
    "owner": ("people:owners", "Add, list and remove owners."),
    "pairings": ("people:pairings", "Approve users who asked for access to direct messages, and invite others."),
    "people": ("people", "List and remove users who got access by a pairing."),
    "migrate": ("processes.migrate", "Create the database, or bring it up to this release."),
    "version": ("version", "Show the version."),
}
"""Each command with its module, and its line in the help; the module holds it as ``app`` or by the name after ``:``."""

COMPLETION = ("install_completion", "show_completion")


class LazyGroup(TyperGroup):
    """A group of commands that imports a command only to run it, or to complete its arguments.

    ``maestro up`` imports Temporal's SDK, an HTTP server and the database, which takes more than a second; help and a
    mistyped command need none of that. An import inside each command would hide the same thing in many places.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, help_line) in COMMANDS.items():
            self.add_command(TyperCommand(name=name, callback=None, help=help_line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder by the imported command."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else command, rest


def load(name: str) -> Any:
    """Return the command of this name."""
    path, _, attribute = COMMANDS[name][0].partition(":")
    with collector_off():
        command = get_command(getattr(import_module(f"maestro.cli.{path}"), attribute or "app"))
    # Typer adds the options for shell completion to every application; only the main command keeps them.
    command.params = [param for param in command.params if param.name not in COMPLETION]
    return command
