"""What goes upstream in place of a long history. Whatever is kept is the client's own bytes."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from proxy.fold.history import History
from proxy.fold.record import Fold
from proxy.messages import ChatRequest, with_messages

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_parts = re.compile(rb"\[\s*\{")  # content in at least one part


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
    return [*_told(instructions, fold, plainly=plainly), *pinned, *tail]


def _told(instructions: list[bytes], fold: Fold, *, plainly: bool) -> list[bytes]:
    """The instructions of the folded part, and the summary."""
    if plainly and fold.plainer:
        return [*instructions, *fold.plainer]
    if fold.appended and instructions and (longer := _longer(instructions[0], fold.appended)) is not None:
        return [longer, *instructions[1:]]
    return [*instructions, *fold.messages]


def _longer(instruction: bytes, text: bytes) -> bytes | None:
    """With a text behind its own. None where it has none of its own."""
    try:
        members = _members(instruction)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    content = bytes(members.get("content", b""))
    if content.startswith(b'"'):
        content = b'%b%b"' % (content[:-1], text)
    elif _parts.match(content):
        content = b'%b,{"type":"text","text":"%b"}]' % (content[:-1], text)
    else:
        return None
    return msgspec.json.encode({**members, "content": msgspec.Raw(content)})


def sent_before(history: History, fold: Fold | None, number: int, *, plainly: bool = False) -> list[bytes]:
    """Of all that is sent with a fold, or as it came, what stands before a spoken turn of its tail."""
    whole = [turn.raw for turn in history.turns] if fold is None else sent(history, fold, plainly=plainly)
    return whole[: len(whole) - (len(history.turns) - history.position(number))]
