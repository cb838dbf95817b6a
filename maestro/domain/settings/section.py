"""The base class of all settings sections, and the value types with their validation messages."""

import base64
import re
from collections.abc import Callable, Hashable, Iterable
from ipaddress import IPv6Address, ip_network
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from maestro.domain.network import parse_address
from maestro.domain.values import Value, matching

NO_SECRET = SecretStr("")

LIVE: JsonDict = {"live": True}
"""The mark of a key that can be set while Maestro runs: code reads its value at each use (docs/invariants.md:
live settings). Every other key is read once, at the start."""

Item = TypeVar("Item", bound=Hashable)


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Declare a key that is read once, at the start; ``limits`` are keyword arguments of ``pydantic.Field``."""
    return Field(default=default, description=description, **limits)


def live(default: Any, description: str, **limits: Any) -> Any:
    """Declare a key that can be set while Maestro runs; ``limits`` are keyword arguments of ``pydantic.Field``."""
    return Field(default=default, description=description, json_schema_extra=LIVE, **limits)


class Section(Value):
    """The base class of all sections: camelCase in the file, snake_case in code; errors never show a value."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


def is_loopback(host: str) -> bool:
    """Return whether a socket bound to this host is reachable from this machine only.

    A name other than ``localhost`` counts as reachable from outside, because the name may resolve to another address
    later.
    """
    name = host.strip().removeprefix("[").removesuffix("]").lower()
    address = parse_address(name)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return name == "localhost" or (address is not None and address.is_loopback)


def first_repeated(items: Iterable[Item]) -> Item | None:
    """Return the first item that occurs a second time, or None."""
    seen: set[Item] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


def unique(key: Callable[[Any], Hashable], problem: str) -> AfterValidator:
    """Return a validator that rejects two entries with the same key; empty keys may repeat.

    ``problem`` is the error message, in which ``{}`` stands for the key.
    """

    def check(entries: tuple[Any, ...]) -> tuple[Any, ...]:
        repeated = first_repeated(filter(None, map(key, entries)))
        if repeated is not None:
            raise ValueError(problem.format("/".join(repeated) if isinstance(repeated, tuple) else repeated))
        return entries

    return AfterValidator(check)


def _require_folder_name(value: object) -> object:
    # Path("") means the current folder: with an empty dataDir, the data would be in the folder where Maestro starts.
    if value == "":
        raise ValueError("expected a folder; leave the key out for the default")
    return value


def _expand_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("the home folder that ~ stands for is not known; write the whole path") from None


Folder = Annotated[Path, BeforeValidator(_require_folder_name), AfterValidator(_expand_home)]
Host = Annotated[str, matching(r"[^\s/]+", "a host name or an address without a scheme, such as localhost")]
HostName = Annotated[str, matching(r"[^\s/:]+", "a host name without scheme and port, such as maestro.example.org")]
BucketUrl = Annotated[
    str,
    matching(
        r"(|s3://[a-z0-9][a-z0-9._-]+(/[^\s/]+)*/?)", "s3://BUCKET or s3://BUCKET/PREFIX, such as s3://acme/media"
    ),
]
ServerAddress = Annotated[str, matching(r"(|[^\s/:]+:\d+|\[[^\s\]]+\]:\d+)", "host:port, such as localhost:7233")]
HttpUrl = Annotated[str, matching(r"(|https?://[^\s/]+\S*)", "an address that starts with http:// or https://")]
Origin = Annotated[str, matching(r"https?://[^\s/*]+", "an origin without a path, such as https://app.example.org")]


def _check_database_url(url: SecretStr) -> SecretStr:
    if re.fullmatch(r"|sqlite:///(?!:memory:).+|postgres(ql)?://[^\s/]*/[^\s/?]+\S*", url.get_secret_value()) is None:
        raise ValueError(
            "expected an empty text (SQLite in dataDir), sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return url


DatabaseUrl = Annotated[SecretStr, AfterValidator(_check_database_url)]


KEY_BYTES = 32


def decode_key(key: SecretStr) -> bytes:
    """Return the 32 bytes of a key in base64, of either alphabet; raises ``ValueError`` for any other text."""
    text = key.get_secret_value().strip().translate({ord("-"): "+", ord("_"): "/"})
    try:
        decoded = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("expected 32 random bytes as base64: make a key with `openssl rand -base64 32`") from None
    if len(decoded) != KEY_BYTES:
        raise ValueError(
            f"the key has {len(decoded)} bytes, AES-256 needs {KEY_BYTES}: make one with `openssl rand -base64 32`"
        )
    return decoded


def _check_key(key: SecretStr) -> SecretStr:
    decode_key(key)
    return key


def _check_optional_key(key: SecretStr) -> SecretStr:
    return _check_key(key) if key else key


OptionalKey = Annotated[SecretStr, AfterValidator(_check_optional_key)]
CodecKey = Annotated[SecretStr, AfterValidator(_check_key)]


def _check_network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError:
        raise ValueError("expected an address or a network, such as 10.0.0.5 or 10.0.0.0/24") from None
    return text


ProxyAddress = Annotated[str, AfterValidator(_check_network)]
ChannelReference = Annotated[str, matching(r"[a-z][a-z0-9_-]*:\S+", "platform:channel, such as slack:C024BE91L")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
