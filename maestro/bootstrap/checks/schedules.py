"""Whether Temporal was told of every heartbeat and cron, and what Maestro itself has paused."""

from collections.abc import Iterator, Sequence

from maestro.bootstrap.checks.subject import broken, fine, note
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.schedules.schedule import Planned

CHECK = "schedules"
MOST_NAMED = 10


def schedules(planned: Sequence[Planned]) -> list[Diagnosis]:
    """Return what is to be said of what is planned; nothing where nothing is."""
    found = [*_refused(planned), *_given_up(planned)]
    waiting = sum(not one.followed and not one.follow_error for one in planned)
    if waiting:
        fix = "A running Maestro tells it within a second of reaching it."
        found.append(note(CHECK, f"Temporal was not told of {waiting} of {len(planned)} yet", fix))
    if not planned or found:
        return found
    return [fine(CHECK, f"{len(planned)} planned, and Temporal was told of all of them")]


def _refused(planned: Sequence[Planned]) -> Iterator[Diagnosis]:
    for one in [one for one in planned if one.follow_error][:MOST_NAMED]:
        fix = f"Correct it with `maestro schedules edit {one.ref}`, or remove it."
        yield broken(CHECK, f"Temporal could not be told of {one.ref} ({one.name}): {one.follow_error}", fix)


def _given_up(planned: Sequence[Planned]) -> Iterator[Diagnosis]:
    for one in [one for one in planned if one.paused_reason][:MOST_NAMED]:
        fix = f"See why in its jobs, then `maestro schedules resume {one.ref}`."
        yield note(CHECK, f"{one.ref} ({one.name}) is paused: {one.paused_reason}", fix)
