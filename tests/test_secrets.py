"""Keys and conversations pass through and leave no trace."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from proxy.simulator import Fault, Simulator
from tests.raw import ask, request
from tests.running import running

KEY = "sk-canary-key-7f3a"
TEXT = "canary message text"
CREDENTIALS = [
    ("Authorization", f"Bearer {KEY}"),
    ("api-key", KEY),
    ("x-api-key", KEY),
    ("x-goog-api-key", KEY),
]
BODY = b'{"model":"%b","messages":[{"role":"user","content":"%b"}]}'


@pytest.mark.parametrize("fault", [None, *Fault], ids=str)
async def test_no_key_and_no_message_is_logged_measured_or_echoed(
    upstream: Simulator, fault: Fault | None
) -> None:
    answers = []
    with capture_logs() as lines:
        async with running(upstream.base_url, timeouts={"idle": 0.2, "first_byte": 0.2}) as proxy:
            for path in (f"/v1/chat/completions?key={KEY}", f"/v1/echo?key={KEY}", f"/nowhere?key={KEY}"):
                if fault is not None:
                    upstream.fail_next(fault)
                sent = request("POST", path, CREDENTIALS, BODY % (b"gpt-4o", TEXT.encode()))
                answer = await ask(proxy.port, sent)
                if b"tailfold_error" in answer.body:
                    answers.append(answer.body.decode())
            told = proxy.app.metrics.exposition().decode() + "".join(answers) + repr(lines)
    assert lines
    assert KEY not in told
    assert TEXT not in told


async def test_a_made_up_model_name_never_becomes_a_label(upstream: Simulator) -> None:
    async with running(upstream.base_url) as proxy:
        for model in (b"gpt-4o", b"made-up-by-me", b"gpt-4o-mini"):
            await ask(proxy.port, request("POST", "/v1/chat/completions", body=BODY % (model, b"hi")))
        assert proxy.metric("tailfold_requests_total", model="gpt-4o") == 1
        assert proxy.metric("tailfold_requests_total", model="gpt-4o-mini") == 1
        assert proxy.metric("tailfold_requests_total", model="other") == 1
        assert "made-up-by-me" not in proxy.app.metrics.exposition().decode()
