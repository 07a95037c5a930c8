"""A proxy in a process of its own, and the line between it and the process that wants it.

The line is a socket pair whose far end is the child's standard input. The parent sends the settings down
(so a secret never stands in a command line), the child reports its port or its failure, and each side
learns of the other's end by the line closing: a proxy never outlives who started it, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

import click

from proxy.cli import addresses
from proxy.cli.event_loop import serve_on
from proxy.settings import Settings, revealed


class ProxyFailed(Exception):
    """The process ended before it listened."""


class ProxyProcess:
    """The parent's end."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        share_port: bool = False,
        output: IO[bytes] | int | None = None,
    ) -> None:
        self._line, far_end = socket.socketpair()
        with far_end:
            self._process = subprocess.Popen(
                # -P: a folder named `proxy` where the user happens to be must not be taken for ours.
                [sys.executable, "-P", "-m", "proxy", "worker"],
                stdin=far_end.fileno(),
                stdout=output,
                stderr=output,
                env=dict(environ),
                # Out of the terminal's reach: Ctrl-C is for the parent, which then says what happens.
                start_new_session=True,
            )
        _send(self._line, {"settings": revealed(settings), "share_port": share_port})
        self._line.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def listening(self) -> int:
        """The port, once connections are accepted."""
        report = await self._received()
        if not report:
            raise ProxyFailed("it ended before it was ready")
        told = json.loads(report)
        if "failed" in told:
            raise ProxyFailed(told["failed"])
        return int(told["port"])

    async def ended(self) -> int:
        """The exit code, once the process is gone."""
        await self._received()
        self._line.close()
        return await asyncio.to_thread(self._process.wait)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def stop(self, grace: float) -> None:
        self.terminate()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._line.close()

    async def _received(self) -> bytes:
        """One report, or nothing when the line has closed."""
        loop = asyncio.get_running_loop()
        received = b""
        while not received.endswith(b"\n"):
            try:
                piece = await loop.sock_recv(self._line, 4096)
            except ConnectionError:
                piece = b""
            if not piece:
                return b""
            received += piece
        return received


@click.command(hidden=True)
def worker() -> None:
    """Serve for the Tailfold process at the other end of standard input."""
    line = _line_to_parent()
    with line.makefile("rb") as orders:
        order = json.loads(orders.readline())
    settings = Settings.model_validate(order["settings"])
    try:
        sock = addresses.listening_socket(settings.host, settings.port, share=order["share_port"])
    except addresses.AddressError as error:
        _send(line, {"failed": error.message})
        raise
    _leave_with_parent(line)
    with sock:
        port = addresses.port_of(sock)
        bound = settings.model_copy(update={"port": port})
        serve_on(bound, sock, on_ready=lambda: _send(line, {"port": port}))


def _line_to_parent() -> socket.socket:
    try:
        line = socket.socket(fileno=os.dup(0))
    except OSError:
        raise click.UsageError("only Tailfold itself starts workers; use `tailfold serve`") from None
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return line


def _leave_with_parent(line: socket.socket) -> None:
    def watch() -> None:
        try:
            line.recv(1)  # nothing more is ever sent: it returns when the other end is closed
        except OSError:
            pass  # closed less politely, which means the same
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="line to parent", daemon=True).start()


def _send(line: socket.socket, message: Mapping[str, Any]) -> None:
    try:
        line.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass  # the other side is gone; the closed line says so to whoever waits for an answer
