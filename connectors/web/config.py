"""The configuration of the web connector, and the limits that it promises to clients."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from maestro.domain.errors import ConfigurationError
from maestro.serving import ConnectionLimits

PLATFORM = "web"
MAX_CHUNK = 32_000
"""The most code points in one chunk of an answer; messages of clients have the general limit."""
MAX_USER_NAME = 80
MAX_CLIENT_ID = 128
MAX_ATTACHMENTS = 10
MAX_BUTTONS = 25
MAX_FILE_BYTES = 100 * 1000**2
"""The largest file in bytes that is sent to a client, as an address to download it from."""
DASHBOARD_CHANNEL = "dashboard-agent-"
"""The prefix of channels to one agent, which only the operator may use (docs/decisions.md: routing)."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class WebConfig:
    """Structural settings of the web connector; sizes in bytes, times in seconds, origins with scheme, host and port.

    ``local_owner`` is true when neither ``web.apiKey`` nor ``webui.password`` is set and the bind is loopback: the user
    at this machine is then the owner (docs/decisions.md: web identity). ``allowed_hosts`` are further names in the Host
    header, beside localhost and ``host``. ``upload_dir`` is the folder for uploads that are not stored yet; the
    system's temporary folder if None. ``password_digest`` changes with ``webui.password``, and ``owner_hours`` is the
    lifetime of a login.
    """

    signing_key: bytes = field(repr=False)
    host: str = "localhost"
    port: int = 5070
    api_key: str = field(default="", repr=False)
    local_owner: bool = False
    password_digest: bytes = field(default=b"", repr=False)
    owner_hours: float = 12
    allowed_origins: tuple[str, ...] = ()
    dashboard_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_frame_bytes: int = 4 * MIB
    max_upload_bytes: int = 20 * MIB
    upload_dir: Path | None = None
    auth_timeout: float = 5.0
    typing_interval: float = 5.0
    queue_limit: int = 256
    connections: ConnectionLimits | None = None

    def __post_init__(self) -> None:
        """Reject settings that would give unknown users access; raises ``ConfigurationError``."""
        if len(self.signing_key) < 16:
            raise ConfigurationError("The web connector's signing key must be at least 16 bytes.")
        if not self.api_key and not is_loopback(self.host):
            raise ConfigurationError(
                f"web.host is {self.host!r}, which others can reach: set web.apiKey, or bind to localhost."
            )
        if self.local_owner and self.api_key:
            raise ConfigurationError("The local person is the owner only while web.apiKey is empty.")


def is_loopback(host: str) -> bool:
    """Tell whether a bind to ``host`` is loopback only; a name other than localhost counts as public."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
