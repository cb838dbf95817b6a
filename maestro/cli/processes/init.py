"""``maestro init``: a configuration from what is found here, and a cluster made ready."""

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import plain, write
from maestro.domain.values import Value
from maestro.installation.initial import FileAction, InitPlan, InitRequest, plan_init, prepare_cluster, write_plan
from maestro.settings import read_environment

RETENTION_DAYS = 3

app = Commands()


class Initialised(Value):
    """What ``--json`` writes; ``accounts`` are the names in the file, ``cluster`` says what was done there."""

    file: str
    action: FileAction
    backup: str | None
    accounts: tuple[str, ...]
    found: tuple[str, ...]
    cluster: tuple[str, ...]


@app.command()
def init(
    given: Given,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before writing.")] = False,
    force: Annotated[bool, "--force: Replace a file that is there; the old one is kept."] = False,
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
    wish = InitRequest(given.config, overrides, force, timedelta(days=retention_days))
    environment = read_environment()
    decided = plan_init(wish, environment)
    if not (yes or given.as_json):
        _ask(decided)
    backup = write_plan(decided)
    if not given.as_json:
        _say(_outcome(decided, backup))
    cluster = tuple(prepare_cluster(decided, wish, environment)) if decided.address else ()
    if decided.address and not cluster:
        cluster = (f"Namespace and search attributes were there already at {decided.address}.",)
    write(_initialised(decided, backup, cluster), [*map(plain, cluster), *_next(decided)], given.as_json)


def _ask(decided: InitPlan) -> None:
    """Show what was found, and let a person at a terminal decide; a script has decided by running the command."""
    _say(f"Found: {sentence}." for sentence in decided.found.sentences)
    if not sys.stdin.isatty():
        return
    does = [f"write {decided.file}"] if decided.action in (FileAction.WRITTEN, FileAction.REPLACED) else []
    does += [f"prepare Temporal at {decided.address}"] if decided.address else []
    if does:
        typer.confirm(f"{' and '.join(does).capitalize()}?", default=True, abort=True)


def _outcome(decided: InitPlan, backup: Path | None) -> Iterator[str]:
    if decided.action is FileAction.UNCHANGED:
        yield f"{decided.file} is already as it should be."
    elif decided.action is FileAction.KEPT:
        yield f"{decided.file} is there already and stays as it is (--force would replace it)."
    else:
        yield f"Wrote {decided.file}; only you can read it." + (f" The old one is {backup}." if backup else "")
    if decided.action is not FileAction.KEPT and not decided.found.accounts:
        yield (
            "No key, no Ollama and no login of `claude` was found: the demo model answers, on the web connector only. "
            "Set ANTHROPIC_API_KEY, or add an account to llm.accounts, to talk to a real one."
        )
    elif decided.action is not FileAction.KEPT and any("apiKey" in entry for entry in decided.found.accounts):
        yield "The file names the variables that hold the keys: keep them set wherever Maestro runs."


def _next(decided: InitPlan) -> list[str]:
    start = "`maestro up` (or worker, api and connect)" if decided.address else "`maestro up`"
    return [f"Next: `maestro doctor` checks everything, {start} starts it."]


def _initialised(decided: InitPlan, backup: Path | None, cluster: Sequence[str]) -> Initialised:
    return Initialised(
        file=str(decided.file),
        action=decided.action,
        backup=str(backup) if backup else None,
        accounts=tuple(str(entry["name"]) for entry in decided.found.accounts),
        found=decided.found.sentences,
        cluster=tuple(cluster),
    )


def _say(lines: Iterator[str]) -> None:
    for line in lines:
        typer.echo(plain(line))
