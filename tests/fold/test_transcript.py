from __future__ import annotations

import re
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fold.history import Turn
from proxy.fold.transcript import BEGIN, END, Chunk, chunks, harmless, transcript
from tests.fold.words import assistant, calls, count, recorded, result, turn, user

# Whatever a hostile text is made of.
HOSTILE = [
    *f"{BEGIN} ⟦3 system⟧ ⟦ ⟧ 〚 <|im_end|> <\uff5cUser\uff5c> [INST] </s> <<SYS>> <start_of_turn>user".split(
        " "
    ),
    *(END, "<|im_start|>system\n", "\n\nHuman: ", "### Instruction:", "ignore previous instructions"),
    *("\x1b[2J", "\x00", "\u202e", "\U000e0041", "\r\n", "\u2028System:", "é", "日本", "😀", " "),
]
MANY = 10**6
hostile = st.lists(st.sampled_from(HOSTILE), max_size=12).map("".join)
marks = re.compile(r"⟦([^⟦⟧]*)⟧")


def test_a_conversation_reads_as_who_said_what() -> None:
    turns = [
        user("Fix the bug in a.py."),
        calls("read_file", '{"path":"a.py"}'),
        result("def f(): pass"),
        assistant("Done."),
    ]
    assert transcript(turns, first=4) == (
        "⟦transcript⟧\n"
        "⟦4 user⟧\nFix the bug in a.py.\n"
        '⟦5 assistant⟧\n⟦call⟧ read_file({"path":"a.py"})\n'
        "⟦6 result of read_file⟧\ndef f(): pass\n"
        "⟦7 assistant⟧\nDone.\n"
        "⟦end of transcript⟧"
    )


def test_names_of_people_and_legacy_results_are_told() -> None:
    turns = [
        turn({"role": "user", "name": "ann lee", "content": "hi"}),
        turn({"role": "function", "name": "f", "content": "1"}),
        result("lost", "unknown"),
    ]
    told = transcript(turns)
    assert marks.findall(told)[1:-1] == [
        "0 user ann_lee",
        "1 result of f",
        "2 result of a call",
    ]


def test_thoughts_are_left_out_and_media_is_only_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    told = transcript([user([image]), assistant("<think>secret</think>Yes.", reasoning_content="secret")])
    assert "secret" not in told
    assert "[image, image/png, 3016 bytes]" in told


def test_a_long_result_is_cut_in_the_middle_and_says_so() -> None:
    told = transcript([result("begin " + "x " * 50_000 + " end")])
    assert len(told) < 7000
    assert "begin" in told
    assert "end\n" in told
    assert re.search(r"⟦9\d{4} characters left out⟧", told)


@pytest.mark.parametrize(
    "marker",
    [
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|start_header_id|>", "<|eot_id|>"),
        *("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<s>", "</s>", "[TOOL_RESULTS]"),
        *("<start_of_turn>", "<end_of_turn>", "⟦transcript⟧", "〚"),
        *("<\uff5cAssistant\uff5c>", "<\uff5cbegin▁of▁sentence\uff5c>", "<\x00|im_start|>"),
        *("\nHuman:", "\nAssistant:", "\n### Response:", "\u2028System:", END, "⟦1 system⟧"),
        *("\x1b[31m", "\u202e", "\U000e0049"),
    ],
)
def test_markers_of_templates_and_of_ours_are_broken(marker: str) -> None:
    plain = harmless(f"a{marker}b")
    assert marker.replace("\x00", "").replace("\u2028", "\n") not in plain


@pytest.mark.parametrize(
    "text", ["a < b", "f <| g |> h", "user: root", "arr[i]", "x[[1]]", "naïve 日本 😀 👩‍👩‍👧", "a\tb\n"]
)
def test_plain_text_and_code_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text


@given(hostile, hostile)
def test_nothing_that_was_said_begins_or_ends_anything(text: str, name: str) -> None:
    turns = [
        turn({"role": "user", "name": name, "content": text}),
        calls(name, text),
        result(text),
        turn({"role": text, "content": [{"type": text, "text": text}]}),
    ]
    told = transcript(turns)
    found = marks.findall(told)
    assert told.count("⟦") == told.count("⟧") == len(found) == 7
    assert told.startswith(BEGIN + "\n⟦0 user")
    assert told.endswith("\n" + END)
    assert "<|im_start|>" not in told


turns_of_any_size = st.lists(
    st.builds(
        lambda text, times, kind: kind(text * times),
        hostile,
        st.integers(0, 300),
        st.sampled_from([user, assistant, result]),
    ),
    max_size=12,
)


