"""What goes upstream in place of a long history. Whatever is kept is the client's own bytes."""

from __future__ import annotations

from proxy.fold.history import History
from proxy.fold.record import Fold
from proxy.messages import ChatRequest, with_messages


def assembled(request: ChatRequest, history: History, fold: Fold) -> bytes | None:
    """The body of the client's request, folded. None where the fold belongs to another history, or where the
    request has its messages twice and nobody knows which of them the upstream would take.
    """
    if not belongs(fold, history):
        return None
    return with_messages(request, b"[%b]" % b",".join(sent(history, fold)))


def belongs(fold: Fold, history: History) -> bool:
    return fold.covers <= history.length and history.chain[fold.covers] == fold.prefix


def sent(history: History, fold: Fold) -> list[bytes]:
    """The messages in their order. Nothing but the record and the history decides on it: what was sent once
    is the beginning of what is sent next, for as long as this fold is used.
    """
    cut = history.position(fold.covers)
    instructions = [turn.raw for turn in history.turns[:cut] if turn.instructs]
    pinned = [history.turns[history.spoken[number]].raw for number in fold.kept]
    tail = [turn.raw for turn in history.turns[cut:]]
    return [*instructions, *fold.messages, *pinned, *tail]
