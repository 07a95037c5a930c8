"""The address to listen on: binding it, and writing it as a URL that people can use."""

from __future__ import annotations

import errno
import os
import socket

import click

# The kernel caps it at its own limit; a burst of agents should wait in line rather than be refused.
BACKLOG = 4096


class AddressError(click.ClickException):
    """The address cannot be listened on; told in one line, exit code 1."""


def listening_socket(host: str, port: int, *, share: bool = False) -> socket.socket:
    """A socket that accepts from now on. `share` lets other sockets of this user take the same port."""
    sock = bound_socket(host, port, share=share)
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _told(error, host, port) from error
    return sock


def reserved_socket(host: str, port: int) -> socket.socket:
    """Holds the port for workers without accepting itself.

    A shared bind succeeds even where another shared group listens already, so ask for the port alone first.
    """
    with listening_socket(host, port) as alone:
        port = port_of(alone)
    return bound_socket(host, port, share=True)


def bound_socket(host: str, port: int, *, share: bool) -> socket.socket:
    if share and not hasattr(socket, "SO_REUSEPORT"):
        raise AddressError("several workers need SO_REUSEPORT, which this system does not have")
    family, address = _resolved(host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two programs take the same port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # `::` stands for every address, IPv4 included; any other IPv6 address for itself.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        sock.bind(address)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _told(error, host, port) from error
    return sock


def port_of(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def local_host(host: str) -> str:
    """The host under which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AddressError(f"cannot listen on {host}: {error.strerror or error}") from error
    # `localhost` has both kinds on most systems, and clients that know only one of them know IPv4.
    family, _, _, _, address = min(found, key=lambda candidate: candidate[0] != socket.AF_INET)
    return family, address


def _told(error: OSError, host: str, port: int) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressError(f"port {port} on {host} is in use; choose another, or --port 0 for any free one")
    if error.errno == errno.EACCES:
        return AddressError(f"port {port} on {host} is not allowed for this user; try --port 8080")
    return AddressError(f"cannot listen on {url(host, port)}: {os.strerror(error.errno or 0)}")
