"""``maestro init``, ``doctor`` and ``migrate``: the commands that prepare and examine an installation."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands, load_settings
from maestro.cli.framework.options import TEMPORAL_PORT, TEMPORAL_UI_PORT, WEB_PORT, WEBUI_PORT, Given
from maestro.cli.framework.output import plain_line, write_output
from maestro.diagnostics.doctor import diagnose_installation
from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.installation.initial import FileAction, InitPlan, InitRequest, plan_init, prepare_cluster, write_plan
from maestro.installation.storage import Migration, MigrationOutcome, accept_keys, migrate
from maestro.settings import read_environment

MARKS = {
    DiagnosisLevel.FINE: ("ok", typer.colors.GREEN),
    DiagnosisLevel.NOTE: ("note", typer.colors.YELLOW),
    DiagnosisLevel.BROKEN: ("BROKEN", typer.colors.RED),
}
WIDTH = max(len(mark) for mark, _ in MARKS.values())

initial, examination, migration = Commands(), Commands(), Commands()


@initial.command()
def init(
    given: Given,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before writing.")] = False,
    force: Annotated[bool, "--force: Replace an existing file; a copy of the old file stays."] = False,
    temporal_address: Annotated[
        str | None, "HOST:PORT: The Temporal server to prepare and use, if not embedded."
    ] = None,
    namespace: Annotated[str | None, "NAME: The namespace on your Temporal server."] = None,
    retention_days: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=3650, help="Days a new namespace keeps the history of ended workflows."),
    ] = 3,
) -> None:
    """Write maestro.json with the model accounts found here: keys in the environment, a local Ollama, `claude`.

    The file names the variables of keys and contains no key. If an option, MAESTRO_TEMPORAL_ADDRESS or the file names a
    Temporal server, missing search attributes and a missing namespace are created there. Running it again changes
    nothing.
    """
    overrides = {"dataDir": given.data_dir, "temporal.address": temporal_address, "temporal.namespace": namespace}
    request = InitRequest(given.config, overrides, force, timedelta(days=retention_days))
    environment = read_environment()
    plan = plan_init(request, environment)
    if not (yes or given.as_json):
        _confirm_plan(plan)
    backup = write_plan(plan)
    if not given.as_json:
        _echo_plain(_outcome_lines(plan, backup))
    cluster = tuple(prepare_cluster(plan, request, environment)) if plan.address else ()
    if plan.address and not cluster:
        cluster = (f"Namespace and search attributes were there already at {plan.address}.",)
    start = "`maestro up` (or worker, api and connect)" if plan.address else "`maestro up`"
    lines = [*map(plain_line, cluster), f"Next: `maestro doctor` checks everything, {start} starts it."]
    accounts = [entry["name"] for entry in plan.discovery.accounts]
    result = {"file": str(plan.file), "action": plan.action, "backup": str(backup) if backup else None}
    write_output(
        {**result, "accounts": accounts, "found": plan.discovery.sentences, "cluster": cluster}, lines, given.as_json
    )


def _confirm_plan(plan: InitPlan) -> None:
    """Show the accounts found, and ask the user to confirm the plan at a terminal; a script is not asked."""
    _echo_plain(f"Found: {sentence}." for sentence in plan.discovery.sentences)
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


def _echo_plain(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(plain_line(line))


@examination.command(ports=[WEBUI_PORT, WEB_PORT, TEMPORAL_PORT, TEMPORAL_UI_PORT])
def doctor(given: Given) -> None:
    """Check configuration, data folder, store, Temporal, accounts, connectors and ports; exit with 1 if one is broken.

    The command changes nothing, costs nothing, and may run beside a running Maestro. Give it the options with which you
    start Maestro.
    """
    environment = read_environment()
    checks = tuple(diagnose_installation(given.config, environment, {"dataDir": given.data_dir, **given.ports}))
    is_fine = all(check.verdict is not DiagnosisLevel.BROKEN for check in checks)
    findings = {"ok": is_fine, "checks": [check.model_dump(mode="json") for check in checks]}
    write_output(findings, _check_lines(checks, coloured=not environment.get("NO_COLOR")), given.as_json)
    raise typer.Exit(0 if is_fine else 1)


def _check_lines(checks: Sequence[Diagnosis], *, coloured: bool) -> Iterator[str]:
    """Yield a line for each check and a line for its fix; ``typer.echo`` removes colours outside of a terminal."""
    column = max(len(check.check) for check in checks)
    for check in checks:
        word, colour = MARKS[check.verdict]
        mark = typer.style(word.ljust(WIDTH), fg=colour, bold=check.verdict is DiagnosisLevel.BROKEN)
        yield f"{mark if coloured else word.ljust(WIDTH)}  {check.check.ljust(column)}  {plain_line(check.found)}"
        if check.fix:
            yield f"{'':{WIDTH}}  {'':{column}}  -> {plain_line(check.fix)}"
    count = sum(check.verdict is DiagnosisLevel.BROKEN for check in checks)
    yield ""
    yield f"{count} check{'' if count == 1 else 's'} found something broken." if count else "Nothing is broken."


@migration.command("migrate")
def migrate_store(
    given: Given, accept: Annotated[bool, "--accept-keys: Record the keys of this host as those of the store."] = False
) -> None:
    """Create the database or migrate it to this release, and write the configured agents into it.

    `maestro up` does this by itself. Run this command before separate worker, API and connector processes, as
    docker-compose.yml does. Processes of an older release may go on working: a migration that removes what they use
    refuses to run, and says so. A repeated run does no harm.
    """
    settings = load_settings(given, accounts=False).settings
    done = migrate(settings)
    if accept:
        accept_keys(settings)
    write_output(done, outcome_sentence(done), given.as_json)


def outcome_sentence(done: Migration) -> str:
    """Return a sentence that describes the outcome of a migration."""
    match done.outcome:
        case MigrationOutcome.CREATED:
            return f"Created the database {done.database} (schema {done.after})."
        case MigrationOutcome.UPGRADED:
            return f"Brought the database {done.database} from schema {done.before} to {done.after}."
        case MigrationOutcome.UNCHANGED:
            return f"The database {done.database} was up to date (schema {done.after})."
