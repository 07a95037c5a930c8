"""Asking one server, or the many of a cluster: what is asked at once goes to each in one round trip.

Nothing waits for a better time. But a connection that was cut (restarts and idle timeouts do that to all of
them) and a slot that has moved say nothing of the server: then the same is asked once more, over a new
connection or elsewhere. All that we ask may be asked twice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from hiredis import pack_command
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,
    MaxConnectionsError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

Command = tuple[Any, ...]

# Whatever an unreachable, ailing or unwilling server makes of a call; UnicodeError: no name of a host.
TROUBLE = (RedisError, RedisClusterException, OSError, TimeoutError, UnicodeError)
# Asking again would not help; the library takes them for connections that were cut.
_FINAL = (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    MasterNotFoundError,
    MaxConnectionsError,
)


class Asking(Protocol):
    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        """The answers in order; where there is none, the error stands in its place."""
        ...


class OneServer:
    """The one that is named, or that the Sentinels name."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        answers = await self._asked(commands)
        return await self._asked(commands) if any(map(_is_cut, answers)) else answers

    async def _asked(self, commands: Sequence[Command]) -> list[Any]:
        """As the library's own pipeline would, for three quarters of its time."""
        pool = self._client.connection_pool
        try:
            connection = await pool.get_connection()
            try:
                packed = b"".join(map(pack_command, commands))
                await connection.send_packed_command(packed, check_health=False)
                return [await _answer(connection) for _ in commands]
            finally:
                await pool.release(connection)
        except TROUBLE as failure:
            return [failure] * len(commands)


async def _answer(connection: Any) -> Any:
    """Whatever ends the reading before its time closes the connection: nobody reads another's answers."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


class ManyServers:
    """A cluster. What one of its servers does not answer leaves the answers of the others as they are."""

    def __init__(self, client: RedisCluster) -> None:
        self._client = client

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        try:
            await self._client.initialize()
        except TROUBLE as failure:
            return [failure] * len(commands)
        answers = await self._asked(commands)
        if any(map(_is_cut, answers)):
            await self._look_around()
        again: list[int] = []
        for number, answer in enumerate(answers):
            if isinstance(answer, MovedError):
                await self._client.nodes_manager.move_slot(answer)
            if isinstance(answer, MovedError) or _is_cut(answer):
                again.append(number)
            elif isinstance(answer, AskError):
                (answers[number],) = await self._asked_at(self._node_of(answer), [commands[number]], ask=True)
        for number, answer in zip(again, await self._asked([commands[n] for n in again]), strict=True):
            answers[number] = answer
        return answers

    async def _asked(self, commands: Sequence[Command]) -> list[Any]:
        answers: list[Any] = [None] * len(commands)
        numbers: defaultdict[ClusterNode, list[int]] = defaultdict(list)
        for number, command in enumerate(commands):
            try:
                numbers[self._node_with(_key_of(command))].append(number)
            except RedisClusterException as failure:
                answers[number] = failure
        asked = (self._asked_at(node, [commands[n] for n in theirs]) for node, theirs in numbers.items())
        for theirs, said in zip(numbers.values(), await asyncio.gather(*asked), strict=True):
            for number, answer in zip(theirs, said, strict=True):
                answers[number] = answer
        return answers

    async def _asked_at(
        self, node: ClusterNode, commands: Sequence[Command], *, ask: bool = False
    ) -> list[Any]:
        said = [PipelineCommand(number, *command) for number, command in enumerate(commands)]
        # A slot on its way: who takes it in answers only to the command that follows this one.
        before = [PipelineCommand(0, "ASKING")] if ask else []
        try:
            await node.execute_pipeline(before + said)
        except TROUBLE as failure:
            return [failure] * len(commands)
        return [each.result for each in said]

    async def _look_around(self) -> None:
        """Who serves which slots may have changed; and one cut connection is seldom alone."""
        for node in self._client.get_nodes():
            await node.disconnect_free_connections()
        try:
            await self._client.nodes_manager.initialize()
        except TROUBLE:
            pass  # then asking again fails, and says why

    def _node_with(self, key: bytes) -> ClusterNode:
        node = self._client.get_node_from_key(key)  # type: ignore[arg-type]
        assert node is not None  # only of replicas there may be none
        return node

    def _node_of(self, error: AskError) -> ClusterNode:
        manager = self._client.nodes_manager
        if (known := manager.get_node(error.host, error.port)) is not None:
            return known
        # One that has just joined, and has no slots yet.
        node = ClusterNode(error.host, error.port, **manager.connection_kwargs)
        manager.set_nodes(manager.nodes_cache, {node.name: node})
        return node


def _key_of(command: Command) -> bytes:
    key: bytes = command[3] if command[0] in ("EVALSHA", "EVAL") else command[1]
    return key


def _is_cut(answer: Any) -> bool:
    return isinstance(answer, ConnectionError) and not isinstance(answer, _FINAL)
