"""``maestro version``: prints the release."""

import json

import typer

from maestro.cli.framework.options import Json
from maestro.domain.release import release

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def version(as_json: Json = False) -> None:
    """Show the version."""
    typer.echo(json.dumps({"version": release()}) if as_json else f"maestro {release()}")


def show_version(is_given: bool) -> None:
    """Print the version and end, if the option is given."""
    if is_given:
        version()
        raise typer.Exit
