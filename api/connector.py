"""Where a page finds the web connector, which listens on a port of its own."""

from api.parts import ApiParts
from maestro.domain.hosts import host_name, parse_origin

SCHEMES = {"http": ("ws", "http"), "https": ("wss", "https")}
"""Under which schemes a page of the dashboard's own scheme opens sockets and sends uploads."""


def connector_origins(parts: ApiParts, scheme: str, host: str) -> tuple[str, ...]:
    """Return the connector's origin for sockets and the one for uploads; none when it does not run.

    ``scheme`` and ``host`` are those under which the browser sees the dashboard.
    """
    name, port = host_name(host), parts.web_port or None
    if parts.web_url:
        given, name, port = parse_origin(parts.web_url)
        scheme = "https" if given in SCHEMES["https"] else "http"
    elif not name or not port:
        return ()
    written = (f"[{name}]" if ":" in name else name) + (f":{port}" if port else "")
    return tuple(f"{kind}://{written}" for kind in SCHEMES[scheme])
