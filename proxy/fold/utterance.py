"""What a message says, in words: for a reader who is not the model that it was written for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.counting.intricacy import is_intricate
from proxy.counting.parts import without_media

RESULTS = frozenset({"tool", "function"})

_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
_MEDIA = {
    **dict.fromkeys(("image_url", "input_image", "image"), "image"),
    **dict.fromkeys(("input_audio", "audio"), "audio"),
    **dict.fromkeys(("file", "input_file"), "file"),
    **dict.fromkeys(("video_url", "input_video", "video"), "video"),
}
_LONGEST_LABEL = 300  # of a media part: an address or a name, but no data


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that was to be called."""

    id: str
    name: str
    arguments: str

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclass(frozen=True, slots=True)
class Utterance:
    role: str
    text: str
    name: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""  # the id of the call whose result it is; of a legacy result the name

    @property
    def is_result(self) -> bool:
        return self.role in RESULTS


def utterance(raw: bytes) -> Utterance:
    """Reads any bytes: what cannot be taken apart is told as it stands."""
    message = None if is_intricate(raw) else _loaded(raw)
    if isinstance(message, dict):
        try:
            return _read(message)
        except orjson.JSONEncodeError:
            pass  # nested too deeply to be written again
    return Utterance("", without_media(raw.decode(errors="replace")))


def _loaded(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass  # half an emoji, which JavaScript leaves when it cuts a text, is no reason to give up on it
    try:
        return json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _read(message: dict[str, Any]) -> Utterance:
    role = _string(message.get("role"))
    texts = [*_content(message.get("content")), _string(message.get("refusal")), _spoken_aloud(message)]
    text = "\n".join(filter(None, texts))
    name = _string(message.get("name"))
    return Utterance(
        role,
        without_thoughts(text) if role == "assistant" else text,
        name,
        tuple(_calls(message)),
        name if role == "function" else _string(message.get("tool_call_id")),
    )


def _string(value: object) -> str:
    """Whole characters only: half a surrogate pair cannot be written anywhere again."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _content(content: Any) -> Iterator[str]:
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if isinstance(part, str):
            yield without_media(_string(part))
        elif isinstance(part, dict):
            yield _part(part)
        elif part is not None:
            yield _json(part)


def _part(part: dict[str, Any]) -> str:
    kind = part.get("type")
    text = part.get("text", part.get("refusal"))
    if not isinstance(kind, str) or (kind in _TEXTS and not isinstance(text, str)):
        return _json(part)
    if kind in _THINKING:
        return ""
    if kind in _MEDIA:
        return f"[{', '.join([_MEDIA[kind], *_labels(part, kind)])}]"
    return without_media(_string(text)) if kind in _TEXTS else _json(part)


def _labels(part: dict[str, Any], kind: str) -> Iterator[str]:
    """What is known of a picture, a sound or a file: names and addresses as they are, data as its size."""
    for inner in (part, *(value for value in part.values() if isinstance(value, dict))):
        for value in inner.values():
            if isinstance(value, str) and value not in (kind, "auto", "base64"):
                yield _label(_string(value))


def _label(value: str) -> str:
    if value.startswith("data:"):
        media_type = value[5:100].partition(";")[0].partition(",")[0]
        return f"{media_type}, {_bytes_in(value)} bytes"
    return value if len(value) <= _LONGEST_LABEL else f"{_bytes_in(value)} bytes"


def _bytes_in(base64: str) -> int:
    return len(base64) * 3 // 4


def _spoken_aloud(message: dict[str, Any]) -> str:
    audio = message.get("audio")
    return _string(audio.get("transcript")) if isinstance(audio, dict) else ""


def _calls(message: dict[str, Any]) -> Iterator[Call]:
    calls, legacy = message.get("tool_calls"), message.get("function_call")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            inner = call.get("function", call.get("custom"))
            yield _call(inner if isinstance(inner, dict) else call, _string(call.get("id")))
    if isinstance(legacy, dict):
        yield _call(legacy, _string(legacy.get("name")))


def _call(call: dict[str, Any], name: str) -> Call:
    arguments = call.get("arguments", call.get("input"))
    text = _string(arguments) if isinstance(arguments, str) else "" if arguments is None else _json(arguments)
    return Call(name, _string(call.get("name")), without_media(text))


def _json(value: Any) -> str:
    return without_media(orjson.dumps(value).decode())


def without_thoughts(text: str) -> str:
    """What open models think aloud in `<think>`; one that is never closed is taken for text."""
    kept, end = [], 0
    while (start := text.find("<think>", end)) >= 0 and (close := text.find("</think>", start)) >= 0:
        kept.append(text[end:start])
        end = close + len("</think>")
    return text if not end else "".join([*kept, text[end:]]).strip()
