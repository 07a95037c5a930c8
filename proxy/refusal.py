"""What an upstream refuses, read before a byte of it has reached the client: some of it is ours to mend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from proxy.decoding import NotDecodable, decoder_for
from proxy.headers import first
from proxy.sse import ChatStream
from proxy.upstream import Answer
from proxy.watching import is_an_error

# Gateways in front of a model turn its 400 into a 500 or 502.
_STATUSES = frozenset({400, 413, 422, 500, 502})
# How much is read to learn what was refused.
_MOST = 64 * 1024
# So much of an answer shows how it begins, however it is indented.
_TELLING = 256
# Seconds that a first event is waited for: prompts are refused at once, but some servers think for minutes.
_PATIENCE = 5.0
# What an answer says near its beginning that is an error, and where that is looked for.
_ERROR = '"error"'
_LOOKED_AT = 256


@dataclass(frozen=True, slots=True)
class Refusal:
    """`status` is None where an answer that began well turned out to be an error."""

    status: int | None
    said: object
    text: str

    def names(self, *words: str) -> bool:
        return any(word in self.text for word in words)


async def refusal_in(answer: Answer, *, looks_inside: bool) -> Refusal | None:
    """None where the answer is one. It can be read again either way.

    `looks_inside` at answers that begin well: their first event may be an error all the same. For so long the
    client waits for the head, so that this is only for requests that are long enough to be refused.
    """
    if answer.status in _STATUSES:
        text = await _read_until(answer, lambda _: False)
        return Refusal(answer.status, _meaning(text), text)
    if not looks_inside or answer.status != 200 or _is_surely_one(answer):
        return None
    media_type = (first(answer.headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    if media_type == b"text/event-stream":
        said = _first_event(await _read_until(answer, _has_an_event))
        return None if said is None else Refusal(None, said, orjson.dumps(said).decode())
    if media_type.endswith(b"json"):
        text = await _read_until(answer, lambda text: not _may_be_an_error(text))
        said = _meaning(text) if _may_be_an_error(text) else None
        return Refusal(None, said, text) if is_an_error(said) else None
    return None


def _is_surely_one(answer: Answer) -> bool:
    """By what has come together with the head: nearly always enough, and told in no time."""
    begun = answer.read_ready()
    answer.put_back(begun)
    plain = begun[:1] == b"{" and len(begun) > _TELLING
    return b"error" not in begun and (plain or (b"data:" in begun and b"\n\n" in begun))


async def _read_until(answer: Answer, enough: Callable[[str], bool]) -> str:
    """The body as far as it was read, decoded; empty where it cannot be decoded. All of it is put back."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(_PATIENCE):
            while not answer.complete and sum(map(len, pieces)) < _MOST:
                text = _decoded(answer, b"".join(pieces))
                if text is None or enough(text):
                    break
                pieces.append(await answer.read())
    except TimeoutError:
        pass  # it has begun to answer, or has nothing to say yet
    except BaseException:
        answer.close()
        raise
    read = b"".join([*pieces, answer.read_ready()])
    answer.put_back(read)
    return _decoded(answer, read) or ""


def _decoded(answer: Answer, pieces: bytes) -> str | None:
    try:
        return decoder_for(first(answer.headers, b"content-encoding")).feed(pieces).decode(errors="replace")
    except NotDecodable:
        return None


def _meaning(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _has_an_event(text: str) -> bool:
    """A whole one, of which comments are no part: they only keep a connection alive."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return any("data:" in event or event.startswith("error:") for event in lines.split("\n\n")[:-1])


def _first_event(text: str) -> object:
    stream = ChatStream(hide_usage=False)
    stream.feed(text.encode())
    stream.flush()
    return stream.error


def _may_be_an_error(text: str) -> bool:
    """As far as it has come."""
    begins = text.lstrip()[:_LOOKED_AT]
    return _ERROR in begins or len(begins) < _LOOKED_AT
