"""Where a page finds the web connector, which listens on a port of its own."""

from api.parts import ApiParts
from maestro.domain.hosts import host_name, parse_origin

SCHEMES = {"http": ("ws", "http"), "https": ("wss", "https")}
"""Under which schemes a page of the dashboard's own scheme opens sockets and sends uploads."""


def connector_origins(parts: ApiParts, scheme: str, host: str) -> tuple[str, ...]:
    """Return the connector's origin for sockets and the one for uploads; none when it does not run.

    ``scheme`` and ``host`` are those under which the browser sees the dashboard.
    """
    name, port = host_name(host), parts.web_port
    if parts.web_url:
        given, name, known = parse_origin(parts.web_url)
        scheme, port = ("https" if given in SCHEMES["https"] else "http"), known or port
    if not name or not port:
        return ()
    written = f"[{name}]" if ":" in name else name
    return tuple(f"{kind}://{written}:{port}" for kind in SCHEMES[scheme])
