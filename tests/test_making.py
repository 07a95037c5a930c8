"""A fold is made by a model in as many steps as it takes, and without one where that fails."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import orjson
import pytest
from msgspec import structs

from proxy.fold.assemble import belongs, sent
from proxy.fold.history import History, Turn, history
from proxy.fold.lengths import Lengths
from proxy.fold.record import Fold, Kind
from proxy.fold.tail import Cut
from proxy.fold.wording import RECORD_WANTED
from proxy.making import Job, Maker, Prefix
from proxy.summarizer import TOO_LONG, SummaryFailed, SummaryRefused, Wanted, Written

TENANT = bytes(16)


class Writing:
    """A summary model that gives these answers one after the other, and then the last for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Wanted] = []

    async def write(self, wanted: Wanted) -> Written:
        self.asked.append(wanted)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        message = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
        return Written(message, "stop", wanted.preferred or wanted.model, None)

    @property
    def said(self) -> list[str]:
        return [orjson.loads(wanted.messages)[-1]["content"] for wanted in self.asked]


def words(text: str) -> int:
    return len(text.split())


def turn(number: int, role: str, tokens: int = 400) -> Turn:
    content = f"message {number} about src/file_{number}.py: " + "word " * (tokens - 8)
    return Turn(orjson.dumps({"role": role, "content": content}), role, b"%16d" % number, tokens)


def talk(length: int, tokens: int = 400) -> History:
    roles = ["user" if number % 2 == 0 else "assistant" for number in range(length)]
    return history([turn(number, role, tokens) for number, role in enumerate(roles)], TENANT)


def job(of: History, cut: Cut, **others: Any) -> Job:
    credentials = [(b"Authorization", b"Bearer sk")]
    given = Job(of, cut, "gpt-4o", "gpt-4o-mini", Lengths(window=128_000), credentials, "system")
    return replace(given, **others)


SHORT = "The user works on several files, and all of them are mended by now."


async def test_a_summary_becomes_a_fold_that_belongs_to_the_history() -> None:
    of = talk(8)
    writing = Writing(SHORT)
    fold = await Maker(writing, words, clock=lambda: 5.0, name=lambda: "f1").summary(
        job(of, Cut(6, (), None))
    )
    assert belongs(fold, of)
    assert (fold.id, fold.created, fold.covers, fold.kind) == ("f1", 5.0, 6, Kind.SUMMARY)
    assert (fold.model, fold.parent, fold.original_tokens) == ("gpt-4o-mini", None, 2400)
    assert SHORT in fold.text
    assert "src/file_5.py" in fold.text  # the index, which no model had to write
    assert fold.summary_tokens < fold.original_tokens / 5
    assert [orjson.loads(message)["role"] for message in sent(of, fold)] == ["system", "user", "assistant"]


async def test_a_later_fold_merges_the_one_before_and_tells_only_what_is_new() -> None:
    of = talk(12)
    writing = Writing(SHORT, "Both records in one.")
    maker = Maker(writing, words)
    base = await maker.summary(job(of, Cut(4, (), None)))
    later = await maker.summary(job(of, Cut(8, (), base)))
    assert later.parent == base.id
    assert SHORT in writing.said[1]
    assert "message 4 " in writing.said[1]
    assert "message 3 " not in writing.said[1]
    assert "src/file_0.py" in later.text


async def test_what_is_longer_than_the_models_window_is_told_in_steps_each_message_once() -> None:
    of = talk(60)
    writing = Writing(SHORT)
    await Maker(writing, words).summary(job(of, Cut(58, (), None), lengths=Lengths(window=12_000)))
    assert len(writing.asked) > 1
    for number in range(58):
        assert sum(f"⟦{number} " in said for said in writing.said) == 1
    assert all(SHORT in said for said in writing.said[1:])


