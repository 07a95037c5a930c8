"""One chat request, and all that is known of it before it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.conversation import Conversation
from proxy.headers import Headers
from proxy.histories import Line
from proxy.lanes import Found
from proxy.messages import ChatRequest
from proxy.sizing import Sized


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request says of its own folding; None where it leaves that to the settings."""

    mode: str = "compress"
    strategy: str | None = None
    threshold: float | None = None
    retain: int | str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    chat: ChatRequest
    tenant: bytes
    sized: Sized
    conversation: Conversation
    wishes: Wishes
    credentials: Headers
    query: bytes
    # None where its messages cannot be told apart, or nobody is to know of it.
    line: Line | None = None
    found: Found | None = None
    recalled: bool = False  # the store has been asked for its newest folds
    # The upstream has refused it as so many times larger than it was counted.
    underrated: float = 1.0
    plainly: bool = False  # … or for the role of its summary, which is told in the plainer form this time

    @property
    def beside(self) -> bytes | None:
        """Names what stands beside the conversation: instructions, tools, the answer's format."""
        prompt = self.sized.counted.prompt
        return prompt.outside.digest if prompt is not None else None
