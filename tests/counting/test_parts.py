from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.counting.images import DEFAULT_RULE, image_tokens
from proxy.counting.parts import (
    ASSUMED_SIZE,
    AUDIO_TOKENS_PER_SECOND,
    Countable,
    Media,
    content,
    json_text,
    pieces_without_media,
    printable,
    without_media,
)
from tests.counting.test_image_size import data_url, png

MEGABYTE = base64.b64encode(bytes(range(256)) * 4096).decode()
ASSUMED = image_tokens(DEFAULT_RULE, *ASSUMED_SIZE, "auto")
SMALL = data_url(png(512, 512))  # one tile
TALL = data_url(png(2048, 4096))  # six tiles
HTTP = "https://example.com/cat.png"
BARE = base64.b64encode(png(512, 512)).decode()


def counted(value: Any, rule: str = DEFAULT_RULE) -> list[Countable]:
    return list(content(value, rule))


@pytest.mark.parametrize(
    ("value", "countables"),
    [
        ("hello", ["hello"]),
        ("", [""]),
        (None, []),
        ([], []),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], ["a", "b"]),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], ["a", "b"]),
        ([{"type": "refusal", "refusal": "no"}], ["no"]),
        (["a", 1, None, ["b"]], ["a", "1", "null", '["b"]']),
        ([{"type": "text", "text": {"a": 1}}], ['{"type":"text","text":{"a":1}}']),
        ([{"type": "text"}], ['{"type":"text"}']),
        ({"type": "text", "text": "a"}, ['{"type":"text","text":"a"}']),
        (7, ["7"]),
        ([{"type": "thinking", "thinking": "long"}, {"type": "reasoning", "text": "long"}], []),
    ],
)
def test_text_is_counted_in_every_shape_it_may_have(value: Any, countables: list[Countable]) -> None:
    assert counted(value) == countables


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": SMALL}}, 85 + 170),
        ({"type": "image_url", "image_url": {"url": TALL}}, 85 + 6 * 170),
        ({"type": "image_url", "image_url": {"url": TALL, "detail": "high"}}, 85 + 6 * 170),
        ({"type": "image_url", "image_url": {"url": TALL, "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": TALL, "detail": "low"}, 85),
        ({"type": "input_image", "image_url": SMALL, "detail": "auto"}, 85 + 170),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BARE}}, 85 + 170),
        # Never fetched, broken or not there at all: taken for an image of the usual size.
        ({"type": "image_url", "image_url": {"url": HTTP}}, ASSUMED),
        ({"type": "image", "source": {"type": "url", "url": HTTP}}, ASSUMED),
        ({"type": "input_image", "file_id": "file-1"}, ASSUMED),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + MEGABYTE}}, ASSUMED),
        ({"type": "image_url", "image_url": {"url": 7, "detail": ["low"]}}, ASSUMED),
        ({"type": "image_url", "image_url": None, "detail": 7}, ASSUMED),
        ({"type": "image_url"}, ASSUMED),
        ({"type": "image", "source": {"data": None}}, ASSUMED),
    ],
)
def test_an_image_costs_what_its_size_and_detail_cost(part: dict[str, Any], tokens: int) -> None:
    assert counted([part]) == [Media(tokens)]


def test_an_image_costs_by_the_rule_of_the_model() -> None:
    part = {"type": "image_url", "image_url": {"url": SMALL}}
    assert counted([part], "tiles-70-140") == [Media(210)]
    assert counted([part], "anthropic") == [Media(350)]


