"""The replay through the proxy measures what the provider bills, and the ways beside it are told fairly."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from bench import baselines, folding, playback, prompts, reckoning, report, traces
from bench.folding import Run
from bench.playback import Case, Ledger, Replayed, Turn, turn_of
from bench.processes import ROOT, BenchmarkFailed
from bench.prompts import Bill, Piece, Prompt, SummaryCall, bill
from bench.reckoning import ALL, EVERY_TURN, EVERY_TURN_AT_BEST, FULL, OURS, SLIDING, Figures
from bench.traces import Conversation
from proxy.fold.transcript import fenced
from proxy.simulator import Simulator, SimulatorConfig

RUN = Run(left_out=2, most_turns=60, pause=0.1, seconds=90)
ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def said(pattern: str) -> tuple[Piece, ...]:
    """Messages from `u500 a1000 t200`: each other than the others, of so many tokens."""
    words = pattern.split()
    return tuple(Piece(ROLES[word[0]], b"%d" % at, int(word[1:])) for at, word in enumerate(words))


def growing(pattern: str, opening: int = 3) -> list[Prompt]:
    """What a client sends before each of the assistant's messages, and at the end."""
    pieces = said(pattern)
    ends = [at for at, piece in enumerate(pieces) if piece.role == "assistant"]
    return [Prompt(opening, pieces[:end]) for end in [*ends, len(pieces)]]


