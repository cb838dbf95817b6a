"""What a replay would do, in words for a terminal."""

from collections.abc import Iterator

from maestro.cli.job_texts import cost
from maestro.cli.table import plain
from maestro.domain.jobs.preview import Effect, Preview


def foreseen(preview: Preview) -> Iterator[str]:
    """Tell what would be done, paid and repeated."""
    if not preview.possible:
        yield plain(f"{preview.mode} is not possible: {preview.problem}")
        return
    yield f"{preview.mode} would begin at: {preview.step}"
    if preview.kept:
        yield f"  keeps         {', '.join(preview.kept)}"
    yield f"  model calls   {_calls(preview)}"
    if preview.first_calls:
        before = cost(preview.first_cost_usd)
        yield f"  before        {preview.first_calls} answered, {before}"
    for effect in preview.effects:
        yield f"  {_when(effect):<13} {plain(effect.text)}{f' ({effect.count})' if effect.count > 1 else ''}"
    yield "Nothing was changed."


def _calls(preview: Preview) -> str:
    least = "at least " if preview.more else ""
    usd = "" if not preview.model_calls else f", about {cost(preview.cost_usd)}"
    return f"{least}{preview.model_calls}{usd}"


def _when(effect: Effect) -> str:
    return "stays" if effect.kept else "again" if effect.again else "happens"
