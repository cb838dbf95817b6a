"""``maestro migrate``: brings the store up to this release, before the processes that use it are started."""

import typer

from maestro.cli.framework.commands import Commands, load_settings
from maestro.cli.framework.options import Given
from maestro.installation.storage import Migration, MigrationOutcome, migrate

app = Commands()


@app.command("migrate")
def migrate_store(given: Given) -> None:
    """Create the database or bring it up to this release, and enter the configured agents.

    `maestro up` does this by itself. Where worker, API and connectors are separate processes, run it before them, as
    docker-compose.yml does. End the processes of an older release first; running it again does no harm.
    """
    done = migrate(load_settings(given, accounts=False).settings)
    typer.echo(done.model_dump_json() if given.as_json else outcome_sentence(done))


def outcome_sentence(done: Migration) -> str:
    """Return the sentence about what a migration did."""
    match done.outcome:
        case MigrationOutcome.CREATED:
            return f"Created the database {done.database} (schema {done.after})."
        case MigrationOutcome.UPGRADED:
            return f"Brought the database {done.database} from schema {done.before} to {done.after}."
        case MigrationOutcome.UNCHANGED:
            return f"The database {done.database} was up to date (schema {done.after})."
