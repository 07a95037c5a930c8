"""All settings: one frozen model, every setting of it by its dotted key, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.config_files import variable
from proxy.settings.sections import (
    Admin,
    Compression,
    Encryption,
    History,
    Limits,
    Log,
    Metrics,
    Model,
    Notify,
    Redis,
    Section,
    Summarizer,
    Timeouts,
    Tls,
    Usage,
    Windows,
)
from proxy.settings.values import (
    addresses_of,
    byte_count,
    is_loopback,
    long_enough,
    mapping,
    named,
    valid_host,
    valid_store,
    valid_upstream,
)

MASK = "********"

Mode = Literal["compress", "observe", "off"]


class Clash(ValueError):
    """Two settings that do not go together; `key` is the one to look at first."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Settings(BaseSettings):
    """All settings of Tailfold."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: Annotated[str, AfterValidator(valid_host)] = Field(
        default="127.0.0.1",
        description="Address to listen on. One that other machines reach needs `admin.token`.",
    )
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 means any free one.")
    workers: int = Field(default=1, ge=1, description="Processes that share the port.")
    upstream: Annotated[str, AfterValidator(valid_upstream)] = Field(
        default="https://api.openai.com/v1",
        description="Where requests go: /v1/x is sent to <upstream>/x.",
    )
    store: Annotated[str | None, AfterValidator(valid_store)] = Field(
        default=None,
        repr=False,
        description="Where state is kept: memory://, sqlite:///relative/path.db, "
        "sqlite:////absolute/path.db, redis://, rediss://, redis+sentinel:// or redis+cluster://, or what "
        "an installed package brings along. Without it (null) an SQLite file in the user's state folder.",
    )
    mode: Mode = Field(
        default="compress",
        description="`compress` folds long histories, `observe` only reports what would be folded, `off` "
        "only forwards.",
    )
    secret: Annotated[SecretStr | None, AfterValidator(long_enough)] = Field(
        default=None,
        description="Secret under which callers are told apart by their keys without keeping the keys. "
        "Without it (null) one is made at the first start and kept in the store; a store in Redis needs it "
        "given, the same in all replicas. Has no flag, because other users of a machine can see flags.",
    )
    models: Annotated[dict[str, Model], BeforeValidator(mapping), AfterValidator(named)] = Field(
        default={},
        description="What you know better of models, by name or pattern (`my-model`, `claude-*`): window, "
        "excludes_answer, max_output, encoding, images, factor, tool_prompt, threshold, retain_tokens, "
        "strategy, summary_model. The exact name wins, then the longest pattern; `tailfold models NAME` "
        "shows the result. As a variable: JSON.",
    )
    usage: Usage = Field(default=Usage(), description="Token usage as the upstream reports it.")
    compression: Compression = Field(
        default=Compression(), description="When a conversation is folded, and how much of it stays."
    )
    summarizer: Summarizer = Field(default=Summarizer(), description="Who writes the summaries.")
    history: History = Field(
        default=History(), description="What is kept of conversations, and for how long."
    )
    redis: Redis = Field(default=Redis(), description="How long to wait for a store in Redis or Valkey.")
    encryption: Encryption = Field(
        default=Encryption(), description="Whether what is stored is encrypted there."
    )
    notify: Notify = Field(default=Notify(), description="Where folds are announced.")
    windows: Windows = Field(default=Windows(), description="How large the models' windows are.")
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
            raise Clash(
                "host",
                f"{self.host} can be reached from other machines, so an admin token is needed: set the "
                f"variable {variable('admin.token')}, or admin.token in the configuration file, to a secret "
                "of your own (there is no flag, other users could see it). To make one: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"',
            )
        return self

    @model_validator(mode="after")
    def _a_shared_store_needs_the_same_secret_everywhere(self) -> Settings:
        if self.is_shared and self.secret is None:
            raise Clash(
                "secret",
                "a store that several replicas share needs the same secret in all of them, or they would not "
                f"know each other's callers: set the variable {variable('secret')}, or secret in the "
                "configuration file. To make one: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))". To go on with the one of your '
                "present store: tailfold store secret",
            )
        return self

    @model_validator(mode="after")
    def _upstream_is_another_server(self) -> Settings:
        if self.is_own_address(self.upstream):
            raise Clash(
                "upstream",
                f"{self.upstream} is the address Tailfold itself listens on: it would forward to itself. "
                "Choose another upstream or another port",
            )
        return self

    def is_own_address(self, url: str) -> bool:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return port == self.port and bool(addresses_of(self.host) & addresses_of(parts.hostname or ""))

    @property
    def is_shared(self) -> bool:
        """Is the store one for many replicas?"""
        return (self.store or "").startswith("redis")

    @property
    def store_url(self) -> str:
        """The store, with the default made out for this machine and user."""
        return self.store or f"sqlite:///{state_dir().as_posix()}/tailfold.db"


def state_dir() -> Path:
    """The user's folder for what Tailfold keeps between two runs."""
    import platformdirs  # costs start-up time that an explicit store does not need to pay

    return platformdirs.user_state_path("tailfold")


# Every setting by its dotted key.


def _section_of(field_info: FieldInfo) -> type[Section] | None:
    kind = field_info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


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
PRIVATE = frozenset({"admin.token", "encryption.keys", "secret", "store", "upstream"})


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
    shown["secret"] = settings.secret and MASK
    shown["models"] = {name: facts.model_dump(exclude_none=True) for name, facts in settings.models.items()}
    shown["encryption.keys"] = settings.encryption.keys and MASK
    shown["admin.token"] = settings.admin.token and MASK
    shown["admin.hosts"] = list(settings.admin.hosts)
    shown["tls.ca_file"] = settings.tls.ca_file and str(settings.tls.ca_file)
    return shown


def revealed(settings: Settings) -> dict[str, Any]:
    """The settings as plain JSON data, secrets in clear: only for handing them to a process of our own."""
    plain = settings.model_dump(mode="json")
    plain["secret"] = settings.secret and settings.secret.get_secret_value()
    plain["encryption"]["keys"] = settings.encryption.keys and settings.encryption.keys.get_secret_value()
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
