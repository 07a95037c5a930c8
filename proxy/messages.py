"""A chat request as the client wrote it: the bytes, and the few things in them that we need to know."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any

import msgspec
import orjson

Place = tuple[int, int]

_ABSENT = msgspec.Raw()


class Names(msgspec.Struct):
    """What a request says of the conversation that it belongs to."""

    session_id: Any = None
    litellm_session_id: Any = None
    conversation_id: Any = None
    metadata: Any = None
    prompt_cache_key: Any = None


class _Fields(Names):
    """What we read of the body. The rest is skipped over, which costs a fifth of parsing it."""

    model: Any = None
    stream: Any = None
    stream_options: Any = msgspec.UNSET
    messages: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    functions: msgspec.Raw = _ABSENT  # what tools were called before there were tools
    response_format: msgspec.Raw = _ABSENT
    max_completion_tokens: Any = None
    max_tokens: Any = None
    n: Any = None


class _Role(msgspec.Struct):
    role: Any = None


NAMELESS = Names()
_decode = msgspec.json.Decoder(_Fields).decode
_decode_role = msgspec.json.Decoder(_Role).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_MOST_TOKENS = 2**40
# Of a model: what is longer names none, and would only be remembered in vain.
_LONGEST_NAME = 512


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`readable` is false where the body is not a JSON object, or compressed in an unknown way."""

    raw: bytes
    readable: bool
    model: str | None = None
    streams: bool = False
    stream_options: Any = msgspec.UNSET  # UNSET: the client said nothing, which is not null
    # The client's own JSON of these; empty where they are absent.
    messages: bytes = b""
    tools: bytes = b""
    functions: bytes = b""
    response_format: bytes = b""
    answer_limit: int | None = None  # how long the answer may be, where the client said so
    choices: int = 1
    names: Names = NAMELESS
    copied: bool = False  # read from a decompressed or mended copy: `raw` is not to be written into

    @property
    def has_tools(self) -> bool:
        return not {self.tools, self.functions} <= {b"", b"[]", b"null"}

    @property
    def values(self) -> tuple[bytes, ...]:
        """What can be long in a request, and is in there byte for byte unless it was read from a copy."""
        return self.messages, self.tools, self.functions, self.response_format

    @property
    def asks_for_usage(self) -> bool:
        options = self.stream_options
        return isinstance(options, dict) and options.get("include_usage") is True


def read(raw: bytes, *, compressed: bool) -> ChatRequest:
    """What we cannot read is the upstream's business: it is forwarded all the same."""
    if compressed:
        return ChatRequest(raw, readable=False)
    if (fields := _fields(raw)) is not None:
        return _request(raw, fields, copied=False)
    if (fields := _fields(_without_half_characters(raw))) is not None:
        return _request(raw, fields, copied=True)
    return ChatRequest(raw, readable=False)


def read_decompressed(raw: bytes, plain: bytes) -> ChatRequest:
    """What a compressed body says; it is forwarded as it came."""
    return replace(read(plain, compressed=False), raw=raw, copied=True)


def _request(raw: bytes, fields: _Fields, *, copied: bool) -> ChatRequest:
    named = isinstance(fields.model, str) and len(fields.model) <= _LONGEST_NAME
    model = fields.model if named else None
    return ChatRequest(
        raw,
        True,
        model,
        fields.stream is True,
        fields.stream_options,
        bytes(fields.messages),
        bytes(fields.tools),
        bytes(fields.functions),
        bytes(fields.response_format),
        _tokens(fields.max_completion_tokens) or _tokens(fields.max_tokens),
        _tokens(fields.n) or 1,
        _names(fields),
        copied,
    )


def _names(fields: _Fields) -> Names:
    return Names(
        fields.session_id,
        fields.litellm_session_id,
        fields.conversation_id,
        fields.metadata,
        fields.prompt_cache_key,
    )


def _fields(raw: bytes) -> _Fields | None:
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


# Half of a pair: JavaScript clients that cut a text in the middle of an emoji send it, and servers take it.
# Begins with letters that rarely stand anywhere else: nothing but the escape of a surrogate costs time.
_HALF = re.compile(
    rb"\\u[dD](?:"
    rb"[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F](?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F])[0-9a-fA-F]{2}"
    rb")"
)
_SURROGATE = re.compile(rb"\\u[dD]")
# So that all of it takes a twentieth of a second: it is done on the event loop.
_MOST_MENDED = 6 * 1024 * 1024
_MOST_SURROGATES = 50_000
_MOST_PAIRS = 250_000


def _without_half_characters(raw: bytes) -> bytes:
    """For reading only, and of the same length: what is forwarded stays the client's own."""
    if len(raw) > _MOST_MENDED:
        return b""
    surrogates = sum(1 for _ in islice(_SURROGATE.finditer(raw), _MOST_SURROGATES + 1))
    pairs = raw.count(rb"\\")
    if not 0 < surrogates <= _MOST_SURROGATES or pairs > _MOST_PAIRS:
        return b""
    if not pairs:
        return _HALF.sub(rb"\\ufffd", raw)
    # A backslash that is itself escaped begins no escape. While such pairs are away, every other one does.
    instead = next((bytes([byte, byte]) for byte in range(0x20) if byte not in raw), None)
    if instead is None:
        return b""
    return _HALF.sub(rb"\\ufffd", raw.replace(rb"\\", instead)).replace(instead, rb"\\")


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _MOST_TOKENS else None


