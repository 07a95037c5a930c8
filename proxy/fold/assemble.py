"""What goes upstream in place of a long history. Whatever is kept is the client's own bytes."""

from __future__ import annotations

from dataclasses import replace

from proxy.fold.history import History
from proxy.fold.record import Fold
from proxy.messages import ChatRequest, with_messages


def folded(
    request: ChatRequest, history: History, fold: Fold, *, plainly: bool = False
) -> ChatRequest | None:
    """The client's request with its messages folded. None where the fold belongs to another history, or where
    the request has its messages twice and nobody knows which of them the upstream would take.
    """
    if not belongs(fold, history):
        return None
    messages = b"[%b]" % b",".join(sent(history, fold, plainly=plainly))
    body = with_messages(request, messages)
    return None if body is None else replace(request, raw=body, messages=messages)


def assembled(request: ChatRequest, history: History, fold: Fold) -> bytes | None:
    """The body of it."""
    found = folded(request, history, fold)
    return None if found is None else found.raw


def goes_on_whole(history: History, fold: Fold) -> bool:
    """Has every result behind the fold its call there too? A call may be answered when it is long folded."""
    sent = [history.spoken[number] for number in fold.kept] + list(history.spoken[fold.covers :])
    called: set[str] = set()
    for position in sent:
        turn = history.turns[position]
        called.update(turn.calls)
        if turn.answers is not None and turn.answers not in called:
            return False
    return True


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


def sent_before(history: History, fold: Fold | None, number: int, *, plainly: bool = False) -> list[bytes]:
    """Of all that is sent with a fold, or as it came, what stands before a spoken turn of its tail."""
    whole = [turn.raw for turn in history.turns] if fold is None else sent(history, fold, plainly=plainly)
    return whole[: len(whole) - (len(history.turns) - history.position(number))]
