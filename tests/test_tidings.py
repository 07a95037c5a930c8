"""What is told of folds: numbers and names; to metrics always, to the log and listeners where wanted."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.events import Events
from proxy.metrics import Metrics
from proxy.tidings import Made, Reason, Tidings
from proxy.usage import Usage
from tests.fold.chats import chat
from tests.fold.lanes import fold_of

ALICE = b"a" * 16
FOLD = fold_of(chat("u:900 a:900 u:900 a:900 u"), 4, 2, told=300)


async def told(tells: bool) -> tuple[Metrics, list[dict[str, Any]], list[tuple[str, dict[str, Any]]]]:
    metrics, events = Metrics(), Events()
    tidings = Tidings(metrics, events, tells=tells)
    heard = []
    with capture_logs() as logged, events.listening(ALICE) as listener:
        tidings.began(ALICE, "c")
        tidings.filled(ALICE, "c", "0.5")
        tidings.made(Made(ALICE, "c", FOLD, Reason.SOFT, 1.23456))
        tidings.used(ALICE, "c", FOLD, 3_300)
        tidings.imagined(ALICE, "c", FOLD, Reason.HARD)
        tidings.failed(ALICE, "c", Reason.MUST, "timeout")
        tidings.warned(ALICE, "c", "summary_late")
        tidings.asked(0.5, "ok", Usage(100, 10))
        tidings.asked(0.5, "timeout")
        if tells:
            async for event in listener:
                assert (event.tenant, event.conversation) == (ALICE, "c")
                heard.append((event.kind, dict(event.data)))
                if event.kind == "warning":
                    break
    return metrics, [dict(entry) for entry in logged], heard


async def test_whoever_listens_hears_it_all() -> None:
    _, _, heard = await told(True)
    assert heard == [
        ("conversation_began", {}),
        ("conversation_filled", {"share": "0.5"}),
        (
            "fold_made",
            {
                "fold": "fold-4",
                "strategy": "summary",
                "trigger": "soft",
                "messages": 3,
                "tokens_before": 3_600,
                "tokens_after": 300,
                "seconds": 1.235,
            },
        ),
        ("fold_used", {"fold": "fold-4", "strategy": "summary", "tokens_saved": 3_300}),
        ("fold_observed", {"trigger": "hard", "messages": 3}),
        ("fold_failed", {"trigger": "must", "why": "timeout"}),
        ("warning", {"warning": "summary_late"}),
    ]


async def test_the_log_has_what_happens_to_folds_and_what_is_bad_as_a_warning() -> None:
    _, logged, _ = await told(True)
    assert [(entry["event"], entry["log_level"], entry["conversation"]) for entry in logged] == [
        ("fold_made", "info", "c"),
        ("fold_used", "info", "c"),
        ("fold_observed", "info", "c"),
        ("fold_failed", "warning", "c"),
        ("warning", "warning", "c"),
    ]


async def test_never_a_word_of_what_was_said() -> None:
    _, logged, heard = await told(True)
    assert FOLD.text not in f"{logged} {heard}"


async def test_who_wants_to_hear_nothing_has_the_metrics() -> None:
    _, logged, heard = await told(False)
    assert (logged, heard) == ([], [])


@pytest.mark.parametrize("tells", [True, False])
async def test_everything_is_counted(tells: bool) -> None:
    metrics, _, _ = await told(tells)
    counted = {
        ("conversations_total", ()): 1,
        ("conversations_filled_total", (("share", "0.5"),)): 1,
        ("folds_total", (("strategy", "summary"), ("trigger", "soft"), ("result", "made"))): 1,
        ("folds_total", (("strategy", "summary"), ("trigger", "hard"), ("result", "observed"))): 1,
        ("folds_total", (("strategy", "summary"), ("trigger", "must"), ("result", "failed"))): 1,
        ("fold_ratio_sum", (("strategy", "summary"),)): 12,
        ("summary_tokens_total", (("kind", "input"),)): 100,
        ("summary_failures_total", (("reason", "timeout"),)): 1,
        ("summary_seconds_count", (("result", "ok"),)): 1,
    }
    for (name, labels), value in counted.items():
        assert metrics.registry.get_sample_value(f"tailfold_{name}", dict(labels)) == value, name
