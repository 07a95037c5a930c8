"""The ways in which a provider can be told to fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from proxy.simulator.answers import Answer, ApiError, Framing, Header
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.wire import Ending, Pause, Step, framed, framed_pieces, head, script


class Fault(StrEnum):
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    REFUSE_STREAM_OPTIONS = "refuse_stream_options"
    HANG_BEFORE_HEADERS = "hang_before_headers"
    HANG_MID_STREAM = "hang_mid_stream"
    DISCONNECT_BEFORE_HEADERS = "disconnect_before_headers"
    RESET_MID_CHUNK = "reset_mid_chunk"
    TRUNCATED_BODY = "truncated_body"
    CUT_STREAM_CLOSE_DELIMITED = "cut_stream_close_delimited"
    MALFORMED_SSE = "malformed_sse"
    SLOW_DRIP = "slow_drip"


# Long enough for what was sent to reach the client before the reset overtakes it.
ARRIVAL = Pause(0.05)

# As in a real torn event: JSON that ends in the middle.
TORN_EVENT = b'data: {"id":"chatcmpl-torn","choices":[{"index":0,"delta":{"content":"to\n\n'


def fault_named(name: str) -> Fault:
    try:
        return Fault(name)
    except ValueError:
        known = ", ".join(Fault)
        raise ApiError(f"No fault is called {name!r}. Known: {known}.", param="x-sim-fault") from None


def refusal(fault: Fault | None, config: SimulatorConfig) -> ApiError | None:
    """The fault as an error answer, where it is one that any request gets."""
    match fault:
        case Fault.RATE_LIMITED:
            return _rate_limited(config.retry_after)
        case Fault.SERVER_ERROR:
            text = "The server had an error while processing your request. Sorry about that!"
            return ApiError(text, status=500, kind="server_error")
        case _:
            return None


def _rate_limited(retry_after: float) -> ApiError:
    seconds = f"{retry_after:g}"
    headers: tuple[Header, ...] = (
        ("retry-after", seconds),
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", f"{seconds}s"),
    )
    text = f"Rate limit reached for requests. Limit: 60 / min. Please try again in {seconds}s."
    return ApiError(text, status=429, kind="requests", code="rate_limit_exceeded", headers=headers)


def faulty_script(answer: Answer, fault: Fault, config: SimulatorConfig) -> Iterable[Step]:
    match fault:
        case Fault.HANG_BEFORE_HEADERS:
            return (Ending.HANG,)
        case Fault.DISCONNECT_BEFORE_HEADERS:
            return (Ending.CLOSE,)
        case Fault.HANG_MID_STREAM:
            return (*first_half(answer), Ending.HANG)
        case Fault.RESET_MID_CHUNK:
            return (*first_half(answer), _torn_piece(answer), ARRIVAL, Ending.RESET)
        case Fault.TRUNCATED_BODY:
            return (*first_half(answer), Ending.CLOSE)
        case Fault.CUT_STREAM_CLOSE_DELIMITED:
            return (*first_half(replace(answer, framing=Framing.CLOSE)), Ending.CLOSE)
        case Fault.MALFORMED_SSE:
            return script(_malformed(answer))
        case Fault.SLOW_DRIP:
            return _dripping(script(answer), config.drip_bytes, Pause(config.drip_delay))
        case _:
            return script(answer)


def first_half(answer: Answer) -> Iterator[Step]:
    """The head as if all were well, and half of what it promises."""
    yield head(answer)
    pieces = _divisible(answer).pieces
    yield from framed_pieces(replace(answer, pieces=pieces[: len(pieces) // 2]))


def _divisible(answer: Answer) -> Answer:
    if len(answer.pieces) != 1:
        return answer
    (whole,) = answer.pieces
    middle = len(whole) // 2
    return replace(answer, pieces=(whole[:middle], whole[middle:]))


def _torn_piece(answer: Answer) -> bytes:
    answer = _divisible(answer)
    frame = bytes(framed(answer.pieces[len(answer.pieces) // 2], answer.framing)) if answer.pieces else b""
    return frame[: len(frame) // 2]


def _malformed(answer: Answer) -> Answer:
    if answer.framing is Framing.CHUNKED:
        return replace(answer, pieces=(*answer.pieces[:1], TORN_EVENT, *answer.pieces[1:]))
    return replace(answer, pieces=_divisible(answer).pieces[:1])


def _dripping(steps: Iterable[Step], size: int, pause: Pause) -> Iterator[Step]:
    for step in steps:
        if not isinstance(step, (bytes, memoryview)):
            yield step
            continue
        for start in range(0, len(step), size):
            yield step[start : start + size]
            yield pause