def items(array: bytes) -> list[bytes] | None:
    """The elements of a JSON array, each in its own bytes; None where it is no array."""
    try:
        return [bytes(item) for item in _decode_items(array)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def role_of(message: bytes) -> str:
    """Who speaks; empty where the message does not say."""
    try:
        role = _decode_role(message).role
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return role if isinstance(role, str) else ""


def asking_for_usage(request: ChatRequest) -> bytes | None:
    """The client's bytes with `include_usage` put in; None where that is not possible or not wanted.

    Spliced, not serialised again: key order, spacing, escapes and large numbers stay the client's own.
    """
    if not request.readable or request.copied or not request.streams or request.asks_for_usage:
        return None
    raw, options = request.raw, request.stream_options
    if options is msgspec.UNSET:
        return _appended(raw, b'"stream_options":{"include_usage":true}')
    if options is not None and not isinstance(options, dict):
        return None  # a mistake of the client's: the upstream will say so
    places = _places(raw, "stream_options", request.values)
    if places is None or len(places) != 1:
        return None  # said twice: nobody knows which one the upstream would take
    start, end = places[0]
    return raw[:start] + _with_usage(raw[start:end] if options else b"{}") + raw[end:]


def with_messages(request: ChatRequest, messages: bytes) -> bytes | None:
    """The client's bytes with these for its messages; None where they are not in there, or are twice."""
    if not request.messages or request.copied:
        return None
    places = _places(request.raw, "messages", request.values)
    if places is None or len(places) != 1:
        return None
    start, end = places[0]
    return request.raw[:start] + messages + request.raw[end:]


def beside_messages(request: ChatRequest) -> dict[str, bytes] | None:
    """What else the body says, each value in the client's own bytes; None where that is not to be had."""
    if not request.messages or request.copied:
        return None
    try:
        members = _decode_members(request.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return {key: bytes(value) for key, value in members.items() if key != "messages"}


def _with_usage(options: bytes) -> bytes:
    places = _places(options, "include_usage")
    if not places:
        return _appended(options, b'"include_usage":true')
    ends = [0, *(end for _, end in places)]
    kept = [options[end:start] for end, (start, _) in zip(ends, places, strict=False)]
    return b"true".join([*kept, options[ends[-1] :]])


def _appended(raw_object: bytes, member: bytes) -> bytes:
    end = raw_object.rindex(b"}")
    comma = b"" if raw_object[:end].rstrip().endswith(b"{") else b","
    return raw_object[:end] + comma + member + raw_object[end:]


# Every token that is looked at is a step of ours, on the event loop. What a request says beside its messages
# and tools takes some hundred of them; one that would take more than these is left as it is.
_MOST_SEARCHED = 1024 * 1024
_MOST_STEPS = 50_000
_WORTH_A_CUT = 4096


def _places(raw_object: bytes, wanted: str, values: Iterable[bytes] = ()) -> list[Place] | None:
    """Where the values of this key are; None where finding them would take long.

    Nearly all of a long request are a few `values` that are known by their bytes: without them the rest is
    looked through in no time.
    """
    long = sorted((value for value in values if len(value) >= _WORTH_A_CUT), key=len, reverse=True)
    if len(raw_object) - sum(map(len, long)) > _MOST_SEARCHED:
        return None
    parts = _parts_between(raw_object, long)
    members = _members(b"0".join(raw_object[start:end] for start, end in parts))
    if members is None:
        return None
    if not _cuts(parts) <= {place for _, place in members}:
        # The same bytes stand somewhere else too and were cut out there, perhaps in the middle of a string.
        return _places(raw_object, wanted)
    return [_uncut(place, parts) for key, place in members if key == wanted]


def _parts_between(raw: bytes, values: Iterable[bytes]) -> list[Place]:
    """What is left of `raw` when each of the values is cut out once, the longest first."""
    parts = [(0, len(raw))]
    for value in values:
        for at, (start, end) in enumerate(parts):
            if (found := raw.find(value, start, end)) >= 0:
                parts[at : at + 1] = [(start, found), (found + len(value), end)]
                break
    return parts


def _cuts(parts: list[Place]) -> set[Place]:
    """Where there is one byte in the place of a value, when the parts are joined by one."""
    ends = list(accumulate((end - start + 1 for start, end in parts[:-1])))
    return {(end - 1, end) for end in ends}


def _uncut(place: Place, parts: list[Place]) -> Place:
    start, end = (_before_the_cuts(position, parts) for position in place)
    return start, end


def _before_the_cuts(position: int, parts: list[Place]) -> int:
    for start, end in parts:
        if position <= end - start:
            return start + position
        position -= end - start + 1
    raise ValueError(position)


# Possessive: a string of many megabytes (an image) is passed over without a thought of going back.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)


def _members(raw: bytes) -> list[tuple[str, Place]] | None:
    """Each key of the outermost object with the place of its value; `raw` is known to be a valid object, and
    None is said of one with too many tokens.
    """
    found: list[tuple[str, Place]] = []
    depth = 0
    key: str | None = None
    start = -1  # where the current value begins; -1 while a key is awaited
    for token in islice(_TOKEN.finditer(raw), _MOST_STEPS):
        text = token.group()
        if text in b"}]" or (text == b"," and depth == 1):
            if depth == 1 and key is not None:
                found.append((key, _trimmed(raw, start, token.start())))
                key, start = None, -1
            depth -= text != b","
        elif text in b"{[":
            depth += 1
        elif depth == 1 and start < 0:
            if text == b":":
                start = token.end()
            else:
                key = _key(text)
    return None if depth else found


def _key(text: bytes) -> str:
    try:
        return str(orjson.loads(text))
    except orjson.JSONDecodeError:
        return ""  # none that is looked for


def _trimmed(raw: bytes, start: int, end: int) -> Place:
    value = raw[start:end]
    start += len(value) - len(value.lstrip())
    return start, start + len(value.strip())
