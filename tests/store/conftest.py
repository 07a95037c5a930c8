"""Real servers, started for the first test that needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.servers import Server, Servers, server


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as started:
        yield started


@pytest.fixture
def valkey() -> Iterator[Server]:
    """One of its own, which the test may kill."""
    with server() as one:
        yield one
