"""The settings of a process: its store, media, Temporal, ports, owners and log."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from maestro.domain.settings.section import (
    NO_SECRET,
    BucketUrl,
    CodecKey,
    DatabaseUrl,
    Host,
    HostName,
    HttpUrl,
    OptionalKey,
    Origin,
    ProxyAddress,
    Seconds,
    Section,
    ServerAddress,
    decode_key,
    is_loopback,
    live,
    setting,
    unique,
)
from maestro.domain.values import Identifier, OptionalIdentifier, OptionalSlug, OwnerId

Port = Annotated[int, Field(ge=1, le=65535)]
ByteCount = Annotated[int, Field(ge=1024, le=1024**3)]


class StoreSettings(Section):
    """The database."""

    url: DatabaseUrl = setting(
        NO_SECRET,
        "`sqlite:///PATH`, or `postgresql://USER:PASSWORD@HOST/DATABASE` for processes on several machines, best as "
        '`"env:NAME"`; empty: SQLite at `<dataDir>/maestro.db`',
    )


class MediaSettings(Section):
    """The storage of the files that users and agents send."""

    url: BucketUrl = setting(
        "",
        "`s3://BUCKET/PREFIX`, a bucket of an S3-compatible object storage for processes on several machines; empty: "
        "the folder `<dataDir>/media`",
    )
    endpoint: HttpUrl = setting("", "the address of the object storage; empty: that of AWS in `region`")
    region: str = setting("", "the region of the bucket; empty: that of the environment, else `us-east-1`")
    access_key_id: str = setting(
        "", "the id of the access key; empty: the environment or the role of the process, as AWS gives them"
    )
    secret_access_key: SecretStr = setting(NO_SECRET, 'the secret of `accessKeyId`, best as `"file:PATH"`')
    timeout_seconds: Seconds = setting(60, "seconds one request to the object storage may take")
    cache_bytes: int = setting(
        1024**3,
        "the most bytes of files from the object storage that are kept on this machine, in `<dataDir>/media-cache`; "
        "files used in the last ten minutes stay even above it",
        ge=1024**2,
    )

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        """Reject keys without effect, and half of a credential."""
        if not self.url and (self.endpoint or self.region or self.access_key_id or self.secret_access_key):
            raise ValueError(
                "media.endpoint, region, accessKeyId and secretAccessKey apply only with media.url; set it"
            )
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ValueError("media.accessKeyId and media.secretAccessKey belong together; set both or none")
        return self


class CodecKeySettings(Section):
    """A key that encrypts the payloads of workflows."""

    id: Identifier = Field(description="the name of the key, which each encrypted payload carries; unique")
    key: CodecKey = Field(
        description='32 random bytes as base64, best as `"file:PATH"`; `openssl rand -base64 32` makes a key'
    )


class CodecSettings(Section):
    """The encryption of the payloads of workflows."""

    keys: Annotated[
        tuple[CodecKeySettings, ...], unique(lambda key: key.id, "two keys have the id {}; each key needs its own")
    ] = setting(
        (), "the keys: the first encrypts, all decrypt; the same in every process. Empty: payloads are not encrypted"
    )

    @property
    def key_bytes(self) -> Mapping[str, bytes]:
        """The keys by their ids, in order."""
        return {entry.id: decode_key(entry.key) for entry in self.keys}

    @property
    def first_id(self) -> str:
        """The id of the key that encrypts; empty without encryption."""
        return self.keys[0].id if self.keys else ""


class KeySettings(Section):
    """The keys that all hosts of one store share; without them, each data folder has its own."""

    signing: OptionalKey = setting(
        NO_SECRET,
        'the key that signs logins and resume tokens, 32 bytes in base64, best as `"file:PATH"`; empty: '
        "`<dataDir>/signing.key`, made at the first start",
    )
    secrets: OptionalKey = setting(
        NO_SECRET,
        'the key that encrypts the keys of accounts and bots, 32 bytes in base64, best as `"file:PATH"`; empty: '
        "`<dataDir>/secrets.key`, made at the first start",
    )


class TemporalSettings(Section):
    """The Temporal server that runs the workflows."""

    address: ServerAddress = setting("", "`host:port` of a Temporal server; empty: an embedded one")
    namespace: Identifier = setting("default", "the namespace on that server")
    tls: bool = setting(False, "whether the connection to `address` is encrypted")
    tls_ca: str = setting("", 'PEM of the authorities to trust, best as `"file:PATH"`; empty: those of this machine')
    tls_cert: str = setting("", 'PEM of the client certificate if `address` requires one, best as `"file:PATH"`')
    tls_key: SecretStr = setting(NO_SECRET, 'PEM of the key of `tlsCert`, best as `"file:PATH"`')
    tls_server_name: str = setting(
        "", "the name in the server's certificate; empty: the host of `address`", max_length=253
    )
    api_key: SecretStr = setting(NO_SECRET, "the API key for `address`, as Temporal Cloud requires")
    port: Port = setting(7233, "the port of the embedded server")
    ui_port: Port = setting(8233, "the port of the embedded server's Web UI")
    ui_url: HttpUrl = setting("", "the address of the Web UI when `address` is set; empty: no links to the Web UI")
    task_queue: Identifier = setting(
        "maestro", "the task queue of the workflows; with the embedded server, also of all activities"
    )
    llm_queue: Identifier = setting("maestro-llm", "the task queue of model calls when `address` is set")
    tools_queue: OptionalIdentifier = setting(
        "",
        "the task queue of tool calls when `address` is set, polled only by workers with `tools.here`, which have the "
        "folders of conversations; empty: `llmQueue`",
    )
    connector_queue: Identifier = setting(
        "maestro-connector",
        "the prefix of the task queues of connectors when `address` is set; platform and account follow the prefix",
    )
    codec: CodecSettings = CodecSettings()
    heartbeat_seconds: float = setting(
        0,
        "seconds without a heartbeat after which an activity is retried; Maestro waits longer on a busy machine. 0: "
        "10 with the embedded server and 30 with an `address`",
        ge=0,
        le=3600,
    )

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        """Reject TLS keys that have no effect without ``tls``, and a certificate without a key or the reverse."""
        if not self.tls and (self.tls_ca or self.tls_cert or self.tls_key or self.tls_server_name):
            raise ValueError("temporal.tls must be true for temporal.tlsCa, tlsCert, tlsKey and tlsServerName to apply")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("temporal.tlsCert and temporal.tlsKey belong together; set both or none")
        return self

    @model_validator(mode="after")
    def _check_queues(self) -> Self:
        """Reject queue names with which workers of one kind would get the activities of another kind."""
        connectors = f"{self.connector_queue}-"
        names = [name for name in (self.task_queue, self.llm_queue, self.tools_queue) if name]
        shared = len(set(names)) < len(names)
        if self.address and (shared or any(name.startswith(connectors) for name in names)):
            raise ValueError(
                "temporal.taskQueue, temporal.llmQueue and temporal.toolsQueue must differ, and none may begin like "
                "the queues of connectors do (temporal.connectorQueue); correct one of the names"
            )
        return self

    @property
    def embedded(self) -> bool:
        """Whether Maestro starts the Temporal server itself."""
        return not self.address

    @property
    def heartbeat(self) -> timedelta:
        """The heartbeat timeout of activities (docs/decisions.md: heartbeat timeout)."""
        # 10 seconds bridge the pauses of a loaded machine; 30 save heartbeats, which Temporal Cloud bills.
        return timedelta(seconds=self.heartbeat_seconds or (10 if self.embedded else 30))


class WebuiSettings(Section):
    """The dashboard, the REST API and MCP."""

    enabled: bool = setting(True, "whether the dashboard and the API are served")
    host: Host = setting("localhost", "the address to bind; if other machines can reach it, `password` is needed")
    port: Port = setting(8080, "the port of dashboard, REST API and MCP")
    public_url: HttpUrl = setting(
        "",
        "the address by which browsers reach the dashboard, for links to it, such as those in the Temporal Web UI; "
        "empty: `http://host:port`",
    )
    password: SecretStr = setting(
        NO_SECRET,
        "the password of user `maestro`; empty: no login is needed. For this key the file takes "
        "precedence over the environment",
    )
    viewer_password: SecretStr = setting(
        NO_SECRET, "the password of user `viewer`, with read-only access; empty: no user `viewer`"
    )
    session_hours: float = setting(12, "hours until a login has to be repeated", gt=0, le=8760)
    allowed_hosts: tuple[HostName, ...] = setting(
        (), "host names by which dashboard, web connector and health ports are reached, besides `host` and loopback"
    )
    trusted_proxies: tuple[ProxyAddress, ...] = setting(
        (),
        "addresses and networks of the proxies in front of the dashboard; their headers `X-Forwarded-For` "
        "(client address) and `X-Forwarded-Proto` (scheme) are trusted",
    )

    @model_validator(mode="after")
    def _check_viewer_password(self) -> Self:
        """Reject a viewer password that gives operator rights: one equal to, or without, the operator's password."""
        if self.viewer_password and not self.password:
            raise ValueError(
                "webui.viewerPassword counts only beside webui.password (or MAESTRO_WEBUI_PASSWORD): "
                "without webui.password every visitor has operator rights"
            )
        if self.viewer_password and self.viewer_password.get_secret_value() == self.password.get_secret_value():
            raise ValueError("webui.viewerPassword must differ from webui.password")
        return self

    @model_validator(mode="after")
    def _require_password(self) -> Self:
        """Require a password if other machines can reach the dashboard (docs/decisions.md: exposed ports)."""
        if self.enabled and self.trusted_proxies and not self.password:
            raise ValueError(
                "webui.trustedProxies: a proxy lets other machines in, so webui.password (or MAESTRO_WEBUI_PASSWORD) "
                "must be set"
            )
        if self.enabled and not self.password and not is_loopback(self.host):
            raise ValueError(
                "webui.host lets other machines in, so webui.password (or MAESTRO_WEBUI_PASSWORD) must be set; "
                'or set webui.host to "localhost"'
            )
        return self


