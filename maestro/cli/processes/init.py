"""``maestro init``: writes a configuration from what is found here, and prepares a Temporal cluster."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import plain, write
from maestro.installation.initial import FileAction, InitPlan, InitRequest, plan_init, prepare_cluster, write_plan
from maestro.settings import read_environment

RETENTION_DAYS = 3

app = Commands()


@app.command()
def init(
    given: Given,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before writing.")] = False,
    force: Annotated[bool, "--force: Replace an existing file; the old file is kept."] = False,
    temporal_address: Annotated[
        str | None, "HOST:PORT: A Temporal server of your own, to be prepared and used."
    ] = None,
    namespace: Annotated[str | None, "NAME: The namespace on that server."] = None,
    retention_days: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=3650, help="Days a new namespace keeps the history of ended workflows."),
    ] = RETENTION_DAYS,
) -> None:
    """Write maestro.json from what is found here: keys in the environment (by name), a local Ollama, `claude`.

    With the address of a Temporal server, as an option, in MAESTRO_TEMPORAL_ADDRESS or in the file, its namespace and
    search attributes are made ready as well. Running it again changes nothing.
    """
    overrides = {"dataDir": given.data_dir, "temporal.address": temporal_address, "temporal.namespace": namespace}
    request = InitRequest(given.config, overrides, force, timedelta(days=retention_days))
    environment = read_environment()
    plan = plan_init(request, environment)
    if not (yes or given.as_json):
        _confirm_plan(plan)
    backup = write_plan(plan)
    if not given.as_json:
        _echo_lines(_outcome_lines(plan, backup))
    cluster = tuple(prepare_cluster(plan, request, environment)) if plan.address else ()
    if plan.address and not cluster:
        cluster = (f"Namespace and search attributes were there already at {plan.address}.",)
    start = "`maestro up` (or worker, api and connect)" if plan.address else "`maestro up`"
    lines = [*map(plain, cluster), f"Next: `maestro doctor` checks everything, {start} starts it."]
    accounts = [entry["name"] for entry in plan.discovery.accounts]
    result = {"file": str(plan.file), "action": plan.action, "backup": str(backup) if backup else None}
    write({**result, "accounts": accounts, "found": plan.discovery.sentences, "cluster": cluster}, lines, given.as_json)


def _confirm_plan(plan: InitPlan) -> None:
    """Show what was found, and ask for confirmation at a terminal; a script is not asked."""
    _echo_lines(f"Found: {sentence}." for sentence in plan.discovery.sentences)
    if not sys.stdin.isatty():
        return
    actions = [f"write {plan.file}"] if plan.action in (FileAction.WRITTEN, FileAction.REPLACED) else []
    actions += [f"prepare Temporal at {plan.address}"] if plan.address else []
    if actions:
        typer.confirm(f"{' and '.join(actions).capitalize()}?", default=True, abort=True)


def _outcome_lines(plan: InitPlan, backup: Path | None) -> Iterator[str]:
    if plan.action is FileAction.UNCHANGED:
        yield f"{plan.file} is already as it should be."
    elif plan.action is FileAction.KEPT:
        yield f"{plan.file} is there already and stays as it is (--force would replace it)."
    else:
        yield f"Wrote {plan.file}; only you can read it." + (f" The old one is {backup}." if backup else "")
    if plan.action is not FileAction.KEPT and not plan.discovery.accounts:
        yield (
            "No key, no Ollama and no login of `claude` was found: the demo model answers, on the web connector only. "
            "Set ANTHROPIC_API_KEY, or add an account to llm.accounts, to talk to a real one."
        )
    elif plan.action is not FileAction.KEPT and any("apiKey" in entry for entry in plan.discovery.accounts):
        yield "The file names the variables that hold the keys: keep them set wherever Maestro runs."


def _echo_lines(lines: Iterator[str]) -> None:
    for line in lines:
        typer.echo(plain(line))