@pytest.mark.parametrize("window", [8_000, 32_000, 128_000])
@pytest.mark.parametrize("tokens", [20, 100, 1_000])
async def test_a_thousand_messages_are_folded_in_seven_calls_at_most_each_message_told_once(
    window: int, tokens: int
) -> None:
    of, writing = talk(1_001, tokens), Writing(SHORT)
    lengths = Lengths(window=window, longest_answer=16_384, room=32_000)
    await Maker(writing, words).summary(job(of, Cut(1_000, (), None), lengths=lengths))
    assert len(writing.asked) <= 7
    told = [int(number) for said in writing.said for number in re.findall(r"⟦(\d+) (?:user|assi)", said)]
    assert told == list(range(1_000))
    assert all(wanted.most_tokens <= window // 16 for wanted in writing.asked)
    assert all(wanted.tokens + 2 * wanted.most_tokens <= window for wanted in writing.asked)
    if len(writing.asked) == 7:
        assert all(wanted.tokens > window / 2 for wanted in writing.asked[:-1])


async def test_a_record_that_a_larger_model_has_written_leaves_a_smaller_one_room_for_what_is_new() -> None:
    of = talk(12)
    short = await Maker(Writing(SHORT), words).summary(job(of, Cut(4, (), None)))
    base = structs.replace(short, text="begun " + "word " * 20_000 + "ended", summary_tokens=20_000)
    writing = Writing(SHORT)
    await Maker(writing, words).summary(job(of, Cut(10, (), base), lengths=Lengths(window=8_000)))
    [said] = writing.said
    assert "begun" in said
    assert "ended" in said
    assert "characters left out" in said
    assert words(said) < 5_000
    assert all(f"message {number} " in said for number in range(4, 10))


async def test_a_model_that_is_told_too_much_is_told_less_as_its_refusal_says() -> None:
    writing = Writing(SummaryFailed(TOO_LONG, window=8_000), SHORT)
    await Maker(writing, words).summary(job(talk(61), Cut(60, (), None)))
    first, *others = writing.asked
    assert first.tokens > 20_000
    assert len(others) > 1
    assert all(wanted.tokens + wanted.most_tokens < 8_000 for wanted in others)


async def test_a_model_that_names_no_window_is_told_less_and_less_and_not_for_ever() -> None:
    refused = SummaryFailed(TOO_LONG)
    writing = Writing(refused, refused, SHORT)
    await Maker(writing, words).summary(job(talk(61), Cut(60, (), None)))
    sizes = [wanted.tokens for wanted in writing.asked]
    assert max(sizes[2:]) < sizes[1] < sizes[0] * 0.6
    hopeless = Writing(SummaryFailed(TOO_LONG, window=8_000))
    with pytest.raises(SummaryFailed, match=TOO_LONG):
        await Maker(hopeless, words).summary(job(talk(61), Cut(60, (), None)))
    assert len(hopeless.asked) == 4


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "empty"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, "tool_call"),
        ("other " * 10_000, "inflated"),
    ],
)
async def test_an_answer_that_is_no_summary_is_asked_for_once_more(bad: Any, reason: str) -> None:
    of = talk(8)
    mended = Writing(bad, SHORT)
    assert SHORT in (await Maker(mended, words).summary(job(of, Cut(6, (), None)))).text
    hopeless = Writing(bad)
    with pytest.raises(SummaryFailed, match=reason):
        await Maker(hopeless, words).summary(job(of, Cut(6, (), None)))
    assert len(hopeless.asked) == 2


async def test_a_model_that_fails_is_not_asked_again() -> None:
    writing = Writing(SummaryFailed("timeout"))
    with pytest.raises(SummaryFailed, match="timeout"):
        await Maker(writing, words).summary(job(talk(8), Cut(6, (), None)))
    assert len(writing.asked) == 1


BESIDE = b"instructions    "
TOOLS = {"tools": b"[{}]"}


def prefix_of(of: History, covers: int, window: int = 8_000) -> Prefix:
    return Prefix([turn.raw for turn in of.turns[:covers]], TOOLS, BESIDE, 400 * covers, window)


async def test_on_its_prefix_a_conversations_own_model_is_asked_behind_what_was_sent() -> None:
    of = talk(8)
    writing, prefix = Writing(SHORT), prefix_of(of, 6)
    fold = await Maker(writing, words).on_prefix(job(of, Cut(6, (), None), prefix=prefix), prefix)
    [asked] = writing.asked
    assert asked.messages.startswith(b"[" + b",".join(prefix.messages) + b",")
    assert RECORD_WANTED in writing.said[0]
    assert (asked.model, asked.preferred, asked.beside_messages) == ("gpt-4o", None, TOOLS)
    assert (fold.model, fold.kind, fold.beside) == ("gpt-4o", Kind.SUMMARY, BESIDE)
    assert SHORT in fold.text
    assert "src/file_5.py" in fold.text
    assert belongs(fold, of)


@pytest.mark.parametrize("bad", ["", "other " * 10_000, {"role": "assistant", "tool_calls": [{"id": "c"}]}])
async def test_on_its_prefix_too_what_is_no_record_is_asked_for_once_more(bad: Any) -> None:
    of = talk(8)
    prefix = prefix_of(of, 6)
    wanted = job(of, Cut(6, (), None), prefix=prefix)
    assert SHORT in (await Maker(Writing(bad, SHORT), words).on_prefix(wanted, prefix)).text
    hopeless = Writing(bad)
    with pytest.raises(SummaryRefused):
        await Maker(hopeless, words).on_prefix(wanted, prefix)
    assert len(hopeless.asked) == 2


async def test_what_would_not_fit_behind_its_prefix_is_not_tried() -> None:
    of, writing = talk(8), Writing(SHORT)
    prefix = prefix_of(of, 6, window=2_500)
    with pytest.raises(SummaryRefused, match=TOO_LONG):
        await Maker(writing, words).on_prefix(job(of, Cut(6, (), None), prefix=prefix), prefix)
    assert writing.asked == []


