"""The tool ``get_time``: the current time."""

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

from maestro.tools.base import Arguments, ToolCaller, ToolFailure, tool_spec


class GetTime:
    """Tells the time in UTC, and in a time zone."""

    spec = tool_spec(
        "get_time",
        "Return the current date and time in UTC and, if you name a time zone, there too, with the day of the week. "
        "You do not know the time otherwise.",
        {
            "timezone": {
                "type": "string",
                "description": "an IANA time zone, such as Europe/Berlin or America/New_York; leave it out for UTC",
            }
        },
    )
    idempotent = True
    read_only = True

    def __init__(self, clock: Callable[[], datetime]) -> None:
        """``clock`` returns the time with a time zone."""
        self._clock = clock

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:  # noqa: ARG002 - required by the interface
        """Return the time to the second."""
        now = self._clock()
        lines = [f"UTC: {_text(now.astimezone(ZoneInfo('UTC')))}"]
        name = arguments.get("timezone", "")
        if name:
            lines.append(f"{name}: {_text(now.astimezone(_zone(name)))}")
        return "\n".join(lines)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ToolFailure(
            f"There is no time zone {name[:64]!r}. Use an IANA name with a city, such as Europe/Berlin."
        ) from None


def _text(moment: datetime) -> str:
    return f"{moment.isoformat(timespec='seconds')} ({moment:%A})"
