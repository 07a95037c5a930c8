"""What the doctor says of an upstream and a key: a real server on a real socket, well and ill."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
import trustme

from proxy.cli.doctor.finding import Finding, Verdict
from proxy.cli.doctor.upstream import Key, check
from proxy.settings import Settings
from proxy.simulator import Simulator, SimulatorConfig
from proxy.simulator.answers import Answer
from proxy.tasks import Tasks

RIGHT, WRONG = "sk-right", "sk-wrong"
PASS, WARN, FAIL = Verdict


async def findings(url: str, key: str | None = None, **settings: object) -> dict[str, Finding]:
    tasks = Tasks()
    made = Settings.model_validate({"upstream": url, **settings})
    found = await check(made, Key(key), tasks)
    await tasks.close(timeout=0)
    return {finding.name: finding for finding in found}


@pytest.fixture
async def guarded() -> AsyncIterator[Simulator]:
    """One that asks for a key."""
    async with Simulator(SimulatorConfig(api_key=RIGHT)) as simulator:
        yield simulator


async def test_an_upstream_and_a_key_that_are_as_they_should_be(guarded: Simulator) -> None:
    found = await findings(guarded.base_url, RIGHT)
    assert found["upstream"].verdict is PASS
    assert "status 401" in found["upstream"].found  # asked without a key: that is an answer too
    assert found["key"].verdict is PASS
    assert found["key"].found == "OPENAI_API_KEY is accepted"


async def test_nothing_is_asked_but_the_list_of_models(guarded: Simulator) -> None:
    await findings(guarded.base_url, RIGHT)
    assert [(each.method, each.route) for each in guarded.requests] == [("GET", "/v1/models")] * 2


async def test_a_key_that_is_refused_fails_and_is_not_shown(guarded: Simulator) -> None:
    found = await findings(guarded.base_url, WRONG)
    assert found["key"].verdict is FAIL
    assert "status 401" in found["key"].found
    assert WRONG not in str(found)


async def test_without_a_key_clients_bring_their_own(guarded: Simulator) -> None:
    found = await findings(guarded.base_url)
    assert found["key"].verdict is WARN
    assert "clients bring their own" in found["key"].found
    assert len(guarded.requests) == 1


@pytest.mark.parametrize(("key", "said"), [(None, "asks for none"), (WRONG, "was not tested")])
async def test_an_upstream_that_asks_for_no_key_is_told(
    upstream: Simulator, key: str | None, said: str
) -> None:
    found = await findings(upstream.base_url, key)
    assert found["key"].verdict is PASS
    assert said in found["key"].found


@pytest.mark.parametrize("key", ["sk-\n", "sk right", "sk-ü", " "])
async def test_a_key_that_no_header_can_carry_fails_and_is_not_sent(guarded: Simulator, key: str) -> None:
    found = await findings(guarded.base_url, key)
    assert found["key"].verdict is FAIL
    assert [each.credential for each in guarded.requests] == [""]


@pytest.mark.parametrize(
    ("status", "verdict"), [(200, PASS), (403, PASS), (404, PASS), (429, PASS), (302, WARN), (503, WARN)]
)
async def test_any_status_shows_that_it_can_be_reached(
    upstream: Simulator, status: int, verdict: Verdict
) -> None:
    upstream.answer_next(Answer(status=status, headers=(("Location", "http://127.0.0.1:9/"),)))
    found = await findings(upstream.base_url)
    assert found["upstream"].verdict is verdict
    assert f"status {status}" in found["upstream"].found
    assert upstream.arrived == 1


@pytest.mark.parametrize(("status", "verdict"), [(403, FAIL), (404, WARN), (429, WARN), (500, WARN)])
async def test_only_a_refusal_says_that_the_key_is_wrong(
    upstream: Simulator, status: int, verdict: Verdict
) -> None:
    upstream.answer_next(Answer(status=status), times=2)
    found = await findings(upstream.base_url, RIGHT)
    assert found["key"].verdict is verdict
    assert str(status) in found["key"].found


async def test_an_upstream_that_is_not_there_fails_and_says_nothing_of_the_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    found = await findings(f"http://127.0.0.1:{port}/v1", RIGHT)
    assert found.keys() == {"upstream", "key"}
    assert found["upstream"].verdict is FAIL
    assert found["upstream"].found.endswith("cannot be reached: Connection refused")
    assert found["key"].verdict is WARN


async def test_a_name_that_nobody_has_fails() -> None:
    found = await findings("http://no-such-host.invalid/v1")
    assert found["upstream"].verdict is FAIL


async def test_an_upstream_that_does_not_speak_http_fails() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await findings(f"http://127.0.0.1:{port}/v1")
    assert found["upstream"].verdict is FAIL
    assert "https://" in str(found["upstream"].hint)


async def test_a_clock_that_is_right_is_told_too(upstream: Simulator) -> None:
    upstream.answer_next(Answer(headers=(("Date", format_datetime(datetime.now(UTC), usegmt=True)),)))
    assert (await findings(upstream.base_url))["upstream clock"].verdict is PASS


async def test_a_clock_that_is_wrong_is_told_by_the_answers_date(upstream: Simulator) -> None:
    date = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    upstream.answer_next(Answer(headers=(("Date", date),)))
    found = await findings(upstream.base_url)
    assert found["upstream clock"].verdict is WARN
    assert "ahead of the upstream" in found["upstream clock"].found


@pytest.mark.parametrize("date", ["", "tomorrow", "Thu, 99 Nov 2026 06:00:00 GMT"])
async def test_a_date_that_is_none_says_nothing(upstream: Simulator, date: str) -> None:
    upstream.answer_next(Answer(headers=(("Date", date),)))
    assert (await findings(upstream.base_url)).keys() == {"upstream", "key"}


# TLS: as the proxy itself would.


@pytest.fixture
async def certified(tmp_path: Path) -> AsyncIterator[Simulator]:
    """By an authority whose certificate is in ca.pem."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with Simulator(ssl_context=context) as simulator:
        yield simulator


async def test_an_unknown_authority_fails_and_the_hint_names_the_setting(certified: Simulator) -> None:
    found = await findings(certified.base_url)
    assert found["upstream"].verdict is FAIL
    assert "tls.ca_file" in str(found["upstream"].hint)


async def test_the_settings_for_tls_hold_here_too(certified: Simulator, tmp_path: Path) -> None:
    by_authority = await findings(certified.base_url, tls={"ca_file": tmp_path / "ca.pem"})
    unverified = await findings(certified.base_url, tls={"verify": False})
    assert by_authority["upstream"].verdict is unverified["upstream"].verdict is PASS


async def test_authorities_that_cannot_be_read_fail(certified: Simulator, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    found = await findings(certified.base_url, tls={"ca_file": tmp_path / "ca.pem"})
    assert found["upstream"].verdict is FAIL
    assert "tls.ca_file" in found["upstream"].found
