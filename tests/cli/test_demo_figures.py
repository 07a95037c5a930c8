from __future__ import annotations

from openai.types import CompletionUsage
from openai.types.completion_usage import PromptTokensDetails

from proxy.cli.demo_figures import Step, Totals, Turn

FOLDED = {
    "x-tailfold-tokens": "300",
    "x-tailfold-original-tokens": "900",
    "x-tailfold-limit": "600",
    "x-tailfold-action": "fold,truncate",
    "x-tailfold-folded-messages": "12",
    "x-tailfold-fold": "f1",
}


def usage(billed: int, cached: int | None) -> CompletionUsage:
    details = PromptTokensDetails(cached_tokens=cached)
    return CompletionUsage(
        prompt_tokens=billed, completion_tokens=1, total_tokens=billed + 1, prompt_tokens_details=details
    )


def step(received: int, sent: int, action: str = "pass", fold: str | None = None) -> Step:
    return Step(received, sent, 600, (action,), 0, fold)


def test_a_step_is_what_the_head_of_its_answer_says() -> None:
    told = Step.told(FOLDED, usage(310, 128))
    assert told == Step(900, 300, 600, ("fold", "truncate"), 12, "f1", 310, 128)


def test_where_nothing_is_said_nothing_was_done() -> None:
    assert Step.told({"x-tailfold-tokens": "300"}, None) == Step(300, 300, 0, ("pass",), 0, None)
    assert Step.told({}, usage(7, None)).cached == 0


def test_the_request_that_folded_is_the_one_to_tell_of() -> None:
    fold, later = step(900, 300, "fold", "f1"), step(1000, 400, "reuse", "f1")
    assert Turn(1, (fold, later)).decisive is fold
    assert Turn(1, (later,)).decisive is later


def test_every_fold_is_counted_once() -> None:
    turns = [
        Turn(1, (step(500, 500),)),
        Turn(2, (step(900, 300, "fold", "f1"), step(950, 350, "reuse", "f1"))),
        Turn(3, (step(1000, 400, "reuse", "f2"), step(1100, 300, "truncate"))),
    ]
    assert Totals.of(turns, 800, []).folds == 3


def test_what_summaries_cost_is_not_saved() -> None:
    turns = [Turn(1, (step(600, 300), step(1000, 200))), Turn(2, (step(400, 400),))]
    totals = Totals.of(turns, 800, [60, 40])
    assert (totals.received_tokens, totals.sent_tokens, totals.summary_tokens) == (2000, 1000, 100)
    assert totals.saved_share == 0.5
    assert totals.refused_without == 1


def test_the_cached_share_is_one_of_what_was_billed() -> None:
    steps = (Step.told({}, usage(100, 0)), Step.told({}, usage(300, 200)), Step.told({}, None, refused=True))
    totals = Totals.of([Turn(1, steps)], 800, [])
    assert totals.cached_share == 0.5
    assert totals.refused == 1
