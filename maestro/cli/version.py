"""``maestro version``: which release this is."""

import typer

from maestro.domain.release import release

app = typer.Typer(rich_markup_mode=None)


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"maestro {release()}")


def show_version(wanted: bool) -> None:
    """Show the version and end, when the option says so."""
    if wanted:
        version()
        raise typer.Exit
