from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.counting import vocabularies
from proxy.counting.tokenizer import (
    CAP,
    PIECE,
    SAMPLE,
    SLICE,
    CountingFailed,
    Encodings,
    Tokenizer,
    pieces,
    rough,
    slices,
)

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"

# Whatever the patterns tell apart: white space of every kind, what may stand before a word or end one, and
# letters with and without case, marks, digits and other numbers.
HOSTILE = " \t\n\r\v\x1c\x85\xa0\u2028/'!_sSLé中\u0301\u0e33ʰ1٣½😀\u200d\ufffd"


NAMES = ["o200k_base", "cl100k_base"]


@cache
def reference(name: str) -> tiktoken.Encoding:
    return vocabularies.load(name)


@pytest.fixture(params=NAMES)
def encoding(request: pytest.FixtureRequest) -> tiktoken.Encoding:
    return reference(request.param)


hostile_texts = st.text(st.sampled_from(HOSTILE), max_size=120)
runs = st.lists(st.tuples(st.sampled_from(HOSTILE), st.integers(1, 30)), max_size=12).map(
    lambda several: "".join(character * times for character, times in several)
)
# Lone surrogates too: JSON can escape them, and a Python string can hold them.
unicode_texts = st.text(st.characters(), max_size=200)


def tiktokens_own(encoding: tiktoken.Encoding, text: str) -> int:
    return len(encoding.encode_ordinary(text))


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded conversations are not on this machine")
@pytest.mark.parametrize("file", ["aider", "beam", "openhands", "tau-bench", "tau2"])
def test_recorded_conversations_have_tiktokens_own_count(file: str, encoding: tiktoken.Encoding) -> None:
    in_small_pieces = Tokenizer(encoding, piece=256)
    with (TRACES / f"{file}.jsonl").open("rb") as lines:
        conversations = [orjson.loads(line) for line in lines]
    texts = {text for each in conversations for text in texts_in([each["messages"], each["tools"]])}
    whole = {text: tiktokens_own(encoding, text) for text in texts}
    assert {text: in_small_pieces.count(text) for text in texts} == whole


@given(st.sampled_from(NAMES), hostile_texts | runs | unicode_texts, st.integers(1, 40))
@settings(deadline=None, max_examples=400)
@example("cl100k_base", "a \n \nb  \n", 1)
@example("o200k_base", "<|endoftext|> <|im_start|>", 1)
@example("o200k_base", "\ud83d \ude42\ud83d\ude42 \udfff", 1)
def test_any_text_has_tiktokens_own_count_however_it_is_cut(name: str, text: str, piece: int) -> None:
    encoding = reference(name)
    assert Tokenizer(encoding, piece=piece).count(text) == tiktokens_own(encoding, text)


def test_no_short_text_is_cut_where_it_should_not_be(encoding: tiktoken.Encoding) -> None:
    """Everything of four characters, out of those that a seam depends on, with a seam at every place."""
    one_at_a_time = Tokenizer(encoding, piece=1)
    for characters in product(" \t\n\r\xa0\x1c/'sA1!é\u0301", repeat=4):
        text = "".join(characters)
        assert one_at_a_time.count(text) == tiktokens_own(encoding, text), repr(text)


@given(hostile_texts | runs | unicode_texts, st.integers(1, 40))
def test_pieces_are_the_text(text: str, size: int) -> None:
    cut = list(pieces(text, size))
    assert "".join(cut) == text
    assert all(len(piece) >= size for piece in cut[:-1])


def test_a_prose_is_cut_into_pieces_of_about_the_size_asked_for() -> None:
    text = "All happy families are alike.\n" * 1000
    assert max(map(len, pieces(text, 100))) < 110


def test_special_tokens_are_text(encoding: tiktoken.Encoding) -> None:
    assert Tokenizer(encoding).count("<|endoftext|>") > 1
    assert Tokenizer(encoding).count("") == 0


