"""Connections to one origin: opened when needed, kept while the upstream keeps them."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohappyeyeballs

from proxy.errors import UpstreamTimeout, UpstreamTlsFailed, UpstreamUnreachable
from proxy.upstream.connection import Connection

MAX_IDLE = 256
# Shorter than what most servers allow (uvicorn's 5 s are noticed by its FIN): fewer requests meet a dead end.
MAX_IDLE_SECONDS = 55.0


@dataclass(frozen=True, slots=True)
class Origin:
    host: str
    port: int
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect: float
    first_byte: float
    idle: float


class Pool:
    def __init__(self, origin: Origin, timeouts: Timeouts) -> None:
        self._origin = origin
        self._timeouts = timeouts
        self._resting: list[Connection] = []

    def take_resting(self) -> Connection | None:
        """The connection used last, if one is open still: the others may then grow old and be closed."""
        while self._resting:
            connection = self._resting.pop()
            age = asyncio.get_running_loop().time() - connection.idle_since
            if connection.alive and age < MAX_IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        if connection.reusable and len(self._resting) < MAX_IDLE:
            connection.rest()
            self._resting.append(connection)
        else:
            connection.abort()

    async def open(self) -> Connection:
        where = f"{self._origin.host}:{self._origin.port}"
        try:
            async with asyncio.timeout(self._timeouts.connect):
                return await self._connect()
        except TimeoutError as late:
            seconds = f"{self._timeouts.connect:g}"
            raise UpstreamTimeout(f"No connection to the upstream {where} within {seconds} s.") from late
        except ssl.SSLError as refused:  # certificate errors are SSLErrors too
            raise UpstreamTlsFailed(
                f"TLS with the upstream {where} failed: {_tls_reason(refused)}"
            ) from refused
        except OSError as unreachable:
            reason = _reason(unreachable)
            raise UpstreamUnreachable(f"The upstream {where} cannot be reached: {reason}") from unreachable

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self._origin.host, self._origin.port, type=socket.SOCK_STREAM)
        # Races IPv6 against IPv4, so that a network that drops one of them does not cost the whole timeout.
        sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=0.25)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await loop.create_connection(
                lambda: Connection(loop, first_byte=self._timeouts.first_byte, idle=self._timeouts.idle),
                sock=sock,
                ssl=self._origin.tls,
                server_hostname=self._origin.host if self._origin.tls else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def close(self) -> None:
        for connection in self._resting:
            connection.abort()
        self._resting.clear()


def origin_of(url: str, ca_file: Path | None, *, verify: bool) -> Origin:
    parts = urlsplit(url)
    tls = tls_context(ca_file, verify=verify) if parts.scheme == "https" else None
    return Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls)


def tls_context(ca_file: Path | None, *, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    elif not context.get_ca_certs() and not _system_has_authorities():
        import certifi  # a slim container may have no certificates of its own

        context.load_verify_locations(cafile=certifi.where())
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _system_has_authorities() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or paths.capath)


def _reason(unreachable: OSError) -> str:
    """In the system's words: the event loop's tell of a call. A name server has numbers of its own."""
    if unreachable.errno is None or isinstance(unreachable, socket.gaierror):
        return unreachable.strerror or str(unreachable)
    return os.strerror(unreachable.errno)


def _tls_reason(refused: ssl.SSLError) -> str:
    return getattr(refused, "verify_message", None) or refused.reason or str(refused)