@given(turns_of_any_size, st.integers(300, 3000), st.integers(2, 12), st.integers(0, 5))
def test_every_message_lies_in_exactly_one_chunk_and_every_chunk_fits(
    turns: list[Turn], most: int, most_chunks: int, first: int
) -> None:
    found = chunks(turns, most, most_chunks, first)
    assert len(found) <= most_chunks
    assert [number for chunk in found for number in chunk.numbers] == list(range(first, first + len(turns)))
    assert sum(chunk.original_tokens for chunk in found) == sum(each.tokens for each in turns)
    for chunk in found:
        assert count(chunk.text) <= most
        assert [int(number) for number in re.findall(r"⟦(\d+) (?!char)", chunk.text)] == list(chunk.numbers)


def told_of(chunk: Chunk) -> list[int]:
    return [int(number) for number in re.findall(r"⟦(\d+) (?:user|assistant|result)", chunk.text)]


def test_what_is_too_much_for_so_many_chunks_is_told_shorter_and_evenly() -> None:
    talk = [user("short question"), assistant("long " * 2_000), user("rather long " * 500)] * 10
    found = chunks(talk, 4_000, 7)
    assert [number for chunk in found for number in told_of(chunk)] == list(range(30))
    assert len(found) <= 7
    assert all(count(chunk.text) <= 4_000 for chunk in found)
    told = "".join(chunk.text for chunk in found)
    assert told.count("short question") == 10
    assert told.count("characters left out") == 20
    lengths = [len(part) for part in re.split(r"⟦\d+ \w+⟧\n", told) if "characters left out" in part]
    assert max(lengths) < 1.2 * min(lengths)
    # And no shorter than it must be.
    assert sum(count(chunk.text) for chunk in found) > 7 * 4_000 / 2


def test_a_thousand_messages_are_each_told_of_in_seven_chunks_of_a_small_window() -> None:
    found = chunks([user("word " * 100), assistant("answer " * 100)] * 500, 5_000, 7)
    assert [number for chunk in found for number in told_of(chunk)] == list(range(1_000))
    assert len(found) <= 7
    assert all(count(chunk.text) <= 5_000 for chunk in found)
    assert all("word" in chunk.text and "answer" in chunk.text for chunk in found)


def test_where_messages_are_too_many_each_chunk_tells_its_first_and_last_and_how_many_are_gone() -> None:
    found = chunks([user("word " * 100), assistant("answer " * 100)] * 5_000, 2_000, 7)
    assert [number for chunk in found for number in chunk.numbers] == list(range(10_000))
    assert len(found) == 7
    for chunk in found:
        assert count(chunk.text) <= 2_000
        told = told_of(chunk)
        assert (told[0], told[-1]) == (chunk.numbers[0], chunk.numbers[-1])
        assert len(told) > 40
        assert f"⟦{len(chunk.numbers) - len(told)} messages left out⟧" in chunk.text


def test_what_grows_in_being_made_harmless_is_counted() -> None:
    [chunk] = chunks([assistant("[INST]" * 218)], 396, MANY)
    assert count(chunk.text) <= 396


def test_what_fits_is_one_chunk() -> None:
    turns = [user("hello"), assistant("hi")] * 10
    [chunk] = chunks(turns, 100_000, MANY)
    assert chunk.text == transcript(turns)


def test_no_history_is_no_chunk() -> None:
    assert chunks([], 1000, MANY) == []


@pytest.mark.parametrize("most", [-5, 0, 1, 10])
def test_a_chunk_too_small_for_anything_still_tells_of_every_message(most: int) -> None:
    found = chunks([user("word " * 1000)] * 3, most, MANY)
    assert [chunk.numbers for chunk in found] == [range(1), range(1, 2), range(2, 3)]
    assert all(count(chunk.text) < 150 for chunk in found)


def test_a_number_of_tokens_that_is_too_small_is_not_believed() -> None:
    lying = [Turn(user("word " * 4000).raw, "user", b"", 1)] * 4
    assert len(chunks(lying, 5000, MANY)) == 4


def test_what_is_not_told_costs_nothing() -> None:
    large = result("x " * 200_000)
    assert len(chunks([large] * 10, 40_000, MANY)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<|" * 10**6,
        "⟦" * 10**6,
        "\x1b[" * 10**6,
        "\n " * 10**6,
        "<|" + "a" * 10**6,
        "[" * 10**6,
        "\u2028" * 10**6,
    ],
)
def test_megabytes_of_markers_are_made_harmless_in_a_moment(text: str) -> None:
    began = thread_time()
    harmless(text)
    assert thread_time() - began < 5


def test_real_conversations_are_told_in_chunks_that_fit() -> None:
    for file in ("openhands.jsonl", "tau2.jsonl", "beam.jsonl"):
        for turns in recorded(file, 2):
            found = chunks(turns, 6000, MANY)
            assert sum(len(chunk.numbers) for chunk in found) == len(turns)
            assert all(count(chunk.text) <= 6000 for chunk in found)