class WebSettings(Section):
    """The web connector: chat over WebSocket and HTTP."""

    enabled: bool = setting(True, "whether the web connector runs")
    host: Host = setting("localhost", "the address to bind; if other machines can reach it, `apiKey` is needed")
    port: Port = setting(5070, "the port of the web connector")
    api_key: SecretStr = setting(NO_SECRET, "the key that programs must send; empty: no key is needed")
    allowed_origins: tuple[Origin, ...] = setting(
        (), "origins of web pages that may connect, besides the dashboard's own"
    )
    agent: OptionalSlug = setting(
        "", "the slug of the agent that answers all messages of this connector; empty: the rules of routing"
    )
    dm_policy: Literal["open", "pairing", "allowlist"] = setting(
        "open",
        "the access policy of channels without a binding: `open` answers every user that may connect, `pairing` those "
        "that were paired, `allowlist` only those on the agent's list",
    )
    max_frame_bytes: ByteCount = setting(
        4 * 1024**2,
        "the largest WebSocket frame accepted, in bytes; the longest message (300,000 characters) may need the whole "
        "default",
    )
    max_upload_bytes: ByteCount = setting(10 * 1024**2, "the largest upload accepted, in bytes")
    auth_timeout_seconds: Seconds = setting(5, "seconds within which a new connection must authenticate")
    typing_seconds: Seconds = setting(5, "seconds between two typing indicators")

    @model_validator(mode="after")
    def _require_key(self) -> Self:
        """Require a key if other machines can reach the connector (docs/decisions.md: exposed ports)."""
        if self.enabled and not self.api_key and not is_loopback(self.host):
            raise ValueError(
                'web.host lets other machines in, so web.apiKey must be set; or set web.host to "localhost"'
            )
        return self


