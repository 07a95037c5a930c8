from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.fold.assemble import assembled, belongs, folded, goes_on_whole, sent, sent_before
from proxy.fold.history import History
from proxy.fold.tail import Allowance, deeper_cut
from proxy.messages import read
from tests.fold.chats import body_of, chat, request_of, valid_histories
from tests.fold.lanes import fold_of
from tests.fold.validator import INSTRUCTING, faults, user_speaks_first


def told(raw: bytes) -> list[str]:
    return [message["content"] for message in json.loads(raw)["messages"]]


def test_instructions_then_the_summary_then_the_tail() -> None:
    past = chat("s u a d u a s u")
    body = assembled(request_of(past), past, fold_of(past, 2))
    assert body is not None
    assert told(body) == ["s at 0", "d at 3", "the first 2", "u at 4", "a at 5", "s at 6", "u at 7"]


def test_what_is_kept_of_the_folded_stands_between_summary_and_tail() -> None:
    past = chat("s u a u a a a")
    body = assembled(request_of(past), past, fold_of(past, 4, 0, 2))
    assert body is not None
    assert told(body) == ["s at 0", "the first 4", "u at 1", "u at 3", "a at 5", "a at 6"]


def test_a_summary_may_be_of_several_messages() -> None:
    past = chat("u a u")
    pair = (b'{"role":"user","content":"so far"}', b'{"role":"assistant","content":"I see"}')
    fold = msgspec.structs.replace(fold_of(past, 2), messages=pair)
    assert sent(past, fold) == [*pair, past.turns[2].raw]


def test_what_stands_before_a_turn_is_the_beginning_of_what_is_sent() -> None:
    past = chat("s u a d u a s u")
    assert sent_before(past, None, 4) == [turn.raw for turn in past.turns[:7]]
    fold = fold_of(past, 2)
    assert sent_before(past, fold, 2) == sent(past, fold)[:3]
    assert sent_before(past, fold, 4) == sent(past, fold)[:6]
    assert sent_before(past, fold, 5) == sent(past, fold)


def test_all_may_be_folded() -> None:
    past = chat("s u a")
    assert sent(past, fold_of(past, 2)) == [past.turns[0].raw, *fold_of(past, 2).messages]


def test_nothing_but_the_messages_is_touched() -> None:
    past = chat("u a u")
    fold = fold_of(past, 2)
    before, after = b'{ "x":1e400,\t"messages" : ', b' ,"seed":123456789012345678901, "x": "\\u00e9" }\n'
    body = before + b"[ %b ]" % b" , ".join(turn.raw for turn in past.turns) + after
    assert (
        assembled(read(body, compressed=False), past, fold)
        == before + b"[%b]" % b",".join(sent(past, fold)) + after
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[],"messages":[]}',
        b'{"messages":[],"mess\\u0061ges":[]}',
        b'{"model":"m","metadata":{"messages":[]}}',
        b"{}",
    ],
)
def test_a_body_without_its_messages_or_with_two_of_them_is_left_to_the_upstream(body: bytes) -> None:
    past = chat("u a u")
    assert assembled(read(body, compressed=False), past, fold_of(past, 2)) is None


def test_a_fold_of_another_history_is_never_sent() -> None:
    past, other = chat("u a u a u"), chat("u a a a u")
    fold = fold_of(other, 4)
    assert not belongs(fold, past)
    assert assembled(request_of(past), past, fold) is None
    assert assembled(request_of(past), past, fold_of(chat("u a u a u a u"), 6)) is None
    assert belongs(fold_of(chat("u a u a u a u"), 2), past)


@dataclass(frozen=True)
class Folded:
    """The messages of a request before and after."""

    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


@st.composite
def folded_requests(draw: st.DrawFn) -> Folded:
    past = draw(valid_histories)
    deeper = deeper_cut(past, [], Allowance(draw(st.integers(0, 30_000)), 10**6))
    assume(deeper is not None)
    assert deeper is not None
    raw = assembled(request_of(past), past, fold_of(past, deeper.cut.covers, *deeper.cut.kept))
    assert raw is not None
    return Folded(json.loads(body_of(past))["messages"], json.loads(raw)["messages"])


@given(folded_requests())
def test_what_was_valid_stays_valid(request: Folded) -> None:
    assert faults(request.before) == []
    assert faults(request.after) == []
    assert user_speaks_first(request.after) or not user_speaks_first(request.before)


@given(folded_requests())
def test_every_instruction_stays_in_its_order(request: Folded) -> None:
    instructions = [message for message in request.after if message["role"] in INSTRUCTING]
    summaries = [message for message in instructions if message["content"].startswith("the first ")]
    assert len(summaries) == 1
    instructions.remove(summaries[0])
    assert instructions == [message for message in request.before if message["role"] in INSTRUCTING]


