"""What is wanted of a model that writes summaries, what comes back, and how that fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.headers import Headers
from proxy.usage import Usage, usage_from

_LONGEST_PAUSE = 3600.0

# Why a summary failed: what was to be summed up is longer than the model's window.
TOO_LONG = "too_long"


class SummaryFailed(Exception):
    """`reason` is a word for the log and a metric; `pause` is what the upstream has asked for, and `window`
    how large it says its own is.
    """

    def __init__(self, reason: str, pause: float | None = None, window: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause = pause
        self.window = window


class SummaryRefused(SummaryFailed):
    """Not in this form: asked for in another, it may be written."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be summed up, as the messages of a chat request."""

    messages: bytes  # their JSON array
    tokens: int  # of these, about
    most_tokens: int  # of the summary
    model: str  # the conversation's own
    preferred: str | None  # the one to ask first
    credentials: Headers
    query: bytes = b""  # of the conversation's own request: Azure's `api-version`, Google's `key`
    # Where it is to be the conversation's own request that is asked once more: what that says beside its
    # messages, in the client's own bytes.
    beside_messages: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    message: dict[str, Any]  # the assistant's, as it came: whether it is a summary is judged elsewhere
    finish_reason: str | None
    model: str
    usage: Usage | None
    in_callers_name: bool = False  # the upstream has accepted the caller's credential for it


class Summarizer(Protocol):
    async def write(self, wanted: Wanted) -> Written:
        """Raises SummaryFailed."""
        ...


def written_in(body: object, model: str) -> Written:
    match body:
        case {"choices": [{"message": dict(message)} as choice, *_]}:
            reason = choice.get("finish_reason")
            return Written(message, reason if isinstance(reason, str) else None, model, usage_from(body))
    raise SummaryFailed("unreadable")


def reason_of(status: int) -> str:
    """The word for an answer that is none."""
    return "unauthorized" if status == 401 else f"status_{status}"


def pause_in(retry_after: bytes | str | None) -> float | None:
    """`Retry-After` in seconds; its other form, a date, is for pages and not for APIs."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return min(seconds, _LONGEST_PAUSE) if seconds >= 0 else None
