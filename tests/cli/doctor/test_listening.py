from __future__ import annotations

import socket

import pytest
from pydantic import SecretStr

from proxy.cli.doctor.finding import Finding, Verdict
from proxy.cli.doctor.listening import check
from proxy.settings import Admin, Settings
from tests.cli.upstream import listening_upstream
from tests.running import Running


async def found(port: int, *, host: str = "127.0.0.1", workers: int = 1) -> Finding:
    (finding,) = await check(Settings(host=host, port=port, workers=workers))
    return finding


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_free_port_passes_and_is_free_afterwards(workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert (await found(port, workers=workers)).verdict is Verdict.PASS
    socket.create_server(("127.0.0.1", port)).close()


async def test_any_free_port_is_as_good() -> None:
    assert (await found(0)).verdict is Verdict.PASS


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_port_that_another_program_has_fails(workers: int) -> None:
    with listening_upstream() as other:
        finding = await found(other.port, workers=workers)
    assert finding.verdict is Verdict.FAIL
    assert finding.found == f"port {other.port} on 127.0.0.1 is in use"
    assert "--port" in str(finding.hint)


async def test_a_tailfold_that_runs_there_is_a_warning(tailfold: Running) -> None:
    finding = await found(tailfold.port)
    assert finding.verdict is Verdict.WARN
    assert "a Tailfold runs" in finding.found


async def test_an_address_of_another_machine_fails() -> None:
    admin = Admin(token=SecretStr("t" * 20))
    (finding,) = await check(Settings(host="192.0.2.1", port=0, admin=admin))
    assert finding.verdict is Verdict.FAIL
    assert finding.hint == "give an address of this machine: --host"