@given(folded_requests())
def test_whatever_is_kept_is_the_clients_own_and_in_its_order(request: Folded) -> None:
    rest = iter(request.before)
    assert all(message in rest for message in request.after if message["role"] not in INSTRUCTING)


# For upstreams that are particular, and of turns that are too large.


def test_a_template_that_takes_no_second_system_message_gets_the_plainer_form() -> None:
    past = chat("s u a u a u")
    plainer = (b'{"role":"user","content":"so far"}', b'{"role":"assistant","content":"I see"}')
    fold = msgspec.structs.replace(fold_of(past, 2), plainer=plainer)
    request = folded(request_of(past), past, fold, plainly=True)
    assert request is not None
    assert told(request.raw) == ["s at 0", "so far", "I see", "u at 3", "a at 4", "u at 5"]
    assert sent(past, fold) == [past.turns[0].raw, *fold.messages, *(turn.raw for turn in past.turns[3:])]
    without = msgspec.structs.replace(fold, plainer=())
    assert sent(past, without, plainly=True) == sent(past, without)


APPENDED = b'\\n\\nso \\"far\\"'


@pytest.mark.parametrize(
    ("instruction", "told"),
    [
        (b'{"role": "system", "content": "Be \\u0062rief."}', 'Be brief.\n\nso "far"'),
        (b'{"content":"","x":1e400,"role":"developer"}', '\n\nso "far"'),
        (
            b'{"role":"system","content":[ {"type":"text","text":"Be brief."} ]}',
            [{"type": "text", "text": "Be brief."}, {"type": "text", "text": '\n\nso "far"'}],
        ),
    ],
)
def test_a_summary_may_stand_behind_the_text_of_the_first_instruction(
    instruction: bytes, told: object
) -> None:
    past = with_first(chat("s u a s u"), instruction)
    fold = msgspec.structs.replace(fold_of(past, 2), appended=APPENDED)
    first, *rest = sent(past, fold)
    assert json.loads(first) == {**json.loads(instruction), "content": told}
    assert rest == [past.turns[3].raw, past.turns[4].raw]


@pytest.mark.parametrize("content", [b"null", b"[]", b"7", b'"\\ud800"', b""])
def test_an_instruction_without_a_text_of_its_own_stays_as_it_is(content: bytes) -> None:
    past = with_first(chat("s u a u"), b'{"role":"system","content":%b}' % content)
    fold = msgspec.structs.replace(fold_of(past, 2), appended=APPENDED)
    assert sent(past, fold) == [past.turns[0].raw, *fold.messages, past.turns[3].raw]


def test_without_an_instruction_or_where_that_was_refused_a_summary_is_a_message_of_its_own() -> None:
    past = chat("u a u")
    fold = msgspec.structs.replace(fold_of(past, 2), appended=APPENDED)
    assert sent(past, fold) == [*fold.messages, past.turns[2].raw]
    past = chat("s u a u")
    plainer = (b'{"role":"user","content":"so far"}',)
    fold = msgspec.structs.replace(fold_of(past, 2), appended=APPENDED, plainer=plainer)
    assert sent(past, fold, plainly=True) == [past.turns[0].raw, *plainer, past.turns[3].raw]


def with_first(past: History, raw: bytes) -> History:
    return replace(past, turns=[replace(past.turns[0], raw=raw), *past.turns[1:]])


def test_a_kept_turn_that_was_too_large_is_sent_as_the_record_has_it() -> None:
    past = chat("u a u c t")
    shorter = b'{"role":"tool","tool_call_id":"call_3_0","content":"short"}'
    fold = msgspec.structs.replace(fold_of(past, 5, 2, 3, 4), shrunk={4: shorter})
    assert sent(past, fold) == [*fold.messages, past.turns[2].raw, past.turns[3].raw, shorter]
    # And so it stays when the conversation goes on.
    longer = chat("u a u c t a u")
    assert sent(longer, fold) == [*sent(past, fold), longer.turns[5].raw, longer.turns[6].raw]


def test_what_is_sent_is_an_array_of_it() -> None:
    past = chat("s u a u")
    fold = fold_of(past, 2)
    request = folded(request_of(past), past, fold)
    assert request is not None
    assert request.messages == b"[" + b",".join(sent(past, fold)) + b"]"
    assert read(request.raw, compressed=False).messages == request.messages


def test_a_result_that_comes_when_its_call_is_folded_stands_alone_behind_the_fold() -> None:
    past = chat("u a u c2 t u a t u")
    assert not goes_on_whole(past, fold_of(past, 5))
    assert goes_on_whole(past, fold_of(past, 5, 3))  # unless the call was kept
    assert goes_on_whole(past, fold_of(past, 2))
    assert goes_on_whole(chat("u c t a u"), fold_of(chat("u c t a u"), 4))
