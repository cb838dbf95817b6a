"""The address and encryption of the connection to Temporal, and the reasons why Temporal cannot be used."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from temporalio.service import RPCError, TLSConfig

from maestro.domain.errors import ConfigurationError


@dataclass(frozen=True)
class Tls:
    """The TLS settings of the connection to Temporal, with certificates and key as PEM texts.

    Raises ConfigurationError for a text that is not PEM of its kind, because the SDK would treat an invalid ``ca`` as
    empty.
    """

    ca: str = field(default="", repr=False)
    """The certificate authorities to trust; if empty, those of this machine."""
    cert: str = field(default="", repr=False)
    """The client certificate, for a server that requires one."""
    key: str = field(default="", repr=False)
    server_name: str = ""
    """The name in the server's certificate; if empty, the host of the address."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a text that is not PEM of its kind."""
        _check_pem(self.ca, "temporal.tlsCa", "CERTIFICATE")
        _check_pem(self.cert, "temporal.tlsCert", "CERTIFICATE")
        _check_pem(self.key, "temporal.tlsKey", "PRIVATE KEY")

    def build_config(self) -> TLSConfig:
        """Return these settings as the SDK's ``TLSConfig``."""
        return TLSConfig(
            server_root_ca_cert=self.ca.encode() or None,
            domain=self.server_name or None,
            client_cert=self.cert.encode() or None,
            client_private_key=self.key.encode() or None,
        )


