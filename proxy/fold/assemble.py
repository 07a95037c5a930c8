"""What goes upstream in place of a long history. Whatever is kept is the client's own bytes."""

from __future__ import annotations

from proxy.fold.history import History
from proxy.fold.record import Fold
from proxy.messages import ChatRequest, with_messages


def assembled(request: ChatRequest, history: History, fold: Fold, *, plainly: bool = False) -> bytes | None:
    """The body of the client's request, folded. None where the fold belongs to another history, or where the
    request has its messages twice and nobody knows which of them the upstream would take.
    """
    if not belongs(fold, history):
        return None
    return with_messages(request, array(history, fold, plainly=plainly))


def array(history: History, fold: Fold, *, plainly: bool = False) -> bytes:
    """What is sent, as JSON."""
    return b"[%b]" % b",".join(sent(history, fold, plainly=plainly))


def belongs(fold: Fold, history: History) -> bool:
    return fold.covers <= history.length and history.chain[fold.covers] == fold.prefix


def sent(history: History, fold: Fold, *, plainly: bool = False) -> list[bytes]:
    """The messages in their order. Nothing but the record and the history decides on it: what was sent once
    is the beginning of what is sent next, for as long as this fold is used.

    `plainly` is for an upstream whose template has refused the role of the summary.
    """
    cut = history.position(fold.covers)
    instructions = [turn.raw for turn in history.turns[:cut] if turn.instructs]
    pinned = [
        fold.shrunk.get(number, history.turns[history.spoken[number]].raw) for number in sorted(fold.kept)
    ]
    tail = [turn.raw for turn in history.turns[cut:]]
    told = fold.plainer if plainly and fold.plainer else fold.messages
    return [*instructions, *told, *pinned, *tail]
