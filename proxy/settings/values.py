"""What a single value may look like."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema

from proxy.packages import STORES, brought_along
from proxy.settings.redis_address import Address, address_in

STORE_SCHEMES = ("memory", "sqlite", "redis", "rediss", "redis+sentinel", "redis+cluster")

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


def valid_host(host: str) -> str:
    bare = host.strip().removeprefix("[").removesuffix("]")
    if not bare:
        raise ValueError("should not be empty; 0.0.0.0 means every IPv4 address of this machine")
    if "/" in bare or re.search(r"\s", bare) or (bare.count(":") == 1):
        raise ValueError("should be a host name or an address alone, without scheme and port")
    return bare


def valid_upstream(url: str) -> str:
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


_ESCAPES = "; in user and password / ? # % @ [ and ] are written %2F %3F %23 %25 %40 %5B and %5D"


def _split(url: str) -> SplitResult:
    """The URL's parts; the standard library's own complaints quote the URL and with it a password."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "redis", "rediss"):
            _ = parts.port
    except ValueError:
        hint = _ESCAPES if "redis" in url.partition("://")[0] else ""
        raise ValueError(f"is not a valid URL{hint}") from None
    return parts


def valid_store(url: str | None) -> str | None:
    if url is None:
        return None
    parts = _split(url.strip())
    if not url.strip().startswith(f"{parts.scheme}://"):
        raise ValueError(f"should begin with one of {_schemes()}")
    if parts.scheme not in STORE_SCHEMES:
        _brought_by_one_package(parts.scheme)
    if parts.scheme == "memory" and url.strip() != "memory://":
        raise ValueError("should be memory:// with nothing behind it")
    if parts.scheme == "sqlite" and (parts.netloc or len(parts.path) < 2):
        raise ValueError("should be sqlite:///relative/path.db or sqlite:////absolute/path.db")
    if "redis" in parts.scheme and not parts.netloc.rpartition("@")[2]:
        raise ValueError(f"should name a host, as in {parts.scheme}://localhost:6379")
    if "redis" in parts.scheme:
        _with_authorities(address_in(url.strip()))
    return url.strip()


def _with_authorities(address: Address) -> None:
    if address.tls and address.ca is not None:
        import ssl  # takes a while that others need not wait for

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(address.ca)
        except OSError:
            raise ValueError("names a file behind ca= that has no certificates that can be read") from None


def _brought_by_one_package(scheme: str) -> None:
    # Only for what we do not have ourselves, so that no package takes the place of one of our stores.
    found = brought_along(STORES, scheme)
    if not found:
        raise ValueError(
            f"should begin with one of {_schemes()}, or with the scheme of a store that an installed package "
            f"registers under the entry point group {STORES}"
        )
    if len(found) > 1:
        packages = ", ".join(sorted(each.dist.name if each.dist else each.value for each in found))
        raise ValueError(f"has a scheme that more than one installed package registers: {packages}")


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES)


def header_safe(token: SecretStr | None) -> SecretStr | None:
    if token is None:
        return None
    text = token.get_secret_value().strip()
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("should be printable ASCII without spaces, and not empty")
    return SecretStr(text)


def long_enough(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and len(secret.get_secret_value()) < 16:
        raise ValueError(
            "should have at least 16 characters; to make one: "
            'python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return secret


_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
_KEY_SIZE = 32
_MAKE_A_KEY = """python -c "import base64, os; print('k1:' + base64.b64encode(os.urandom(32)).decode())\""""


def sealing(keys: SecretStr | None) -> SecretStr | None:
    if keys is not None:
        encryption_keys(keys.get_secret_value())
    return keys


def encryption_keys(text: str) -> dict[str, bytes]:
    """Keys by id, from `id:base64key,id:base64key`, in their order. No complaint repeats any of it: an id may
    be a key that stands in the wrong place.
    """
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(text.split(","), 1):
        key_id, colon, encoded = entry.strip().partition(":")
        if not colon or not _KEY_ID.fullmatch(key_id):
            raise ValueError(
                f"key {number} should be id:base64key, the id at most 32 letters, digits, dots, dashes and "
                f"underscores; several are separated by commas. To make one: {_MAKE_A_KEY}"
            )
        key = _decoded(encoded.strip())
        if key is None or len(key) != _KEY_SIZE:
            raise ValueError(
                f"key {number} should be {_KEY_SIZE} random bytes in base64. To make one: {_MAKE_A_KEY}"
            )
        if key_id in keys or key in keys.values():
            raise ValueError(f"key {number} repeats the id or the bytes of an earlier one")
        keys[key_id] = key
    return keys


def _decoded(encoded: str) -> bytes | None:
    """Both alphabets of base64, with or without the padding."""
    standard = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:
        return None


def comma_separated(value: object) -> object:
    """An environment variable holds one string: a.example,b.example."""
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return value


def host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    bare = tuple(name.lower().removeprefix("[").removesuffix("]") for name in names)
    for name in bare:
        if not re.fullmatch(r"[\w.-]+", name) and address_of(name) is None:
            raise ValueError("should be bare host names, without scheme, port or wildcard")
    return bare


def mapping(value: object) -> object:
    """An environment variable holds one string: JSON."""
    if not isinstance(value, str):
        return {} if value is None else value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError('should be JSON such as {"my-model": {"window": 8192}}') from None


def a_number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def named(models: dict[str, Any]) -> dict[str, Any]:
    if any(not name.strip() for name in models):
        raise ValueError("an entry has no name")
    return models


_SHARE = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*")


def retained(value: object) -> object:
    """A number of tokens, or a share of the room as `10%`."""
    if isinstance(value, str) and (found := _SHARE.fullmatch(value)):
        if not 0 < float(found[1]) <= 100:
            raise ValueError("should be a share of more than 0% and at most 100%")
        return f"{float(found[1]):g}%"
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if type(value) is not int or not 0 < value < 2**40:
        raise ValueError("should be a number of tokens, or a share of the room such as 10%")
    return value


def retained_tokens(said: int | str, room: int) -> int:
    return said if isinstance(said, int) else int(float(said.removesuffix("%")) / 100 * room)


Retained = Annotated[
    int | str,
    BeforeValidator(retained),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*(\d+|\d{1,3}(\.\d+)?\s*%)\s*$"},
            ]
        }
    ),
]
Tokens = Annotated[int, BeforeValidator(a_number), Field(gt=0, lt=2**40)]
Share = Annotated[float, Field(gt=0, le=1)]
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


# Addresses.


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than localhost could be anything."""
    if host.lower() == "localhost":
        return True
    address = address_of(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped is not None and mapped.is_loopback


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def addresses_of(host: str) -> frozenset[str]:
    """The addresses that a host stands for, as far as can be said without asking a name server."""
    if host.lower() == "localhost":
        return frozenset({"127.0.0.1", "::1"})
    if (address := address_of(host)) is None:
        return frozenset({host.lower()})
    return frozenset({str(address)} | ({"127.0.0.1", "::1"} if address.is_unspecified else set()))