@pytest.mark.parametrize(
    ("sound", "seconds"),
    [
        ({"data": "A" * 640_000, "format": "wav"}, 10),  # 480,000 bytes
        ({"data": "A" * 640_000, "format": "mp3"}, 60),
        ({"data": "A" * 640_000, "format": "of tomorrow"}, 120),
        ({"data": "A" * 640_000}, 120),
        ({"data": "A" * 640_000, "format": ["wav"]}, 120),
        ({"data": 7}, 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_sound_costs_by_its_length(sound: Any, seconds: int) -> None:
    tokens = seconds * AUDIO_TOKENS_PER_SECOND
    assert counted([{"type": "input_audio", "input_audio": sound}]) == [Media(tokens)]


PDF = "data:application/pdf;base64," + MEGABYTE


@pytest.mark.parametrize(
    ("part", "described"),
    [
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
            f"a.pdf application/pdf {len(PDF) * 3 // 4} bytes",
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": MEGABYTE},
            f"a.pdf {len(MEGABYTE) * 3 // 4} bytes",
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, "file-1"),
        ({"type": "video_url", "video_url": {"url": HTTP}}, HTTP),
        ({"type": "file", "file": {"size": 7, "filename": None}}, ""),
        ({"type": "file"}, ""),
    ],
)
def test_a_file_costs_its_metadata_however_large_it_is(part: dict[str, Any], described: str) -> None:
    assert counted([part]) == [Media(described=described)]


def test_an_unknown_type_is_counted_by_its_json_and_logged_once() -> None:
    part = {"type": "hologram-1", "shape": {"of": "things to come"}}
    with capture_logs() as logs:
        json = '{"type":"hologram-1","shape":{"of":"things to come"}}'
        assert counted([part, part]) == [Media(described=json)] * 2
        counted([part])
    assert [(line["log_level"], line["type"]) for line in logs] == [("warning", "hologram-1")]


def test_a_log_never_shows_more_of_a_type_than_a_name() -> None:
    assert printable("tool_result") == "tool_result"
    assert printable('evil"\n\x1b[31m type') == "evil????31m?type"
    assert len(printable("x" * 1000)) == 40
    assert [printable(None), printable(7), printable(["a"]), printable({})] == [
        "NoneType",
        "int",
        "list",
        "dict",
    ]


def lines_of(text: str, width: int, end: str) -> str:
    return end.join(text[i : i + width] for i in range(0, len(text), width)) + end


@pytest.mark.parametrize(
    "data",
    [
        MEGABYTE,
        "data:image/heic;base64," + MEGABYTE,
        base64.urlsafe_b64encode(base64.b64decode(MEGABYTE)).decode(),
        lines_of(MEGABYTE, 76, "\r\n"),
        lines_of(MEGABYTE, 64, "\n"),
        lines_of(MEGABYTE, 60, "\n"),
    ],
)
def test_base64_in_what_is_unknown_is_never_text(data: str) -> None:
    [media] = counted([{"type": "hologram-2", "inner": [{"data": data}], "caption": "a cat"}])
    assert isinstance(media, Media)
    assert len(media.described) < 150
    assert "a cat" in media.described
    assert "bytes" in media.described


@pytest.mark.parametrize(
    "text",
    [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "/usr/lib/" + "very-long-folder-name/" * 40,
        "-" * 1000,
        " ".join(["ordinary words, and many of them"] * 200),
        "中文" * 1000,
    ],
)
def test_what_only_looks_a_little_like_base64_is_text(text: str) -> None:
    assert json_text({"text": text}) == f'{{"text":"{text}"}}'


@pytest.mark.parametrize(
    "text",
    [
        ("a" * 1023 + " ") * 4000,
        ("a" * 59 + " ") * 66_000,
        ("a" * 60 + "\\n" + "a" * 59 + "?") * 33_000,
        "a" * 60 + "\\n" * 2_000_000,
        "\\" * 4_000_000,
    ],
    ids=["long words", "short words", "lines", "line breaks", "backslashes"],
)
def test_no_text_holds_up_the_search_for_base64(text: str) -> None:
    before = time.thread_time()
    without_media(text)
    assert time.thread_time() - before < 1


@pytest.mark.parametrize(
    ("text", "most"),
    [("word, [x] " * 1_000_000, 300_000), ("word=word\\\\" * 1_000_000, 1_100_000)],
    ids=["text", "nowhere to cut"],
)
def test_a_long_text_is_searched_bit_by_bit(text: str, most: int) -> None:
    """Between the bits, other threads have their turn."""
    pieces = list(pieces_without_media(text))
    assert max(map(len, pieces)) < most
    assert "".join(pieces) == text


@pytest.mark.parametrize("before", ["", '{"data":"', '{"data":"' + "words, " * 37_449])
@pytest.mark.parametrize("size", [300_000, 2_000_001])
def test_an_image_is_one_image_wherever_a_long_text_is_cut(before: str, size: int) -> None:
    data = base64.b64encode(bytes(size)).decode()
    assert without_media(f'{before}{data}",') == f'{before}{len(data) * 3 // 4} bytes",'


KEYS = st.sampled_from(
    ["type", "text", "image_url", "url", "detail", "source", "data", "input_audio", "format", "file"]
)
KINDS = st.sampled_from(["text", "image_url", "image", "input_audio", "file", "refusal", "thinking"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8) | KINDS | st.just(SMALL),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(JSON)
def test_any_content_is_counted_and_always_the_same(value: Any) -> None:
    countables = counted(value)
    assert countables == counted(value)
    assert all(each.tokens >= 0 for each in countables if isinstance(each, Media))
