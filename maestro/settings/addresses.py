"""The addresses that the settings describe (Temporal, its Web UI, the dashboard), and the connection limits."""

from maestro.domain.network import DEFAULT_PORTS, WILDCARDS, TrustedProxies, parse_origin
from maestro.serving import ConnectionLimits
from maestro.settings import Settings
from temporal.endpoint import Endpoint, Tls


def temporal_endpoint(settings: Settings) -> Endpoint:
    """Return the address of Temporal: the configured one, or that of the embedded server.

    Raises ``ConfigurationError`` for an invalid certificate or key.
    """
    temporal = settings.temporal
    keys = temporal.codec.key_bytes
    if temporal.embedded:
        return Endpoint(f"127.0.0.1:{temporal.port}", temporal.namespace, codec_keys=keys, embedded=True)
    tls = Tls(temporal.tls_ca, temporal.tls_cert, temporal.tls_key.get_secret_value(), temporal.tls_server_name)
    encrypted = tls if temporal.tls else None
    return Endpoint(temporal.address, temporal.namespace, encrypted, temporal.api_key.get_secret_value(), keys)


def temporal_ui_url(settings: Settings) -> str:
    """Return the address of the Temporal Web UI, empty when none is configured."""
    temporal = settings.temporal
    return f"http://localhost:{temporal.ui_port}" if temporal.embedded else temporal.ui_url


def temporal_ui_origins(settings: Settings) -> frozenset[str]:
    """Return the web origins (scheme, host and port) from which browsers load the Temporal Web UI."""
    if settings.temporal.embedded:
        return frozenset(f"http://{host}:{settings.temporal.ui_port}" for host in ("localhost", "127.0.0.1"))
    scheme, name, port = parse_origin(settings.temporal.ui_url)
    if not name:
        return frozenset()
    host = f"[{name}]" if ":" in name else name
    return frozenset({f"{scheme}://{host}" + ("" if port == DEFAULT_PORTS.get(scheme) else f":{port}")})


def dashboard_url(settings: Settings) -> str:
    """Return the address of the dashboard for browsers, empty without a dashboard."""
    webui = settings.webui
    if not webui.enabled:
        return ""
    host = f"[{webui.host}]" if ":" in webui.host else webui.host
    local = f"http://{'localhost' if webui.host in WILDCARDS else host}:{webui.port}"
    return webui.public_url.rstrip("/") or local


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits on connections, which apply to each port."""
    server, proxies = settings.server, TrustedProxies(settings.webui.trusted_proxies)
    return ConnectionLimits(server.max_connections, server.max_connections_per_address, server.request_seconds, proxies)


def address_lines(settings: Settings) -> list[str]:
    """Return a line with the address of each service, for operators."""
    lines = []
    if settings.webui.enabled:
        lines.append(f"  Chat and dashboard   {dashboard_url(settings)}")
    if settings.web.enabled:
        lines.append(f"  Web connector        ws://{settings.web.host}:{settings.web.port}")
    if settings.temporal.embedded:
        lines.append(f"  Temporal Web UI      http://localhost:{settings.temporal.ui_port}")
    else:
        lines.append(f"  Temporal             {settings.temporal.address}, namespace {settings.temporal.namespace}")
    lines.append(f"  Data folder          {settings.data_dir}")
    return lines


def dashboard_origins(settings: Settings) -> tuple[str, ...]:
    """Return the web origins (scheme, host and port) from which browsers load the dashboard."""
    webui = settings.webui
    named = (f"[{host}]" if ":" in host else host for host in (webui.host, *webui.allowed_hosts))
    hosts = dict.fromkeys(("localhost", "127.0.0.1", "[::1]", *named))
    return tuple(f"{scheme}://{host}:{webui.port}" for host in hosts for scheme in ("http", "https"))
