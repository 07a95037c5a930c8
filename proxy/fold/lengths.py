"""How long a summary may become: one rule, for who asks for it and for who plans with it."""

from __future__ import annotations

from dataclasses import dataclass

# A summary is to be so much smaller than what it replaces, and need not be smaller than this.
REDUCTION = 10
LEAST_TOKENS = 200
# But never more than this: a model writes some hundred tokens a second, and a call has its time.
_MOST = 8_000
# Of the window of the model that writes: what it is to read needs the rest. And of the conversation's own
# room: a summary that fills it makes the next fold due at once.
_WINDOW_SHARE = 16
_ROOM_SHARE = 8

_UNKNOWN = 10**9


@dataclass(frozen=True, slots=True)
class Lengths:
    """What bounds the summaries of a conversation, in tokens."""

    window: int = _UNKNOWN  # of the model that writes
    longest_answer: int = _UNKNOWN  # that this model gives
    room: int = _UNKNOWN  # of the conversation
    wished: int = _UNKNOWN  # by the user

    def limit(self, replaced: int) -> int:
        """For a summary that stands in the place of so many."""
        shares = min(_MOST, self.window // _WINDOW_SHARE, self.room // _ROOM_SHARE)
        wanted = min(replaced // REDUCTION, shares)
        return min(max(LEAST_TOKENS, wanted), self.longest_answer, self.wished)


UNBOUNDED = Lengths()
