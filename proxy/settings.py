"""Everything that can be set: one frozen model, and where each of its values came from.

A description below is the only place where a setting is explained: the command line's help,
`config/default.yaml`, the JSON Schema and `docs/settings.md` are made from it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.config_files import (
    Layer,
    SettingsError,
    config_path,
    environment_layer,
    file_layer,
    flag_layer,
    variable,
)

__all__ = ["Loaded", "Settings", "SettingsError", "is_loopback", "load", "masked"]

MASK = "********"
STORE_SCHEMES = ("memory", "sqlite", "redis", "rediss", "redis+sentinel", "redis+cluster")

Mode = Literal["compress", "observe", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]


# What a single value may look like.

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def byte_count(value: object) -> object:
    """`64KiB`, `1.5 GB` or a number of bytes."""
    if isinstance(value, bool):
        raise ValueError("should be a number of bytes or a size such as 64KiB")
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("should be a number of bytes or a size such as 64KiB, 128MiB or 1GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _listen_host(host: str) -> str:
    bare = host.strip().removeprefix("[").removesuffix("]")
    if not bare:
        raise ValueError("should not be empty; 0.0.0.0 means every IPv4 address of this machine")
    if "/" in bare or re.search(r"\s", bare) or (bare.count(":") == 1):
        raise ValueError("should be a host name or an address alone, without scheme and port")
    return bare


def _upstream_url(url: str) -> str:
    url = url.strip()
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("should be a full URL such as https://api.openai.com/v1")
    if "@" in parts.netloc:
        raise ValueError("should not contain a user or password; clients send their own key")
    if "?" in url or "#" in url:
        raise ValueError("should not contain a query (?) or a fragment (#)")
    if not parts.hostname or re.search(r"[\s\x00-\x1f\x7f\\]", url):
        raise ValueError("is not a valid URL")
    return url.rstrip("/")


def _split(url: str) -> SplitResult:
    """The URL's parts; the standard library's own complaints quote the URL and with it a password."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "redis", "rediss"):
            _ = parts.port
    except ValueError:
        raise ValueError("is not a valid URL") from None
    return parts


def _store_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = _split(url.strip())
    if parts.scheme not in STORE_SCHEMES or not url.strip().startswith(f"{parts.scheme}://"):
        schemes = ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES)
        raise ValueError(f"should begin with one of {schemes}")
    if parts.scheme == "sqlite" and (parts.netloc or len(parts.path) < 2):
        raise ValueError("should be sqlite:///relative/path.db or sqlite:////absolute/path.db")
    if "redis" in parts.scheme and not parts.netloc.rpartition("@")[2]:
        raise ValueError(f"should name a host, as in {parts.scheme}://localhost:6379")
    return url.strip()


def _header_safe(token: SecretStr | None) -> SecretStr | None:
    if token is None:
        return None
    text = token.get_secret_value().strip()
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("should be printable ASCII without spaces, and not empty")
    return SecretStr(text)


