"""A summary model of another provider is asked through litellm, and learns nothing of the caller."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import orjson

from tests.summarizer.calling_litellm import CALLERS_KEY, PROVIDERS_KEY, TEXT

WELL = ["openai/gpt-4o-mini", "stop", True, True]

EXPECTED: dict[str, Any] = {
    "imported before the first call": False,
    "first call": ["timeout", None],
    "waited for the import": False,
    "well": WELL,
    "the provider's key was sent": True,
    "the caller's key was sent": False,
    "messages are sent": True,
    "sent beside them": {"model": "gpt-4o-mini", "max_tokens": 200, "temperature": 0.3},
    "no temperature": WELL,
    "temperature is sent": False,
    "rate_limited": ["status_429", 7.0],
    "rate_limited, requests": 1,
    "server_error": ["status_500", None],
    "server_error, requests": 1,
    "disconnect_before_headers": ["no_answer", None],
    "disconnect_before_headers, requests": 1,
    "truncated_body": ["no_answer", None],
    "truncated_body, requests": 1,
    "too long": ["too_long", None],
    "not JSON": ["no_answer", None],
    "no such provider": ["status_400", None],
    "no model": ["no_model", None],
    "hanging": ["timeout", None],
    "refused": [WELL, WELL],
    "refused, sent": [[0.3, 200], [None, 200], [None, 200]],
    "thought": [WELL, WELL],
    "thought, sent": [[0.3, 200], [0.3, 8200], [0.3, 8200]],
    "too long an answer": [WELL, WELL],
    "too long an answer, sent": [[0.3, 20_000], [0.3, 16_384], [0.3, 16_384]],
    "window named": [8_192, 8_192],
    "window named, requests": 1,
    "wrong key": ["unauthorized", None],
    "no key": ["no_answer", None],
}


def test_litellm_is_imported_late_asked_once_and_tells_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.summarizer.calling_litellm"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "LITELLM_LOG": "DEBUG"},
    )
    [report] = done.stdout.splitlines()  # litellm likes to print
    assert orjson.loads(report) == EXPECTED
    told = done.stdout + done.stderr
    assert "no answer through litellm" in told
    for secret in (TEXT, PROVIDERS_KEY, CALLERS_KEY):
        assert secret not in told
