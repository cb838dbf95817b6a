"""``maestro version``: which release this is."""

from importlib.metadata import version as installed

import typer

DISTRIBUTION = "maestro-agents"

app = typer.Typer(rich_markup_mode=None)


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"maestro {installed(DISTRIBUTION)}")


def show_version(wanted: bool) -> None:
    """Show the version and end, when the option says so."""
    if wanted:
        version()
        raise typer.Exit
