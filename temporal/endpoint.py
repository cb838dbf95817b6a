"""The address of Temporal, the identity to use there, and the protection of the connection."""

from dataclasses import dataclass, field

from temporalio.service import TLSConfig

from maestro.domain.errors import ConfigurationError


@dataclass(frozen=True)
class Tls:
    """Settings of an encrypted connection as PEM texts; for an empty text, this machine or the server decides.

    Raises ConfigurationError for a text that is not PEM of its kind, because the SDK would treat an invalid ``ca`` as
    empty.
    """

    ca: str = field(default="", repr=False)
    """The certificate authorities to trust; empty: those of this machine."""
    cert: str = field(default="", repr=False)
    """The client certificate, for a server that asks for one."""
    key: str = field(default="", repr=False)
    server_name: str = ""
    """The name in the server's certificate; empty: the host of the address."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for settings that can never work."""
        _check_pem(self.ca, "temporal.tlsCa", "CERTIFICATE")
        _check_pem(self.cert, "temporal.tlsCert", "CERTIFICATE")
        _check_pem(self.key, "temporal.tlsKey", "PRIVATE KEY")

    def config(self) -> TLSConfig:
        """Return the SDK's form of these settings."""
        return TLSConfig(
            server_root_ca_cert=self.ca.encode() or None,
            domain=self.server_name or None,
            client_cert=self.cert.encode() or None,
            client_private_key=self.key.encode() or None,
        )


@dataclass(frozen=True)
class Endpoint:
    """The address of Temporal, and the identity to use there; ``str`` of an endpoint shows no secret."""

    address: str
    namespace: str
    tls: Tls | None = None
    """The encryption; None for plain text."""
    api_key: str = field(default="", repr=False)
    embedded: bool = False
    """Whether the server is the embedded one, which ``maestro up`` starts."""

    @property
    def host(self) -> str:
        """The address without its port."""
        return self.address.rpartition(":")[0]


def _check_pem(text: str, setting: str, kind: str) -> None:
    if not text or f"{kind}-----" in text:
        return
    item = "a certificate" if kind == "CERTIFICATE" else "a private key"
    raise ConfigurationError(
        f"{setting} holds no {item.partition(' ')[2]} in PEM form (-----BEGIN ...{kind}-----): put {item} there, "
        f'best as "file:PATH".'
    )