def _comma_separated(value: object) -> object:
    """An environment variable holds one string: a.example,b.example."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return value


def _host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    bare = tuple(name.lower().removeprefix("[").removesuffix("]") for name in names)
    for name in bare:
        if not re.fullmatch(r"[\w.-]+", name) and _address(name) is None:
            raise ValueError("should be bare host names, without scheme, port or wildcard")
    return bare


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bytes = Annotated[
    int,
    BeforeValidator(byte_count),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(([KMGTkmgt][Ii]?)?[Bb])?\s*$"},
            ]
        }
    ),
]


# The model.


class _Section(BaseModel):
    # Values are hidden in pydantic's own messages because one of them may be a secret.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Usage(_Section):
    ask: bool = Field(
        default=True,
        description="Ask the upstream for token usage in streams when the client did not, and keep the extra "
        "chunk from the client.",
    )


class Timeouts(_Section):
    connect: Seconds = Field(
        default=5.0, description="Seconds for reaching the upstream, the TLS handshake included."
    )
    first_byte: Seconds = Field(
        default=600.0,
        description="Seconds from the request being sent to the first byte of the upstream's answer.",
    )
    idle: Seconds = Field(
        default=300.0,
        description="Seconds between two pieces of an answer before the upstream counts as gone. There is no "
        "limit for an answer as a whole.",
    )
    head: Seconds = Field(default=30.0, description="Seconds a client may take for the head of its request.")
    body: Seconds = Field(
        default=30.0, description="Seconds a client's body may lag behind `limits.body_rate`."
    )
    keepalive: Seconds = Field(
        default=75.0, description="Seconds an idle client connection is kept open for the next request."
    )
    drain: Seconds = Field(
        default=30.0, description="Seconds that running answers get to finish after SIGTERM."
    )


class Limits(_Section):
    chat_body: Bytes = Field(
        default=128 * 1024**2,
        description="Largest body of a chat completion request. Other paths are streamed and have no limit.",
    )
    in_flight: Bytes = Field(
        default=1024**3, description="Bytes of request bodies held in memory at one time, per worker."
    )
    connections: int = Field(
        default=4096, ge=1, description="Client connections open at one time, per worker."
    )
    head: Bytes = Field(
        default=64 * 1024, description="Largest head (request line and headers) of a request."
    )
    body_rate: Bytes = Field(
        default=1024, description="Bytes per second below which a client's body counts as too slow."
    )


class Tls(_Section):
    ca_file: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate authorities to trust for the upstream; null means the "
        "system's.",
    )
    verify: bool = Field(
        default=True,
        description="Verify the upstream's certificate. False makes the connection open to interception.",
    )


class Admin(_Section):
    token: Annotated[SecretStr | None, AfterValidator(_header_safe)] = Field(
        default=None,
        description="Secret for everything outside /v1 (page, API, metrics). Required to listen on an "
        "address that other machines reach. Has no flag, because other users of a machine can see flags.",
    )
    hosts: Annotated[tuple[str, ...], BeforeValidator(_comma_separated), AfterValidator(_host_names)] = Field(
        default=(),
        description="Host names under which everything outside /v1 may be asked, besides loopback names and "
        "the address listened on. As a variable: separated by commas.",
    )


class Metrics(_Section):
    open: bool = Field(default=False, description="Serve /metrics without the admin token.")


class Log(_Section):
    level: LogLevel = Field(default="info", description="Least level that is logged.")
    format: LogFormat = Field(
        default="auto", description="`console`, `json`, or `auto`: console on a terminal, else JSON."
    )


class _ClashError(ValueError):
    """Two settings that do not go together; `key` is the one to look at first."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Settings(BaseSettings):
    """All settings of Tailfold."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: Annotated[str, AfterValidator(_listen_host)] = Field(
        default="127.0.0.1",
        description="Address to listen on. One that other machines reach needs `admin.token`.",
    )
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 means any free one.")
    workers: int = Field(default=1, ge=1, description="Processes that share the port.")
    upstream: Annotated[str, AfterValidator(_upstream_url)] = Field(
        default="https://api.openai.com/v1",
        description="Where requests go: /v1/x is sent to <upstream>/x.",
    )
    store: Annotated[str | None, AfterValidator(_store_url)] = Field(
        default=None,
        repr=False,
        description="Where state is kept: memory://, sqlite:///relative/path.db, "
        "sqlite:////absolute/path.db, redis://, rediss://, redis+sentinel:// or redis+cluster://. Without it "
        "(null) an SQLite file in the user's state folder.",
    )
    mode: Mode = Field(
        default="compress",
        description="`compress` folds long histories, `observe` only reports what would be folded, `off` "
        "only forwards.",
    )
    usage: Usage = Field(default=Usage(), description="Token usage as the upstream reports it.")
    timeouts: Timeouts = Field(default=Timeouts(), description="How long to wait, in seconds.")
    limits: Limits = Field(
        default=Limits(), description="How much to take. Sizes are bytes, or text such as 64KiB."
    )
    tls: Tls = Field(default=Tls(), description="The connection to the upstream.")
    admin: Admin = Field(default=Admin(), description="Access to what is not under /v1.")
    metrics: Metrics = Field(default=Metrics(), description="Prometheus metrics.")
    log: Log = Field(default=Log(), description="What is logged, and how.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The environment comes in through `load`, which is told which one and can name each value's origin.
        return (init_settings,)

    @model_validator(mode="after")
    def _public_address_needs_a_token(self) -> Settings:
        if not is_loopback(self.host) and self.admin.token is None:
            raise _ClashError(
                "host",
                f"{self.host} can be reached from other machines, so an admin token is needed: set the "
                f"variable {variable('admin.token')}, or admin.token in the configuration file, to a secret "
                "of your own (there is no flag, other users could see it). To make one: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"',
            )
        return self

    @model_validator(mode="after")
    def _upstream_is_another_server(self) -> Settings:
        if self.is_own_address(self.upstream):
            raise _ClashError(
                "upstream",
                f"{self.upstream} is the address Tailfold itself listens on: it would forward to itself. "
                "Choose another upstream or another port",
            )
        return self

    def is_own_address(self, url: str) -> bool:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return port == self.port and bool(_addresses(self.host) & _addresses(parts.hostname or ""))

    @property
    def store_url(self) -> str:
        """The store, with the default made out for this machine and user."""
        return self.store or f"sqlite:///{state_dir().as_posix()}/tailfold.db"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost could be anything."""
    if host.lower() == "localhost":
        return True
    address = _address(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped is not None and mapped.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _addresses(host: str) -> frozenset[str]:
    """The addresses that a host stands for, as far as can be said without asking a name server."""
    if host.lower() == "localhost":
        return frozenset({"127.0.0.1", "::1"})
    if (address := _address(host)) is None:
        return frozenset({host.lower()})
    return frozenset({str(address)} | ({"127.0.0.1", "::1"} if address.is_unspecified else set()))


def state_dir() -> Path:
    """The user's folder for what Tailfold keeps between two runs."""
    import platformdirs  # costs start-up time that an explicit store does not need to pay

    return platformdirs.user_state_path("tailfold")


# Every setting by its dotted key.


def _section_of(field_info: FieldInfo) -> type[_Section] | None:
    kind = field_info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, _Section) else None