class ServerSettings(Section):
    """Limits of each port that Maestro opens: dashboard, web connector and health."""

    max_connections: int = setting(
        8192,
        "the most connections to one port at once; never more than three eighths of the files this process may open",
        ge=16,
        le=1_000_000,
    )
    max_connections_per_address: int = setting(
        512,
        "the most connections from one address, never more than half of `maxConnections`; this machine and "
        "`webui.trustedProxies` have no such limit",
        ge=8,
        le=1_000_000,
    )
    request_seconds: Seconds = setting(
        10, "seconds within which a client must send the head of a request; else its connection is closed"
    )


class HealthSettings(Section):
    """The health endpoints of `maestro worker` and `maestro connect`: `/healthz`, `/readyz` and `/metrics`."""

    host: Host = setting("localhost", "the address to bind; these ports ask for no password")
    worker_port: Port = setting(9091, "the port of `maestro worker`")
    connect_port: Port = setting(9092, "the port of `maestro connect`")


class OwnerSettings(Section):
    """The users that may talk to every agent and approve everything."""

    ids: tuple[OwnerId, ...] = setting((), "the owners on each platform, as `platform:userId`")


class LogSettings(Section):
    """The log's level and format."""

    level: Literal["debug", "info", "warning", "error"] = live(
        "info", "the lowest level logged; libraries log only warnings and errors"
    )
    format: Literal["text", "json"] = setting("text", "`text` for people, `json` for log collectors")
