"""Several worker processes on one port, kept alive and drained together."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import structlog

from proxy import logs
from proxy.cli import addresses, banner
from proxy.cli.processes import ProxyFailed, ProxyProcess
from proxy.settings import Settings

log = structlog.get_logger(__name__)

# What a worker gets beyond its drain time to close its connections before it is killed.
GRACE = 5.0


@dataclass
class Restarts:
    """How long to wait before a worker is started again, and when to stop trying.

    A worker that lived for a while had an accident; one that keeps dying at once will not get better.
    """

    first_delay: float = 0.1
    longest_delay: float = 5.0
    steady_after: float = 10.0
    attempts: int = 6
    _failures: int = 0

    def delay_after(self, lifetime: float) -> float | None:
        """Seconds to wait after a worker that lived so long; None means give up."""
        self._failures = 1 if lifetime >= self.steady_after else self._failures + 1
        if self._failures >= self.attempts:
            return None
        return min(self.first_delay * 2.0 ** (self._failures - 1), self.longest_delay)


def serve_with_workers(settings: Settings) -> int:
    """Serve until a signal says stop; the exit code."""
    logs.configure(settings.log.level, settings.log.format)
    if settings.store_url.startswith("memory://"):
        log.warning(
            "with memory:// workers share nothing: each makes folds of its own, and a conversation "
            "changes with the worker that gets it; a file would be shared",
            workers=settings.workers,
        )
    with (
        closing(addresses.reserved_socket(settings.host, settings.port)) as reserved,
        tempfile.TemporaryDirectory(prefix="tailfold-metrics-", ignore_cleanup_errors=True) as metrics_dir,
    ):
        port = addresses.port_of(reserved)
        bound = settings.model_copy(update={"port": port})
        workers = Workers(bound, metrics_dir, on_ready=lambda: banner.show(bound, port))
        return asyncio.run(workers.run())


class Workers:
    def __init__(self, settings: Settings, metrics_dir: str, *, on_ready: Callable[[], None]) -> None:
        self._settings = settings
        self._metrics_dir = metrics_dir
        self._on_ready = on_ready
        self._not_yet_ready = settings.workers
        self._alive: set[ProxyProcess] = set()
        self._leaving = asyncio.Event()
        self._gave_up = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        async with asyncio.TaskGroup() as places:
            for _ in range(self._settings.workers):
                places.create_task(self._keep_one_alive())
        return 1 if self._gave_up else 0

    async def _keep_one_alive(self) -> None:
        restarts = Restarts()
        on_ready = self._one_is_ready
        while not self._leaving.is_set():
            started = time.monotonic()
            if await self._one_life(on_ready):
                on_ready = _nothing_to_tell
            delay = restarts.delay_after(time.monotonic() - started)
            if self._leaving.is_set():
                return
            if delay is None:
                self._give_up()
            else:
                log.warning("worker ended, starting another", delay=delay)
                await self._pause(delay)

    async def _one_life(self, on_ready: Callable[[], None]) -> bool:
        """One worker from start to end; whether it ever listened."""
        environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": self._metrics_dir}
        worker = ProxyProcess(self._settings, environ, share_port=True)
        self._alive.add(worker)
        try:
            await worker.listening()
            on_ready()
            listened = True
        except ProxyFailed as failure:
            log.error("worker did not start", pid=worker.pid, reason=str(failure))
            listened = False
        code = await worker.ended()
        self._alive.discard(worker)
        _forget_gauges(worker.pid, self._metrics_dir)
        log.debug("worker ended", pid=worker.pid, code=code)
        return listened

    def _one_is_ready(self) -> None:
        self._not_yet_ready -= 1
        if not self._not_yet_ready:
            self._on_ready()

    async def _pause(self, delay: float) -> None:
        try:
            await asyncio.wait_for(self._leaving.wait(), delay)
        except TimeoutError:
            pass  # nobody said stop meanwhile

    def _give_up(self) -> None:
        log.error("workers keep ending right after their start, giving up")
        self._gave_up = True
        self._leave()

    def _leave(self) -> None:
        """The first time drain; the second time somebody is in a hurry, which the workers understand too."""
        drain = 0.0 if self._leaving.is_set() else self._settings.timeouts.drain
        self._leaving.set()
        for worker in self._alive:
            worker.terminate()
        asyncio.get_running_loop().call_later(drain + GRACE, self._kill_all)

    def _kill_all(self) -> None:
        for worker in self._alive:
            worker.kill()


def _nothing_to_tell() -> None:
    """A worker that takes another's place; the address was announced long ago."""


def _forget_gauges(pid: int, metrics_dir: str) -> None:
    from prometheus_client import multiprocess  # only several workers need it

    multiprocess.mark_process_dead(pid, metrics_dir)  # type: ignore[no-untyped-call]
