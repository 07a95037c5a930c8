"""What Tailfold itself says in the head of an answer."""

from __future__ import annotations

from enum import StrEnum

from proxy.counting.anchors import Basis
from proxy.fold.record import Fold, Kind
from proxy.headers import Headers
from proxy.request import Request
from proxy.sending import Sending

CONVERSATION = b"X-Conversation-Id"
SOURCE = b"X-Conversation-Source"
ACTION = b"X-Tailfold-Action"
TOKENS = b"X-Tailfold-Tokens"
ORIGINAL_TOKENS = b"X-Tailfold-Original-Tokens"
LIMIT = b"X-Tailfold-Limit"
FOLDED_MESSAGES = b"X-Tailfold-Folded-Messages"
FOLD = b"X-Tailfold-Fold"
WARNING = b"X-Tailfold-Warning"

ROUGH_COUNT = "rough_count"


class Action(StrEnum):
    """What was done to a request."""

    PASS = "pass"
    REUSE = "reuse"  # sent with the same fold as the request before it
    FOLD = "fold"  # sent with a summary for the first time
    EXTRACT = "extract"  # likewise with one that no model has written
    TRUNCATE = "truncate"  # likewise, and something was left out
    OBSERVE = "observe"  # sent as it came, and told what would have been done


_OF_KIND = {
    Kind.SUMMARY: Action.FOLD,
    Kind.EXTRACT: Action.EXTRACT,
    Kind.SHRUNK: Action.TRUNCATE,
    Kind.TRUNCATION: Action.TRUNCATE,
}


def actions(request: Request, sending: Sending) -> list[Action]:
    fold = sending.fold or sending.would
    observed = [Action.OBSERVE] if request.wishes.mode == "observe" else []
    if fold is None:
        return observed or [Action.PASS]
    last = request.found.lane.fold if request.found else None
    return [*observed, Action.REUSE if fold.id == last else _OF_KIND[fold.kind]]


def warnings(sending: Sending) -> list[str]:
    rough = sending.form.sized.counted.count.basis is Basis.ROUGH
    return [*([ROUGH_COUNT] if rough else []), *sending.warnings]


def announcement(request: Request, sending: Sending, *, folding: bool) -> Headers:
    """`folding` is false where answers are not to tell of folds."""
    conversation = request.conversation
    said = [(CONVERSATION, conversation.id.encode()), (SOURCE, conversation.source.encode())]
    said += _sizes(sending)
    if folding:
        said += _of_folding(request, sending)
    if found := warnings(sending):
        said.append((WARNING, ", ".join(found).encode()))
    return said


def _sizes(sending: Sending) -> Headers:
    sized = sending.form.sized
    return [(TOKENS, b"%d" % sized.counted.count.tokens), (LIMIT, b"%d" % sized.budget.room)]


def _of_folding(request: Request, sending: Sending) -> Headers:
    said = [
        (ACTION, ", ".join(actions(request, sending)).encode()),
        (ORIGINAL_TOKENS, b"%d" % sending.received.tokens),
    ]
    fold = sending.fold or sending.would
    if fold is None:
        return said
    return [*said, (FOLDED_MESSAGES, b"%d" % _folded(fold)), (FOLD, fold.id.encode())]


def _folded(fold: Fold) -> int:
    return fold.covers - len(fold.kept)
