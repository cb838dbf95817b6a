"""Connectors as a person reads them."""

from collections.abc import Iterator, Sequence

from maestro.cli.pages import table_page
from maestro.cli.table import lines, plain
from maestro.domain.bots.views import ConnectorView, DisabledChannelView, SecretView

NOTHING = "There are no connectors. Add one with `maestro connectors add PLATFORM`."
ALL_OPEN = "Every channel can be sent to."
COLUMNS = ("connector", "state", "agent", "last event", "lag", "from", "last error")
CLOSED = ("connector", "channel", "since", "reason")
TIME = "%Y-%m-%d %H:%M"


def listing(connectors: Sequence[ConnectorView]) -> Iterator[str]:
    """Yield a table of connectors."""
    yield from table_page(COLUMNS, list(map(_row, connectors)), NOTHING)


def portrait(connector: ConnectorView) -> Iterator[str]:
    """Yield everything about a connector."""
    yield f"{connector.platform}/{connector.account}  {_state(connector)}"
    facts = (
        ("detail", connector.detail),
        ("agent", connector.agent),
        *((secret.name, _secret(secret)) for secret in connector.secrets),
        *((name, str(value)) for name, value in connector.options.items()),
        ("from", _origin(connector)),
        ("last event", f"{connector.last_event_at:{TIME}} UTC" if connector.last_event_at else ""),
        ("lag", _lag(connector)),
        ("last error", connector.last_error),
        ("at", f"{connector.last_error_at:{TIME}} UTC" if connector.last_error_at else ""),
    )
    yield from (f"  {name:<13} {plain(value)}" for name, value in facts if value)


def closed(channels: Sequence[DisabledChannelView]) -> Iterator[str]:
    """Yield a table of the channels to which nothing is sent."""
    if not channels:
        yield ALL_OPEN
        return
    yield from lines(
        CLOSED,
        [
            (f"{one.platform}/{one.account}", one.channel, f"{one.disabled_at:{TIME}}", plain(one.reason))
            for one in channels
        ],
    )


def _row(connector: ConnectorView) -> tuple[str, ...]:
    return (
        f"{connector.platform}/{connector.account}",
        _state(connector),
        connector.agent,
        f"{connector.last_event_at:{TIME}}" if connector.last_event_at else "",
        _lag(connector),
        _origin(connector),
        plain(connector.last_error),
    )


def _state(connector: ConnectorView) -> str:
    if not connector.enabled:
        return "disabled"
    return connector.state or "not connected yet"


def _lag(connector: ConnectorView) -> str:
    return "" if connector.lag_seconds is None else f"{connector.lag_seconds:.1f} s"


def _origin(connector: ConnectorView) -> str:
    return "configuration" if connector.configured else "added"


def _secret(secret: SecretView) -> str:
    return secret.reference or (f"...{secret.last4}" if secret.last4 else "set")