def _leaf_fields() -> dict[str, FieldInfo]:
    fields: dict[str, FieldInfo] = {}
    for name, info in Settings.model_fields.items():
        if (section := _section_of(info)) is None:
            fields[name] = info
        else:
            fields |= {f"{name}.{inner}": leaf for inner, leaf in section.model_fields.items()}
    return fields


SECTIONS: Mapping[str, FieldInfo] = {
    name: info for name, info in Settings.model_fields.items() if _section_of(info)
}
FIELDS: Mapping[str, FieldInfo] = _leaf_fields()

# Their values are not repeated in messages: they are secrets, or may contain one.
_PRIVATE = frozenset({"admin.token", "store", "upstream"})


def is_size(key: str) -> bool:
    return any(isinstance(mark, BeforeValidator) and mark.func is byte_count for mark in FIELDS[key].metadata)


def values_of(settings: Settings) -> dict[str, Any]:
    """All values by dotted key, as they are: secrets wrapped, but a store's password in clear."""
    flat: dict[str, Any] = {}
    for key in FIELDS:
        section, _, name = key.rpartition(".")
        flat[key] = getattr(getattr(settings, section) if section else settings, name)
    return flat


def printable(settings: Settings) -> dict[str, Any]:
    """All values by dotted key, fit to be shown: no secret in it, the default store made out."""
    shown = values_of(settings)
    shown["store"] = masked(settings.store_url)
    shown["admin.token"] = settings.admin.token and MASK
    shown["admin.hosts"] = list(settings.admin.hosts)
    shown["tls.ca_file"] = settings.tls.ca_file and str(settings.tls.ca_file)
    return shown


def revealed(settings: Settings) -> dict[str, Any]:
    """The settings as plain JSON data, secrets in clear: only for handing them to a process of our own."""
    plain = settings.model_dump(mode="json")
    plain["admin"]["token"] = settings.admin.token and settings.admin.token.get_secret_value()
    return plain


_SECRET_PARAMETER = re.compile(r"([?&][^=&#]*(?:pass|secret|token|key|auth)[^=&#]*=)[^&#]*", re.IGNORECASE)


def masked(url: str) -> str:
    """The URL without its passwords: in front of the host, and in the query as redis allows it.

    Everything up to the last @ counts as user and password, since a password may hold an unescaped slash.
    """
    scheme, separator, rest = url.partition("://")
    userinfo, at, hosts = rest.rpartition("@")
    if at and scheme != "sqlite":
        user, colon, _ = userinfo.partition(":")
        rest = f"{user}:{MASK}@{hosts}" if colon else f"{MASK}@{hosts}"
    return _SECRET_PARAMETER.sub(rf"\g<1>{MASK}", f"{scheme}{separator}{rest}")


# From layers to settings.


@dataclass(frozen=True)
class Loaded:
    """The settings, where each came from by dotted key, and the file that was read."""

    settings: Settings
    origins: dict[str, str]
    file: Path | None = None


def load(flags: Mapping[str, object], environ: Mapping[str, str], *, fallback: Layer | None = None) -> Loaded:
    """Settings from flags, environment and file, in this order of precedence, then from `fallback`.

    Flags are given by dotted key, None meaning not given; the key `config` names the file.
    """
    file = config_path(flags, environ)
    layers = [flag_layer(flags), environment_layer(environ, FIELDS)]
    if file is not None:
        layers.append(file_layer(file, FIELDS, SECTIONS))
    if fallback is not None:
        layers.append(fallback)
    settings, origins = _resolved(layers)
    return Loaded(settings, origins, file)


def _resolved(layers: Sequence[Layer]) -> tuple[Settings, dict[str, str]]:
    problems = [problem for layer in layers for problem in layer.problems]
    winners = {key: layer for layer in reversed(layers) for key in layer.values}
    try:
        settings = Settings.model_validate(_nested({key: winners[key].values[key] for key in winners}))
    except ValidationError as error:
        raise SettingsError(problems + [_told(details, winners) for details in error.errors()]) from None
    if problems:
        raise SettingsError(problems)
    origins = {key: winners[key].origin(key) if key in winners else "default" for key in FIELDS}
    return settings, origins


def _nested(flat: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return nested


def _told(details: ErrorDetails, winners: Mapping[str, Layer]) -> str:
    """One of pydantic's complaints, in terms of the place where the value was written."""
    cause = details.get("ctx", {}).get("error")
    key = cause.key if isinstance(cause, _ClashError) else _key_at(details["loc"])
    place = winners[key].place(key) if key in winners else key
    message = str(cause) if cause is not None else details["msg"].removeprefix("Input ")
    return f"{place}: {message}{_got(key, details['input'])}"


def _key_at(location: Sequence[int | str]) -> str:
    """The setting an error belongs to; pydantic's location may go on into a list or a union."""
    names = [str(step) for step in location]
    dotted = ".".join(names[:2])
    return dotted if dotted in FIELDS else names[0]


def _got(key: str, value: object) -> str:
    if key in _PRIVATE or not isinstance(value, str | int | float | bool):
        return ""
    return f" (got {str(value)[:60]!r})"