async def test_what_goes_on_from_a_text_that_has_seen_instructions_has_seen_them_too() -> None:
    of, maker = talk(12), Maker(Writing(SHORT), words)
    prefix = prefix_of(of, 4)
    base = await maker.on_prefix(job(of, Cut(4, (), None), prefix=prefix), prefix)
    assert (await maker.summary(job(of, Cut(8, (), base)))).beside == BESIDE
    assert (await maker.extract(job(of, Cut(8, (), base)))).beside == BESIDE
    assert (await maker.summary(job(of, Cut(8, (), None)))).beside is None


def without_a_model(fold: Fold, of: History) -> None:
    assert belongs(fold, of)
    assert fold.model is None
    assert fold.summary_tokens < fold.original_tokens / 2


async def test_an_extract_needs_no_model() -> None:
    of = talk(8)
    fold = await Maker(Writing(SHORT), words).extract(job(of, Cut(6, (), None)))
    without_a_model(fold, of)
    assert fold.kind is Kind.EXTRACT
    assert "message 0" in fold.text


def test_a_truncation_says_how_much_was_left_out() -> None:
    of = talk(8)
    fold = Maker(Writing(SHORT), words).truncation(job(of, Cut(7, (6,), None)))
    without_a_model(fold, of)
    assert fold.kind is Kind.TRUNCATION
    assert "6 earlier messages (about 2800 tokens)" in fold.text
    assert [orjson.loads(message)["role"] for message in sent(of, fold)] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("cut", "roles"),
    [
        (Cut(6, (), None), ["user", "assistant", "user", "assistant"]),  # the tail begins with a user's
        (Cut(7, (6,), None), ["user", "assistant", "user", "assistant"]),  # the pinned one does
        (Cut(7, (), None), ["user", "assistant"]),
    ],
)
async def test_no_two_user_messages_stand_in_a_row(cut: Cut, roles: list[str]) -> None:
    of = talk(8)
    fold = await Maker(Writing(SHORT), words).summary(job(of, cut, role="user"))
    assert [orjson.loads(message)["role"] for message in sent(of, fold)] == roles


# For upstreams that are particular.


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
async def test_a_summary_in_any_other_role_has_a_plainer_form_as_a_users(role: Any) -> None:
    of = talk(8)
    maker = Maker(Writing(SHORT), words)
    fold = await maker.summary(job(of, Cut(6, (), None), role=role))
    for made in (fold, await maker.extract(job(of, Cut(6, (), None), role=role))):
        plain = [orjson.loads(message) for message in sent(of, made, plainly=True)]
        assert [message["role"] for message in plain] == ["user", "assistant", "user", "assistant"]
        assert orjson.loads(made.messages[0])["role"] == role
    assert SHORT in plain[0]["content"] or SHORT in str(fold.plainer)


async def test_a_summary_that_is_told_as_the_user_s_is_as_plain_as_it_gets() -> None:
    fold = await Maker(Writing(SHORT), words).summary(job(talk(8), Cut(6, (), None), role="user"))
    assert fold.plainer == ()


# Of kept turns that are too large.

SHORTER = orjson.dumps({"role": "assistant", "content": "shorter"})


async def test_what_is_kept_is_sent_shorter_and_the_record_says_so() -> None:
    of = talk(8)
    maker, asked_for = Maker(Writing(SHORT), words), job(of, Cut(8, (6, 7), None), shrunk={7: SHORTER})
    extract, truncation = await maker.extract(asked_for), maker.truncation(asked_for)
    assert (extract.kind, truncation.kind) == (Kind.SHRUNK, Kind.TRUNCATION)
    for fold in (extract, truncation):
        without_a_model(fold, of)
        assert fold.shrunk == {7: SHORTER}
        assert sent(of, fold)[-2:] == [of.turns[6].raw, SHORTER]
    assert "src/file_5.py" in extract.text
    assert "src/file_6.py" not in extract.text  # it is sent itself


async def test_where_all_is_kept_nothing_is_said_of_what_was_left_out() -> None:
    of = talk(2)
    maker, asked_for = Maker(Writing(SHORT), words), job(of, Cut(2, (0, 1), None), shrunk={1: SHORTER})
    for fold in (await maker.extract(asked_for), maker.truncation(asked_for)):
        assert (fold.messages, fold.plainer, fold.text, fold.summary_tokens) == ((), (), "", 0)
        assert sent(of, fold) == [of.turns[0].raw, SHORTER]


async def test_an_extract_goes_on_from_the_summary_before() -> None:
    of = talk(12)
    maker = Maker(Writing(SHORT), words)
    base = await maker.summary(job(of, Cut(4, (), None)))
    later = await maker.extract(job(of, Cut(8, (), base), lengths=Lengths(wished=400)))
    assert later.parent == base.id
    assert SHORT in later.text
    assert "src/file_0.py" in later.text
    assert later.original_tokens == base.summary_tokens + 4 * 400
