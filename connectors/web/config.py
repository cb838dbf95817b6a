"""The configuration of the web connector, and the limits of the web protocol."""

from dataclasses import dataclass, field
from pathlib import Path

from maestro.domain.errors import ConfigurationError
from maestro.domain.settings.section import is_loopback
from maestro.serving import ConnectionLimits

PLATFORM = "web"
MAX_CHUNK = 32_000
"""The most code points in one chunk of an answer; the limit of a client's message is ``MAX_CONTENT_CHARS``."""
MAX_USER_NAME = 80
MAX_CLIENT_ID = 128
MAX_ATTACHMENTS = 10
MAX_BUTTONS = 25
MAX_FILE_BYTES = 100 * 1000**2
"""The largest file, in bytes, that an agent can send; the client gets an address from which to download it."""
DASHBOARD_CHANNEL = "dashboard-agent-"
"""The prefix of the channels in which operators chat with one agent in the dashboard (docs/decisions.md: routing)."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class WebConfig:
    """The configuration of the web connector; sizes in bytes, times in seconds, origins with scheme, host and port.

    ``local_owner`` is true when neither ``web.apiKey`` nor ``webui.password`` is set and the server is bound to
    loopback: the local user is then the owner (docs/decisions.md: web identity). ``allowed_hosts`` are names allowed in
    the Host header besides localhost and ``host``. ``upload_dir`` is the folder for uploads that are not stored yet,
    the system's temporary folder if None. ``password_digest`` changes with ``webui.password``, and ``owner_hours`` is
    the lifetime of a login.
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
                f"web.host is {self.host!r}, which other computers can reach: set web.apiKey, or bind to localhost."
            )
        if self.local_owner and self.api_key:
            raise ConfigurationError("The local user can be the owner only while web.apiKey is empty.")