def messages(*texts: str) -> list[dict[str, Any]]:
    """A user and an assistant in turns."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def conversation(*several: dict[str, Any]) -> Conversation:
    return Conversation("one", "", [], list(several), [])


def cases(*conversations: Conversation, share: float = 0.5, most_turns: int | None = None) -> list[Case]:
    return playback.cases({"talk": conversations}, [share], most_turns)


async def replayed(*several: Case) -> list[Replayed]:
    return await playback.replay(several, at_once=2, pause=0)


# What is replayed.


def test_a_turn_is_whatever_was_said_before_an_answer_and_a_greeting_answers_nobody() -> None:
    roles = ["system", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert conversation(*({"role": role} for role in roles)).turns() == [3, 5]


def test_an_agent_without_a_user_begins_with_its_instructions() -> None:
    assert conversation(
        *({"role": role} for role in ["system", "assistant", "tool", "assistant"])
    ).turns() == [1, 3]


def test_all_files_of_the_folder_are_read_also_where_nobody_knows_the_model(tmp_path: Path) -> None:
    trace = {"id": "one", "model": None, "tools": None, "messages": messages("Hi", "Hello."), "usage": []}
    (tmp_path / "aider.jsonl").write_text(json.dumps(trace) + "\n")
    ((kind, (found,)),) = traces.by_kind(tmp_path).items()
    assert (kind, found.model, found.tools, found.turns()) == ("aider", "", [], [1])


def test_a_window_holds_the_instructions_a_share_of_the_rest_and_the_answer() -> None:
    several = [{"role": "system", "content": "word " * 900}, *messages("word " * 4000, "ok", "go on", "done")]
    (quarter,), (half,) = (cases(conversation(*several), share=share) for share in (0.25, 0.5))
    longest = quarter.prompts[-1]
    rest = sum(piece.tokens for piece in longest.pieces[1:])
    assert longest.pieces[-1].role == "user"
    assert quarter.window == longest.tokens - rest + round(rest / 4) + playback.ANSWER
    assert half.window - quarter.window == pytest.approx(rest / 4, abs=1)


def test_no_window_is_smaller_than_any_that_is_in_use() -> None:
    (case,) = cases(conversation(*messages("Hi", "Hello.")))
    assert case.window == playback.FLOOR


def test_a_recording_that_no_window_would_make_acceptable_is_left_out() -> None:
    orphan = {"role": "tool", "tool_call_id": "1", "content": "42"}
    assert cases(conversation(*messages("Hi"), orphan, *messages("Hi", "Hello.")[1:])) == []
    assert cases(conversation(*messages("Hi"))) == []


def test_only_the_first_turns_are_replayed_where_so_many_are_asked_for() -> None:
    (case,) = cases(conversation(*messages("a", "b", "c", "d", "e", "f")), most_turns=2)
    assert [len(prompt.pieces) for prompt in case.prompts] == [1, 3]


# Through the proxy.


async def test_what_is_measured_is_what_the_provider_bills_and_has_cached() -> None:
    texts = [f"{number} " + "many words " * 400 for number in range(8)]
    (case,) = cases(conversation({"role": "system", "content": "Be brief."}, *messages(*texts)), share=3.0)
    (one,) = await replayed(case)
    assert [turn.status for turn in one.turns] == [200] * 4
    assert [turn.received for turn in one.turns] == one.sent
    assert [turn.billed for turn in one.turns] == [prompt.tokens for prompt in one.sent]
    assert [turn.billed_cached for turn in one.turns] == prompts.cached(one.sent)
    assert one.turns[-1].billed_cached > 2_000
    assert one.turns[-1].announced == pytest.approx(one.turns[-1].billed, rel=0.05)


async def test_tools_are_sent_and_measured() -> None:
    function = {"name": "look", "description": "Look it up.", "parameters": {"properties": {"at": {}}}}
    tools = [{"type": "function", "function": function}]
    (case,) = cases(replace(conversation(*messages("Hi", "Hello.")), tools=tools))
    (one,) = await replayed(case)
    assert one.sent[0].opening > 15
    assert one.turns[0].billed == one.sent[0].tokens


async def test_a_newest_message_that_does_not_fit_by_itself_is_refused_and_nobodys_fault() -> None:
    too_much = "many words " * 3_000
    (case,) = cases(conversation(*messages("Hi", "Hello.", too_much, "Oh.")), share=0.25)
    (one,) = await replayed(case)
    assert [turn.status for turn in one.turns] == [200, 400]
    assert "maximum context length" in one.turns[1].error
    assert (len(one.answered), len(one.refused), one.avoidable()) == (1, 1, [])


async def test_summary_calls_are_told_from_the_requests_of_their_caller_and_billed_as_answered() -> None:
    asked = [{"role": "user", "content": fenced("⟦0 user⟧\nHi")}]
    async with Simulator(SimulatorConfig(windows={"small": 10})) as simulator, ClientSession() as session:
        ledger = Ledger(simulator)
        usages = []
        for model, content in [("any", asked), ("any", messages("Hi")), ("small", asked)]:
            url, headers = f"{simulator.base_url}/chat/completions", {"Authorization": "Bearer sk-one"}
            body = {"model": model, "messages": content, "max_tokens": 9}
            async with session.post(url, json=body, headers=headers) as response:
                usages.append((await response.json()).get("usage"))
        assert ledger.summaries("sk-other") == []
        (call,) = ledger.summaries("sk-one")  # the one that was refused costs nothing
        assert (call.input, call.output) == (usages[0]["prompt_tokens"], usages[0]["completion_tokens"])
        (sent,) = ledger.take_sent("sk-one")
        assert sent.tokens == usages[1]["prompt_tokens"]
        assert ledger.take_sent("sk-one") == []


async def test_conversations_that_begin_alike_are_told_apart() -> None:
    several = cases(*[conversation(*messages("Hi", "Hello.", end, "Bye.")) for end in ("one", "two")])
    first, second = await asyncio.wait_for(replayed(*several), 30)
    assert first.sent[0] == second.sent[0]
    assert first.sent[1] != second.sent[1]
    assert (first.case.model, first.case.credential) != (second.case.model, second.case.credential)


@pytest.mark.skipif(not traces.by_kind(), reason="the recordings are not beside the project")
@pytest.mark.parametrize("share", folding.SHARES)
async def test_recorded_conversations_are_answered_in_windows_that_they_do_not_fit(share: float) -> None:
    """A few of each kind; `make bench-folding` takes them all."""
    few = {kind: several[:3] for kind, several in traces.by_kind().items()}
    several = playback.cases(few, [share], 20)
    found = await playback.replay(several, at_once=4, pause=0.05)
    assert [folding.complaint(one.case, turn) for one in found for turn in one.avoidable()] == []
    assert sum(one.folds().total() for one in found) > 0
    assert any(one.summaries for one in found)


# What became of a request.

RECEIVED = Prompt(3, said("s100 u50 a20 u300"))
ANSWER = {"usage": {"prompt_tokens": 163, "prompt_tokens_details": {"cached_tokens": 128}}}


def test_an_answer_tells_by_its_headers_what_was_done() -> None:
    sent = [RECEIVED, Prompt(3, said("s100 u60"))]
    headers = {
        "X-Tailfold-Action": "reuse, extract",
        "X-Tailfold-Fold": "f1",
        "X-Tailfold-Tokens": "163",
        "X-Tailfold-Original-Tokens": "473",
    }
    turn = turn_of(RECEIVED, sent, 200, headers, ANSWER)
    assert turn == Turn(RECEIVED, sent[1], 200, "", ("reuse", "extract"), "f1", 473, 163, 128, attempts=2)


def test_a_proxy_that_says_nothing_is_understood_too() -> None:
    refused = turn_of(RECEIVED, [RECEIVED], 400, {}, {"error": {"message": "too long"}})
    assert refused == Turn(RECEIVED, None, 400, "too long")
    assert turn_of(RECEIVED, [RECEIVED], 200, {"X-Tailfold-Tokens": "7"}, ANSWER).announced == 7


def test_a_bill_that_is_not_what_was_measured_ends_the_run() -> None:
    with pytest.raises(BenchmarkFailed, match="163 tokens were billed for 473"):
        playback.surely(turn_of(RECEIVED, [RECEIVED], 200, {}, ANSWER))


def test_a_refusal_is_avoidable_where_what_must_be_kept_fits_or_where_it_is_not_for_length() -> None:
    (case,) = cases(conversation(*messages("Hi", "Hello.")))
    fits, too_much = (Prompt(3, said(f"s100 u5000 a20 u{newest}")) for newest in (300, 2_000))
    turns = [Turn(fits, None, 400), Turn(too_much, None, 400), Turn(too_much, None, 502)]
    assert Replayed(case, tuple(turns), ()).avoidable() == [turns[0], turns[2]]


def test_a_fold_counts_once_and_by_what_the_first_request_was_told() -> None:
    (case,) = cases(conversation(*messages("Hi", "Hello.")))
    told = [
        ("pass", ""),
        ("fold", "f1"),
        ("reuse", "f1"),
        ("reuse", "f2"),
        ("truncate", "f3"),
        ("reuse", "f3"),
    ]
    turns = [Turn(RECEIVED, RECEIVED, 200, actions=(action,), fold=fold) for action, fold in told]
    assert Replayed(case, tuple(turns), ()).folds() == {"fold": 1, "reuse": 1, "truncate": 1}


# What it costs.


def test_what_must_be_kept_are_the_tools_the_instructions_and_the_newest_user_message() -> None:
    assert Prompt(30, said("s100 u50 a20 u300 a40 t70")).must_be_kept() == 430
    assert Prompt(30, said("s100 a20")).must_be_kept() == 130


def test_a_prefix_is_shared_up_to_the_first_message_that_differs() -> None:
    before, after = Prompt(5, said("s10 u20 a30")), Prompt(5, said("s10 u21 a30"))
    assert after.shared_with(before) == 15
    assert before.shared_with(before) == 65
    assert replace(after, opening=6).shared_with(before) == 0


def test_a_history_that_grows_is_cached_but_for_what_is_new() -> None:
    found = bill(growing("s1200 u100 a100 u100 a100 u100", opening=0))
    assert found == Bill(sent=1300 + 1500 + 1700, cached=1280 + 1408, followed=2800, reused=2800)
    assert found.reuse == 1
    assert found.cost(caching=False) == 4500
    assert found.cost(caching=True) == pytest.approx(4500 - 0.9 * 2688)


def test_summary_calls_are_part_of_the_price() -> None:
    found = bill([], [SummaryCall(1000, 100), SummaryCall(2000, 200, cached=1500)])
    assert (found.calls, found.sent) == (2, 0)
    assert found.cost(caching=False) == pytest.approx(0.2 * 3000 + 0.8 * 300)
    assert found.cost(caching=True) == pytest.approx(0.2 * (3000 - 0.9 * 1500) + 0.8 * 300)


def test_bills_add_up() -> None:
    one, other = bill(growing("u100 a50 u10")), bill(growing("u30"), [SummaryCall(9, 2)])
    assert (one + other).sent == one.sent + other.sent
    assert (one + other).call_input == 9
    assert one + Bill() == one


# What others would have sent.


def test_a_sliding_window_keeps_the_instructions_and_the_newest_messages_with_their_results() -> None:
    (*_, last) = growing("s10 u100 a50 t50 t50 a20 u30")
    assert baselines.sliding_window([last], 1000) == [last]
    (slid,) = baselines.sliding_window(
        [last], 213
    )  # 200 are left for messages: exactly the newest three groups
    assert [piece.tokens for piece in slid.pieces] == [10, 50, 50, 50, 20, 30]
    (slid,) = baselines.sliding_window([last], 212)
    assert [piece.tokens for piece in slid.pieces] == [10, 20, 30]
    (slid,) = baselines.sliding_window([last], 5)
    assert [piece.tokens for piece in slid.pieces] == [10, 30]


def test_a_sliding_window_loses_the_cached_prefix_with_every_turn_that_it_slides() -> None:
    history = growing("s10 " + "u100 a100 " * 10 + "u100", opening=0)
    slid = baselines.sliding_window(history, 510)
    assert all(prompt.tokens <= 510 for prompt in slid)
    assert bill(slid).reuse < 0.3 < bill(history).reuse


def test_folding_on_every_turn_sums_up_all_but_the_newest_anew_past_the_trigger() -> None:
    history = growing("s10 u900 a900 u900 a90 u900", opening=0)
    sent, calls = baselines.folding_every_turn(history, trigger=2000, summary_tokens=70)
    assert [[piece.tokens for piece in prompt.pieces] for prompt in sent] == [
        [10, 900],
        [10, 70, 900],
        [10, 70, 90, 900],
    ]
    assert [(call.input, call.output) for call in calls] == [
        (baselines.ASKING + 1800, 70),
        (baselines.ASKING + 2700, 70),
    ]
    assert [call.cached for call in calls] == [0, 2300 // 128 * 128]
    assert sent[1].pieces[1] != sent[2].pieces[1]


def test_nothing_is_summed_up_where_all_of_it_is_the_newest() -> None:
    history = growing("s10 u5000", opening=0)
    assert baselines.folding_every_turn(history, trigger=2000, summary_tokens=70) == (history, [])


# The figures, and how they are shown.


def of_kind(kind: str, share: float, *turns: Turn) -> Replayed:
    case = Case(kind, share, 0, conversation(*messages("Hi", "Hello.")), (RECEIVED,))
    return Replayed(case, turns, (SummaryCall(400, 40),))


def test_there_is_a_row_for_every_kind_and_share_and_one_for_all_kinds() -> None:
    answered, refused = (
        Turn(RECEIVED, Prompt(3, said("s100 u60")), 200, attempts=2),
        Turn(RECEIVED, None, 400),
    )
    found = reckoning.figures(
        [of_kind("b", 0.5, answered), of_kind("a", 0.5, answered, refused), of_kind("a", 0.25, answered)]
    )
    assert [(row.kind, row.share) for row in found] == [
        ("a", 0.25),
        ("a", 0.5),
        ("b", 0.5),
        (ALL, 0.25),
        (ALL, 0.5),
    ]
    everything = found[-1].figures
    assert (everything.conversations, everything.requests, everything.avoidable) == (2, 3, 1)
    assert (everything.recovered, everything.unavoidable) == (2, 0)
    assert {way: one.sent for way, one in everything.bills.items()} == {
        OURS: 326,
        FULL: 946,
        SLIDING: 946,
        EVERY_TURN: 946,
        EVERY_TURN_AT_BEST: 946,
    }


def test_costs_are_shares_of_the_whole_history_without_caching() -> None:
    (row, _) = reckoning.figures([of_kind("a", 0.5, Turn(RECEIVED, Prompt(3, said("s100 u60")), 200))])
    assert row.figures.cost(FULL, caching=False) == 100
    assert row.figures.cost(OURS, caching=False) == pytest.approx(100 * (163 + 0.2 * 400 + 0.8 * 40) / 473)


def test_folding_on_every_turn_is_billed_with_and_without_a_cache_for_its_calls() -> None:
    history = growing("u900 a900 u900 a900 u900 a900 u900")
    (row, _) = reckoning.figures([of_kind("a", 0.5, *(Turn(one, one, 200) for one in history))])
    plain, best = (row.figures.bills[way] for way in (EVERY_TURN, EVERY_TURN_AT_BEST))
    assert (plain.calls, plain.call_output, plain.call_cached) == (3, 3 * 40, 0)  # as long as Tailfold's one
    assert best.call_cached > 3_000
    assert (best.sent, best.call_input) == (plain.sent, plain.call_input)
    assert row.figures.cost(EVERY_TURN, caching=False) == row.figures.cost(EVERY_TURN_AT_BEST, caching=False)


def test_where_nothing_was_answered_nothing_is_divided() -> None:
    (row, _) = reckoning.figures([of_kind("a", 0.5, Turn(RECEIVED, None, 400))])
    assert row.figures.cost(OURS, caching=True) == 0
    assert "**1: FAIL**" in folding.section([row], RUN)


def test_the_tables_say_what_was_refused_and_what_is_meant() -> None:
    found = reckoning.figures([of_kind("aider", 0.25, Turn(RECEIVED, RECEIVED, 200))])
    tables = folding.section(found, RUN)
    assert "1 recorded conversations; 2 more are refused in any window; at most 60 turns of each" in tables
    assert "| aider | 25 % | 1 | 1 | 0 | 0: pass | 0 | 0 | 0 | 1 | 473 | 473 | 100 % |" in tables
    assert "| full history | 25 % | 473 | 100 % | 0 | 100.0 | 100.0 |" in tables
    assert "0.2 of the price" in tables


def test_a_refusal_that_could_have_been_avoided_is_told_of() -> None:
    one = of_kind("aider", 0.25)
    assert folding.complaint(one.case, Turn(RECEIVED, None, 400, "too long")) == (
        "one at 25 %, 4 messages (473 tokens, 403 to be kept, window 2000): 400 too long"
    )


def test_figures_add_up() -> None:
    one = Figures(conversations=1, folds=2, bills={OURS: Bill(sent=5)})
    both = one + Figures(conversations=1, announced=7)
    assert (both.conversations, both.folds, both.announced) == (2, 2, 7)
    assert both.bills[OURS].sent == 5


def test_the_document_has_a_place_for_the_tables() -> None:
    assert "| aider |" in report.with_section(folding.DOCUMENT.read_text(), "| aider |")


def command(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "bench.folding", "--traces", str(folder), "--pause", "0", *more]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)


def test_without_recordings_nothing_is_measured_and_nothing_written(tmp_path: Path) -> None:
    assert command(tmp_path, "--write").returncode == 2
    assert "too few to be written down" in command(tmp_path, "--write", "--only", "aider").stderr


def test_without_recordings_it_is_said_what_is_missing_and_where_it_is_looked_for(tmp_path: Path) -> None:
    absent = tmp_path / "traces"
    told = command(absent).stderr
    assert f"the folder {absent} does not exist" in told
    for word in ("aider.jsonl", "--traces FOLDER", '"messages"', '"usage"'):
        assert word in told
    assert f"the folder {tmp_path} has no file *.jsonl" in command(tmp_path).stderr
    (tmp_path / "talk.jsonl").write_text("")
    assert f"the folder {tmp_path} has talk, but not aider" in command(tmp_path, "--only", "aider").stderr
    assert "no turn was recorded" in command(tmp_path).stderr


def test_the_command_prints_every_figure(tmp_path: Path) -> None:
    trace = {"id": "1", "model": None, "tools": None, "messages": messages("Hi", "Hello."), "usage": []}
    (tmp_path / "talk.jsonl").write_text(json.dumps(trace) + "\n")
    done = command(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(row["kind"], row["share"]) for row in found["rows"]] == [
        ("talk", 0.25),
        ("talk", 0.5),
        (ALL, 0.25),
        (ALL, 0.5),
    ]
    assert found["rows"][0]["figures"]["bills"][FULL]["sent"] > 0
    assert found["rows"][0]["cost"][FULL]["plain"] == 100