@dataclass(frozen=True)
class Endpoint:
    """The address and namespace of a Temporal server, and the credentials for it; ``str`` shows no secret."""

    address: str
    namespace: str
    tls: Tls | None = None
    """The TLS settings; None for a connection in plain text."""
    api_key: str = field(default="", repr=False)
    codec_keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The keys that encrypt payloads, by id, the one for new payloads first; without keys, payloads are plain."""
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


class Cause(Enum):
    """A reason why Temporal cannot be used; the value is the problem and its fix, without full stops and secrets."""

    NOBODY_LISTENS = "Nothing listens at {at}", "start the Temporal server there, or correct temporal.address"
    NO_SUCH_HOST = (
        "The name {host} of temporal.address does not resolve",
        "correct temporal.address, or the name service of this machine",
    )
    NO_WAY_THERE = (
        "No network route leads from this machine to {at}",
        "correct temporal.address, or the network and its firewalls",
    )
    SILENT = (
        "Nothing answers at {at}",
        "check that a Temporal server runs there and that no firewall blocks it, or correct temporal.address",
    )
    CUT_OFF = (
        "The server at {at} accepts connections and closes them at once",
        "have temporal.tlsCert and tlsKey made by an authority that the server trusts; if that is no Temporal server, "
        "correct temporal.address",
    )
    SPEAKS_PLAIN_TEXT = (
        "The server at {at} speaks plain text, and temporal.tls asks for TLS",
        "set temporal.tls to false, or give temporal.address the port that speaks TLS, and start again",
    )
    UNTRUSTED = (
        "The certificate of {at} is not made by an authority that this machine trusts",
        "set temporal.tlsCa to the PEM of that authority and start again",
    )
    WRONG_NAME = (
        "The certificate of {at} is made for another name",
        "set temporal.tlsServerName to a name in that certificate, or correct temporal.address, and start again",
    )
    OUTDATED_CERTIFICATE = (
        "The certificate of {at} has expired or is not valid yet",
        "have the server's certificate renewed, or set this machine's clock",
    )
    OUR_CERTIFICATE_REFUSED = (
        "The server at {at} does not accept the client certificate, or requires one",
        "set temporal.tlsCert and tlsKey to a valid pair made by an authority that the server trusts, and start again",
    )
    OUR_CERTIFICATE_UNUSABLE = (
        "temporal.tlsCert and temporal.tlsKey cannot be used together",
        "set both to one pair in PEM form, the key without a passphrase, and start again",
    )
    UNAUTHENTICATED = (
        "Temporal at {at} requires authentication ({words})",
        "set temporal.apiKey to an API key, or temporal.tlsCert and tlsKey to a certificate, and start again",
    )
    DENIED = (
        "Temporal at {at} requires authentication for namespace '{namespace}'",
        "set temporal.apiKey, or temporal.tlsCert and tlsKey, and start again",
    )
    NO_NAMESPACE = (
        "Temporal at {at} has no namespace '{namespace}'",
        "create the namespace with `maestro init` or `temporal operator namespace create -n {namespace}`, "
        "or correct temporal.namespace",
    )
    NOT_TEMPORAL = (
        "The server at {at} is not Temporal",
        "correct temporal.address; Temporal's own port is 7233 unless it was changed; the Web UI has another port",
    )
    TOO_MUCH = (
        "Temporal at {at} limits Maestro's requests ({words})",
        "have the limits of namespace '{namespace}' raised; Maestro slows down meanwhile",
    )
    NOT_READY = (
        "Temporal at {at} is not ready ({words})",
        "wait a moment; if the problem stays, look into the server's own log",
    )
    UNKNOWN = (
        "Temporal at {at} cannot be used ({words})",
        "check temporal.address and the other settings of temporal, and look into the server's own log",
    )


@dataclass(frozen=True)
class Trouble:
    """A problem and its fix, both without a full stop at the end and without secrets."""

    found: str
    fix: str

    def __str__(self) -> str:
        """Return the problem and the fix as one sentence."""
        return f"{self.found}: {self.fix}."


# The SDK is a thin layer over Rust: only its error texts distinguish failed connections. These patterns
# were found by experiment and are tested with real connections; any other text is shown unchanged.
_SIGNS = (
    ("InvalidContentType", Cause.SPEAKS_PLAIN_TEXT),
    ("NotValidForName", Cause.WRONG_NAME),
    ("InvalidCertificate(Expired", Cause.OUTDATED_CERTIFICATE),
    ("InvalidCertificate(NotValidYet", Cause.OUTDATED_CERTIFICATE),
    ("InvalidCertificate(", Cause.UNTRUSTED),
    ("AlertReceived(ProtocolVersion", Cause.UNKNOWN),
    ("AlertReceived(", Cause.OUR_CERTIFICATE_REFUSED),
    ("PrivateKeyParseError", Cause.OUR_CERTIFICATE_UNUSABLE),
    ("CertificateParseError", Cause.OUR_CERTIFICATE_UNUSABLE),
    ("InconsistentKeys", Cause.OUR_CERTIFICATE_UNUSABLE),
    ("dns error", Cause.NO_SUCH_HOST),
    ("NetworkUnreachable", Cause.NO_WAY_THERE),
    ("HostUnreachable", Cause.NO_WAY_THERE),
    ("TimedOut", Cause.SILENT),
    ("Timeout expired", Cause.SILENT),
    ("tcp connect error", Cause.NOBODY_LISTENS),
    ("h2 protocol error", Cause.NOT_TEMPORAL),
    ("operation was canceled", Cause.CUT_OFF),
    ("transport error", Cause.CUT_OFF),
    ("mapped from HTTP status code 5", Cause.NOT_READY),
    ("mapped from HTTP status code", Cause.NOT_TEMPORAL),
)

_CODES = {
    "UNAUTHENTICATED": Cause.UNAUTHENTICATED,
    "PERMISSIONDENIED": Cause.DENIED,
    "NOTFOUND": Cause.NO_NAMESPACE,
    "UNIMPLEMENTED": Cause.NOT_TEMPORAL,
    "RESOURCEEXHAUSTED": Cause.TOO_MUCH,
    "DEADLINEEXCEEDED": Cause.SILENT,
}

_AWAY = frozenset({Cause.NOBODY_LISTENS, Cause.SILENT, Cause.CUT_OFF, Cause.NOT_READY})


def explain_error(error: BaseException, endpoint: Endpoint) -> str:
    """Return one sentence with the problem behind a connection error and its fix, without secrets."""
    return str(connection_problem(error, endpoint))


def connection_problem(error: BaseException, endpoint: Endpoint) -> Trouble:
    """Return the problem behind a connection error, and its fix."""
    cause, words = root_cause(error), _short_message(error, endpoint)
    has_certificate = endpoint.tls is not None and bool(endpoint.tls.cert)
    found, fix = cause.value
    if endpoint.embedded and cause in _AWAY:
        found = "The embedded Temporal server at {at} does not answer"
        fix = "`maestro up` starts and restarts the server; if that fails, see logs/temporal.log in the data folder"
    elif cause is Cause.UNAUTHENTICATED and endpoint.api_key:
        state = "says that the API key has expired" if "expired" in words.lower() else "does not accept the API key"
        found = f"Temporal at {{at}} {state} ({{words}})"
        fix = (
            "create a new key, put it where temporal.apiKey is read from and restart Maestro, which reads the key at "
            "its start; if Temporal accepts the present key again, Maestro continues by itself"
        )
    elif cause is Cause.DENIED and (endpoint.api_key or has_certificate):
        identity = "the API key (temporal.apiKey)" if endpoint.api_key else "the certificate (temporal.tlsCert)"
        found = "Temporal at {at} denies access to namespace '{namespace}'"
        fix = (
            f"allow {identity} to describe that namespace and to write in it, or correct temporal.namespace; if it has "
            "expired, replace it and restart Maestro"
        )
    elif cause is Cause.CUT_OFF and not has_certificate:
        # Two servers close a connection without a reason: a TLS server that gets plain text, and a server that gets
        # no client certificate.
        need, setting = "TLS", "temporal.tls to true"
        if endpoint.tls is not None:
            need, setting = "a client certificate", "temporal.tlsCert and temporal.tlsKey"
        advice = f"if the server requires {need}, set {setting} and start again"
        fix = f"{advice}; if that is no Temporal server, correct temporal.address"
    facts = {"at": endpoint.address, "host": endpoint.host, "namespace": endpoint.namespace, "words": words}
    return Trouble(found.format(**facts), fix.format(**facts))


def root_cause(error: BaseException) -> Cause:
    """Return the cause of an error; a gRPC status from the server takes precedence over the error's text."""
    if isinstance(error, TimeoutError):
        return Cause.SILENT
    by_status = _CODES.get(_status_code(error))
    if by_status is not None:
        return by_status
    text = str(error)
    causes = (cause for sign, cause in _SIGNS if sign in text)
    return next(causes, Cause.NOT_READY if _status_code(error) == "UNAVAILABLE" else Cause.UNKNOWN)


def _status_code(error: BaseException) -> str:
    """Return the gRPC status in capitals without underscores; empty when no server answered."""
    if isinstance(error, RPCError):
        return error.status.name.replace("_", "")
    match = re.search(r"Status \{ code: (\w+)", str(error))
    return match[1].upper() if match else ""


def _short_message(error: BaseException, endpoint: Endpoint) -> str:
    """Return the message of the server or the SDK as one short line without secrets."""
    match = re.search(r'message: "([^"]*)"', str(error))
    words = " ".join((match[1] if match and "Status {" in str(error) else str(error)).split())
    if endpoint.api_key:
        words = words.replace(endpoint.api_key, "***")
    return words[:160] or type(error).__name__
