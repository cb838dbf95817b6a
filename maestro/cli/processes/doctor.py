"""``maestro doctor``: what works, what does not, and how to fix it."""

from collections.abc import Iterator, Sequence

import typer

from maestro.cli.framework.commands import Commands
from maestro.cli.framework.options import TEMPORAL_PORT, TEMPORAL_UI_PORT, WEB_PORT, WEBUI_PORT, Given
from maestro.cli.framework.output import plain, write
from maestro.diagnostics.doctor import examine
from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.domain.values import Value
from maestro.settings import read_environment

MARKS = {
    DiagnosisLevel.FINE: ("ok", typer.colors.GREEN),
    DiagnosisLevel.NOTE: ("note", typer.colors.YELLOW),
    DiagnosisLevel.BROKEN: ("BROKEN", typer.colors.RED),
}
WIDTH = max(len(mark) for mark, _ in MARKS.values())

app = Commands()


class Findings(Value):
    """The output of ``--json``; ``ok`` is false if a check found something broken."""

    ok: bool
    checks: tuple[Diagnosis, ...]


@app.command(ports=[WEBUI_PORT, WEB_PORT, TEMPORAL_PORT, TEMPORAL_UI_PORT])
def doctor(given: Given) -> None:
    """Check configuration, data folder, store, Temporal, accounts, connectors and ports; exit with 1 if one is broken.

    It changes nothing and pays for nothing, and may be run beside a running Maestro. Give it the options with which
    Maestro is started.
    """
    environment = read_environment()
    checks = tuple(examine(given.config, environment, {"dataDir": given.data_dir, **given.ports}))
    findings = Findings(ok=all(check.verdict is not DiagnosisLevel.BROKEN for check in checks), checks=checks)
    write(findings, _check_lines(checks, coloured=not environment.get("NO_COLOR")), given.as_json)
    raise typer.Exit(0 if findings.ok else 1)


def _check_lines(checks: Sequence[Diagnosis], *, coloured: bool) -> Iterator[str]:
    """Yield each check with its fix below; ``typer.echo`` removes the colours if the output is no terminal."""
    column = max(len(check.check) for check in checks)
    for check in checks:
        word, colour = MARKS[check.verdict]
        mark = typer.style(word.ljust(WIDTH), fg=colour, bold=check.verdict is DiagnosisLevel.BROKEN)
        yield f"{mark if coloured else word.ljust(WIDTH)}  {check.check.ljust(column)}  {plain(check.found)}"
        if check.fix:
            yield f"{'':{WIDTH}}  {'':{column}}  -> {plain(check.fix)}"
    count = sum(check.verdict is DiagnosisLevel.BROKEN for check in checks)
    yield ""
    yield f"{count} check{'' if count == 1 else 's'} found something broken." if count else "Nothing is broken."
