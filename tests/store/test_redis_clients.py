"""Reaching servers: over TLS, by Sentinels of which some are away, within the time that is given."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trustme
from redis.asyncio.sentinel import MasterNotFoundError

from proxy.store.outage import Outage
from tests.shared.replicas import wire
from tests.store.doubles import PATIENCE
from tests.store.reaching import asking, keep, kept, reached
from tests.store.servers import Server, Servers, free_port, is_whole, off_loop, until

CA = trustme.CA()


@pytest.fixture
def tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def ca(tmp_path: Path) -> str:
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return f"?ca={tmp_path}/ca.pem"


async def works(url: str) -> bool:
    async with reached(url) as store:
        await keep(store)
        return await kept(store) == b"v"


async def refusal(url: str) -> Outage:
    """Within a short time: who waits for a greeting in another language waits in vain."""
    with pytest.raises(Outage) as caught:
        async with reached(url, timeout=2.0) as store:
            await keep(store)
    return caught.value


async def test_a_server_is_reached_over_tls_where_its_certificate_is_trusted(
    servers: Servers, tls: ssl.SSLContext, ca: str
) -> None:
    servers.empty("valkey")
    async with wire(servers.started("valkey").port, tls=tls) as end:
        assert await works(end.url + ca)
        assert await works(end.url + "?verify=false")
        assert await works(end.url + ca + "&verify=false")


async def test_a_certificate_of_another_authority_is_refused(
    servers: Servers, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    servers.empty("valkey")
    async with wire(servers.started("valkey").port, tls=tls) as end:
        for query in ("", f"?ca={tmp_path}/other.pem"):
            problem = await refusal(end.url + query)
            assert (problem.reason, "certificate" in str(problem)) == ("refused", True)
        assert end.questions == 0


async def test_a_certificate_for_another_host_is_refused(servers: Servers, ca: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("store.example").configure_cert(context)
    servers.empty("valkey")
    async with wire(servers.started("valkey").port, tls=context) as end:
        assert (await refusal(end.url + ca)).reason == "refused"
        assert await works(end.url + "?verify=false")


async def test_a_file_of_authorities_that_is_not_there_is_told(
    servers: Servers, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").touch()
    servers.empty("valkey")
    async with wire(servers.started("valkey").port, tls=tls) as end:
        for name in ("absent.pem", "empty.pem"):
            problem = await refusal(f"{end.url}?ca={tmp_path}/{name}")
            assert (problem.reason, "ca=" in str(problem)) == ("refused", True)


async def test_nothing_is_said_in_clear_to_a_server_that_should_speak_tls(servers: Servers, ca: str) -> None:
    servers.empty("valkey")
    problem = await refusal(f"rediss://:hunter2@127.0.0.1:{servers.started('valkey').port}{ca}")
    assert "hunter2" not in str(problem)


async def test_a_cluster_is_reached_over_tls(tls: ssl.SSLContext, ca: str) -> None:
    async with wire(free_port(), tls=tls) as end:
        node = Server("--cluster-enabled", "yes", "--cluster-announce-port", str(end.near_port))
        try:
            end.port = node.port
            await off_loop(node.start)
            node.client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            await off_loop(partial(until, partial(is_whole, node), "it is whole"))
            assert await works(f"redis+cluster://127.0.0.1:{end.near_port}{ca}&tls=true")
        finally:
            node.close()


async def test_sentinels_are_asked_over_tls(servers: Servers, tls: ssl.SSLContext, ca: str) -> None:
    servers.empty("sentinel")
    async with wire(servers.started("sentinel").sentinel.port, tls=tls) as end:
        # It answers, and names a master that speaks in clear: to that nothing is said.
        await refusal(f"redis+sentinel://127.0.0.1:{end.near_port}/mymaster{ca}&tls=true")
        assert end.questions > 0


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    one = Server(sentinel=True).start()
    one.freeze()
    yield one.port
    one.close()


async def test_sentinels_that_are_away_or_silent_are_passed_over(servers: Servers, silent: int) -> None:
    servers.empty("sentinel")
    there = servers.started("sentinel").sentinel.port
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{silent},127.0.0.1:{there}"
    async with asyncio.timeout(PATIENCE), reached(f"redis+sentinel://{hosts}/mymaster", timeout=0.5) as store:
        await keep(store)
        assert await kept(store) == b"v"


async def test_a_sentinel_that_hangs_up_is_asked_once() -> None:
    calls = []

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(1)
        writer.close()

    rude = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with asking(f"redis+sentinel://127.0.0.1:{rude.sockets[0].getsockname()[1]}/mymaster") as what:
        (answer,) = await what.answers([("GET", b"k")])
    assert isinstance(answer, MasterNotFoundError)
    assert len(calls) == 1
    rude.close()
    await rude.wait_closed()


async def test_sentinels_have_a_password_of_their_own() -> None:
    servers = Servers()
    with servers:
        url = servers.empty("sentinel")
        one = servers.started("sentinel")
        for server, password in ((one.master, "m"), (one.sentinel, "s")):
            rules = ["on", f">{password}word", "~*", "+@all"]
            server.client.execute_command("ACL", "SETUSER", "tailfold", "reset", *rules)
        own = url.replace("://", "://tailfold:mword@")
        assert await works(own + "?sentinel_user=tailfold&sentinel_password=sword")
        assert (await refusal(own + "?sentinel_user=tailfold&sentinel_password=wrong")).reason == "refused"
        wrong = url.replace("://", "://tailfold:wrong@")
        assert (await refusal(wrong + "?sentinel_user=tailfold&sentinel_password=sword")).reason == "refused"


async def test_a_database_is_chosen_and_its_neighbour_stays_empty(servers: Servers) -> None:
    url = servers.empty("valkey").removesuffix("/0")
    assert await works(url + "/5")
    async with reached(url + "/0") as store:
        assert await kept(store) is None
    problem = await refusal(url + "/99")
    assert (problem.reason, "database" in str(problem)) == ("refused", True)