def repeated(character: str, size: int) -> str:
    return (character * (size // len(character) + 1))[:size]


@cache
def random_base64(size: int) -> str:
    return base64.b64encode(Random(1).randbytes(size)).decode()[:size]


@cache
def random_characters(alphabet: str, size: int) -> str:
    return "".join(Random(1).choices(alphabet, k=size))


EMOJI = "".join(map(chr, range(0x1F300, 0x1F650)))
MEGA = 1_000_000

AT_THE_CAP: dict[str, Callable[[], str]] = {
    "spaces": lambda: repeated(" ", CAP),
    "letters": lambda: repeated("a", CAP),
    "capitals": lambda: repeated("A", CAP),
    "newlines": lambda: repeated("\n", CAP),
    "slashes": lambda: repeated("/\n", CAP),
    "apostrophes": lambda: repeated("'", CAP),
    "marks": lambda: repeated("\u0301", CAP),
    "one emoji": lambda: repeated("😀", CAP),
    "base64": lambda: random_base64(CAP),
    "emoji": lambda: random_characters(EMOJI, CAP),
    "mixed": lambda: random_characters(HOSTILE, CAP),
}

ABOVE_THE_CAP: dict[str, Callable[[], str]] = {
    "a million spaces": lambda: repeated(" ", MEGA),
    "a million letters": lambda: repeated("a", MEGA),
    "4 MB of newlines": lambda: repeated("\n", 4 * MEGA),
    "4 MB of base64": lambda: random_base64(4 * MEGA),
    "4 MB of emoji": lambda: random_characters(EMOJI, MEGA),
    "4 MB of one emoji": lambda: repeated("😀", MEGA),
    "4 MB of everything": lambda: random_characters(HOSTILE, 2 * MEGA),
    "long lines of spaces": lambda: repeated(" " * 1000 + "\n", 4 * MEGA),
    "spaces, then base64": lambda: repeated(" ", 3 * MEGA) + random_base64(MEGA),
    "emoji among spaces": lambda: repeated(" ", MEGA) + random_characters(EMOJI, MEGA // 2) + " " * MEGA,
    "prose": lambda: repeated("It was the best of times, it was the worst of times.\n\n", 4 * MEGA),
}


@pytest.mark.parametrize("kind", AT_THE_CAP)
def test_up_to_the_cap_any_count_is_exact_and_quick(kind: str, encoding: tiktoken.Encoding) -> None:
    text = AT_THE_CAP[kind]()
    count, seconds = timed(Tokenizer(encoding), text)
    assert seconds < 2
    assert count == tiktokens_own(encoding, text)


@pytest.mark.parametrize("kind", ABOVE_THE_CAP)
def test_above_the_cap_any_count_is_near_and_quick(kind: str, encoding: tiktoken.Encoding) -> None:
    text = ABOVE_THE_CAP[kind]()
    count, seconds = timed(Tokenizer(encoding), text)
    assert seconds < 2
    # Each cut of the reference may cost it a token, and there are hundreds of them in between.
    whole = sum(tiktokens_own(encoding, text[i : i + PIECE]) for i in range(0, len(text), PIECE))
    assert count == pytest.approx(whole, rel=0.05)


def test_a_sampled_count_is_the_same_wherever_it_is_made(encoding: tiktoken.Encoding) -> None:
    text = random_characters(HOSTILE, CAP + 1)
    assert Tokenizer(encoding).count(text) == Tokenizer(encoding).count(text)


def timed(tokenizer: Tokenizer, text: str) -> tuple[int, float]:
    """The count, and the seconds of CPU that it took this thread."""
    before = time.thread_time()
    count = tokenizer.count(text)
    return count, time.thread_time() - before


@given(st.integers(1, 10 * SLICE), st.integers(1, 20 * SLICE))
def test_slices_lie_in_the_text_and_within_the_budget(length: int, budget: int) -> None:
    text = "x" * length
    taken = list(slices(text, budget))
    assert all(0 < len(each) <= SLICE for each in taken)
    assert sum(map(len, taken)) <= max(SLICE, min(length, budget))


def test_slices_of_a_large_text_come_from_all_of_it_in_order() -> None:
    numbers = "".join(f"{number:>16}" for number in range(MEGA // 2))
    taken = [int(each.split()[1]) for each in slices(numbers, SAMPLE)]
    assert taken == sorted(taken)
    assert len(taken) == SAMPLE // SLICE
    stretch = len(numbers) / len(taken) / 16
    assert all(abs(place - index * stretch) <= stretch + 2 for index, place in enumerate(taken))


class Broken:
    """An encoding that fails as it is told to."""

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure

    def encode_ordinary(self, text: str) -> list[int]:
        raise self._failure


class PanicException(BaseException):
    """As the one of the native library, which cannot be imported."""


@pytest.mark.parametrize("text", ["short", "cut into pieces", "too long to be counted whole"])
@pytest.mark.parametrize("failure", [ValueError("secret"), MemoryError(), PanicException("secret")])
def test_a_failing_encoding_is_named_by_its_kind_alone(failure: BaseException, text: str) -> None:
    with pytest.raises(CountingFailed) as caught:
        Tokenizer(Broken(failure), piece=8, cap=20).count(text)
    assert caught.value.kind == str(caught.value) == type(failure).__name__
    assert caught.value.__cause__ is failure


def test_a_real_panic_is_a_failure_like_any_other() -> None:
    uncut = Tokenizer(reference("o200k_base"), cap=2 * MEGA, piece=2 * MEGA)
    with pytest.raises(CountingFailed, match="PanicException"):
        uncut.count(" " * MEGA)
    assert uncut.count("and the next text is counted") == 6


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_goes_on_its_way(interrupt: type[BaseException]) -> None:
    with pytest.raises(interrupt):
        Tokenizer(Broken(interrupt())).count("text")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 2),  # 4 bytes / 3 is more than 4 characters / 4
        ("a" * 12, 4),
        ("中文", 2),  # 6 bytes
        ("😀😀😀", 4),  # 12 bytes
        ("\ud800", 1),  # 3 bytes, whatever it may be worth
    ],
)
def test_a_rough_count_is_rather_too_large(text: str, tokens: int) -> None:
    assert rough(text) == tokens


def test_nothing_is_ready_before_it_is_loaded() -> None:
    encodings = Encodings()
    assert encodings.ready("o200k_base") is None
    loaded = encodings.load("o200k_base")
    assert loaded is not None
    assert encodings.ready("o200k_base") is loaded is encodings.load("o200k_base")
    assert encodings.ready("cl100k_base") is None


def test_an_unknown_name_is_the_default_encoding() -> None:
    encodings = Encodings()
    assert encodings.load("of tomorrow") is encodings.ready("o200k_base") is encodings.ready("of today")


def test_an_encoding_is_loaded_once_however_many_ask() -> None:
    encodings = Encodings()
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(encodings.load, ["o200k_base"] * 8))) == 1


def test_a_vocabulary_that_is_not_there_is_said_once_and_not_looked_for_again(tmp_path: Path) -> None:
    encodings = Encodings(tmp_path)
    with capture_logs() as logs:
        assert encodings.load("cl100k_base") is encodings.load("cl100k_base") is None
        assert encodings.ready("cl100k_base") is None
    assert [(line["event"], line["encoding"]) for line in logs] == [
        ("tokenizer unavailable, counting roughly", "cl100k_base")
    ]
    shutil.copytree(vocabularies.bundled_folder(), tmp_path, dirs_exist_ok=True)
    assert encodings.load("cl100k_base") is None
    assert encodings.load("o200k_base") is not None
