"""Where a page finds the web connector, which listens on a port of its own."""

from api.parts import ApiParts
from maestro.domain.hosts import host_name

SCHEMES = {"http": ("ws", "http"), "https": ("wss", "https")}
"""Under which schemes a page of the dashboard's own scheme opens sockets and sends uploads."""


def connector_origins(parts: ApiParts, scheme: str, host: str) -> tuple[str, ...]:
    """Return the connector's origin for sockets and the one for uploads; none when it does not run.

    ``scheme`` and ``host`` are those under which the browser sees the dashboard.
    """
    name = host_name(host)
    if not name or not parts.web_port:
        return ()
    written = f"[{name}]" if ":" in name else name
    return tuple(f"{kind}://{written}:{parts.web_port}" for kind in SCHEMES[scheme])
