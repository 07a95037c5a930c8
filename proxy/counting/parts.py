"""What is counted of a message's content: text as text, media by what it is and never by its bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from proxy.counting.image_size import size_in, size_of
from proxy.counting.images import image_tokens
from proxy.counting.once import Once

log = structlog.get_logger("tailfold")


@dataclass(frozen=True, slots=True)
class Media:
    """What is not text: taken for so many tokens and those of its description, until it has been billed."""

    tokens: int = 0
    described: str = ""


# Text that is yet to be counted, a number of tokens that is the same whatever the tokenizer, or media.
Countable = str | int | Media

# An image behind an address is never fetched. To about this size pictures are mostly scaled.
ASSUMED_SIZE = (1024, 1024)

# OpenAI has published no formula. At its launch gpt-4o's audio input cost $100 per million tokens and "about
# $0.06 a minute", which makes ten tokens a second.
AUDIO_TOKENS_PER_SECOND = 10
# How many bytes a second of speech usually takes. Where the format is unknown a dense one is assumed, so that
# the sound is rather taken for too long than for too short.
_SOUND_BYTES_PER_SECOND = {"wav": 48_000, "pcm16": 48_000, "flac": 24_000, "mp3": 8_000}
_DENSEST_SOUND = 4_000

_unknown_types = Once()


def content(value: Any, image_rule: str) -> Iterator[Countable]:
    """A message's `content`, in any of the shapes it may have, and in those it may not."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _part(part, image_rule)
    elif value is not None:
        yield json_text(value)


def _part(part: Any, image_rule: str) -> Iterator[Countable]:
    if isinstance(part, str):
        yield part
    elif not isinstance(part, dict):
        yield json_text(part)
    elif (kind := part.get("type")) in _IMAGES:
        yield Media(_image(part, image_rule))
    elif isinstance(kind, str) and kind in _READERS:
        yield from _READERS[kind](part)
    else:
        yield from _unknown(part)


def _text(part: dict[str, Any]) -> Iterator[Countable]:
    text = part.get("text", part.get("refusal"))
    yield text if isinstance(text, str) else json_text(part)


def _nothing(_part: dict[str, Any]) -> Iterator[Countable]:
    return iter(())


def _image(part: dict[str, Any], rule: str) -> int:
    image = part.get("image_url", part.get("source"))
    url, detail = (image.get("url"), image.get("detail")) if isinstance(image, dict) else (image, None)
    size = _image_size(url, image) or ASSUMED_SIZE
    detail = detail or part.get("detail")
    return image_tokens(rule, *size, detail if isinstance(detail, str) else "auto")


def _image_size(url: Any, image: Any) -> tuple[int, int] | None:
    if isinstance(url, str):
        return size_in(url)
    data = image.get("data") if isinstance(image, dict) else None
    return size_of(data) if isinstance(data, str) else None


def _sound(part: dict[str, Any]) -> Iterator[Countable]:
    sound = part.get("input_audio")
    data, form = (sound.get("data"), sound.get("format")) if isinstance(sound, dict) else (None, None)
    rate = _SOUND_BYTES_PER_SECOND.get(form, _DENSEST_SOUND) if isinstance(form, str) else _DENSEST_SOUND
    seconds = _decoded_size(data) / rate if isinstance(data, str) else 0
    yield Media(round(seconds * AUDIO_TOKENS_PER_SECOND))


def _attachment(part: dict[str, Any]) -> Iterator[Countable]:
    """A file or a video: its name, its type, its size. What a provider makes of its content, nobody knows."""
    inner = (part, *(value for value in part.values() if isinstance(value, dict)))
    values = (value for each in inner for value in each.values() if isinstance(value, str))
    yield Media(described=" ".join(_described(value) for value in values if value is not part.get("type")))


def _described(value: str) -> str:
    """A short text as it is; data as its media type and its size."""
    if value.startswith("data:"):
        media_type = value[5:256].partition(";")[0].partition(",")[0]
        return f"{media_type} {_decoded_size(value)} bytes"
    return f"{_decoded_size(value)} bytes" if len(value) > _LONGEST_NAME else value


_LONGEST_NAME = 1024


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4


def _unknown(part: dict[str, Any]) -> Iterator[Countable]:
    kind = printable(part.get("type"))
    if _unknown_types.first(kind):
        log.warning("content part of an unknown type, counted by its JSON", type=kind)
    yield Media(described=json_text(part))


def printable(name: Any) -> str:
    """A type's name as it may be logged: it comes from the client, and may be anything."""
    return re.sub(r"[^\w.:-]", "?", name[:40]) if isinstance(name, str) else type(name).__name__


# Base64 as it stands in JSON, at times with a line break after every 60, 64 or 76 characters. It begins where
# a run of its characters begins, nowhere inside one: else long words would be looked through over and over.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{60,}+"
    r"(?:(?:\\[rn])++[A-Za-z0-9+/_-]{60,}+)*+"
    r"(?:(?:\\[rn])++[A-Za-z0-9+/_-]++)?={0,2}"
)
_SHORTEST_MEDIA = 1024  # so that no word, path or hash is taken for it

# Nothing else in the process runs while a regular expression does, so a long text is taken bit by bit: cut
# where no base64 can be or, if there is no such place for a megabyte, where a line of it ends.
_AT_A_TIME, _AT_MOST = 256 * 1024, 1024 * 1024
_SEAM = re.compile(r"[^A-Za-z0-9+/_\\=-]")
_LINE = re.compile(r"[A-Za-z0-9+/_-]*+={0,2}")


def json_text(value: Any) -> str:
    return without_media(orjson.dumps(value).decode())


def without_media(json: str) -> str:
    """Base64 is never text: all that is left of it is how much there was."""
    return "".join(pieces_without_media(json))


def pieces_without_media(json: str) -> Iterator[str]:
    start = 0
    while start < len(json):
        seam = _SEAM.search(json, start + _AT_A_TIME, start + _AT_MOST)
        seam = seam or _LINE.match(json, start + _AT_MOST)
        end = seam.end() if seam else len(json)
        yield _BASE64.sub(_media_or_text, json[start:end])
        start = end


def _media_or_text(found: re.Match[str]) -> str:
    text = found.group()
    return f"{_decoded_size(text)} bytes" if len(text) >= _SHORTEST_MEDIA else text


_IMAGES = ("image_url", "input_image", "image")
_READERS: dict[str, Callable[[dict[str, Any]], Iterator[Countable]]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal"), _text),
    "input_audio": _sound,
    **dict.fromkeys(("file", "input_file", "video_url", "input_video", "video"), _attachment),
    # What a model thought in an earlier turn is mostly not billed when it is sent again.
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning"), _nothing),
}
