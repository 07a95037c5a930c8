"""Binding addresses, and writing them as URLs."""

from __future__ import annotations

import socket

import pytest

from proxy.cli.addresses import (
    AddressError,
    bound_socket,
    listening_socket,
    local_host,
    port_of,
    reserved_socket,
    url,
)


def test_an_ipv6_host_stands_in_brackets() -> None:
    assert url("::1", 80) == "http://[::1]:80"
    assert url("127.0.0.1", 80) == "http://127.0.0.1:80"


def test_an_address_for_everybody_is_reached_from_here_by_loopback() -> None:
    assert [local_host(host) for host in ("0.0.0.0", "::", "10.0.0.5")] == ["127.0.0.1", "::1", "10.0.0.5"]


def test_port_0_means_a_free_one() -> None:
    with listening_socket("127.0.0.1", 0) as sock:
        assert port_of(sock) > 0


def test_localhost_is_the_ipv4_one() -> None:
    with listening_socket("localhost", 0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


def test_a_port_in_use_is_named_with_a_way_out() -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        port = port_of(taken)
        with pytest.raises(AddressError) as caught:
            listening_socket("127.0.0.1", port)
    assert f"port {port} " in caught.value.message
    assert "--port 0" in caught.value.message


def test_a_host_that_is_not_ours_is_told_plainly() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on http://192\.0\.2\.1:"):
        listening_socket("192.0.2.1", 1)
    with pytest.raises(AddressError, match=r"cannot listen on no-such-host\.invalid"):
        listening_socket("no-such-host.invalid", 1)


def test_a_reserved_port_is_shared_by_workers_but_not_with_strangers() -> None:
    with reserved_socket("127.0.0.1", 0) as reserved:
        port = port_of(reserved)
        with (
            listening_socket("127.0.0.1", port, share=True) as one,
            listening_socket("127.0.0.1", port, share=True) as two,
        ):
            assert port_of(one) == port_of(two) == port
            with pytest.raises(AddressError, match="in use"):
                reserved_socket("127.0.0.1", port)


def test_the_reserving_socket_itself_takes_no_connection() -> None:
    with reserved_socket("127.0.0.1", 0) as reserved, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(reserved)), timeout=5)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_every_address_includes_the_ipv4_ones() -> None:
    with bound_socket("::", 0, share=False) as sock:
        assert not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
