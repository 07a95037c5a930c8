"""What Tailfold itself says in the head of an answer."""

from __future__ import annotations

from enum import StrEnum

from proxy.counting.anchors import Basis
from proxy.fold.record import Fold, Kind
from proxy.headers import Headers
from proxy.recent import Recent
from proxy.request import Request
from proxy.sending import Sending
from proxy.tidings import Tidings

CONVERSATION = b"X-Conversation-Id"
SOURCE = b"X-Conversation-Source"
ACTION = b"X-Tailfold-Action"
TOKENS = b"X-Tailfold-Tokens"
ORIGINAL_TOKENS = b"X-Tailfold-Original-Tokens"
LIMIT = b"X-Tailfold-Limit"
FOLDED_MESSAGES = b"X-Tailfold-Folded-Messages"
FOLD = b"X-Tailfold-Fold"
WARNING = b"X-Tailfold-Warning"

REMEMBERED = 8192

ROUGH_COUNT = "rough_count"


class Action(StrEnum):
    """What was done to a request."""

    PASS = "pass"
    REUSE = "reuse"  # sent with the same fold as one before it
    FOLD = "fold"  # sent with a summary for the first time in its conversation
    EXTRACT = "extract"  # likewise with one that no model has written
    TRUNCATE = "truncate"  # likewise, and something was left out
    OBSERVE = "observe"  # sent as it came, and told what would have been done


_OF_KIND = {
    Kind.SUMMARY: Action.FOLD,
    Kind.EXTRACT: Action.EXTRACT,
    Kind.SHRUNK: Action.TRUNCATE,
    Kind.TRUNCATION: Action.TRUNCATE,
}


class Announced:
    """Which folds are no news any more, and in which conversation. Each is told of once, whatever becomes of
    the request that was sent with it, and however many others are under way.
    """

    def __init__(self, tidings: Tidings) -> None:
        self._tidings = tidings
        self._folds: Recent[tuple[bytes, str, str], bool] = Recent(REMEMBERED)

    def is_news(self, request: Request, sending: Sending) -> bool:
        fold = sending.fold or sending.would
        last = request.found.lane.fold if request.found else None
        return fold is not None and fold.id != last and _named(request, fold) not in self._folds

    def tell(self, request: Request, sending: Sending) -> bool:
        """Whether it is told as news: once it has been, it is none."""
        is_news = self.is_news(request, sending)
        if (fold := sending.fold or sending.would) is not None:
            self._folds.put(_named(request, fold), True)
        if is_news and sending.fold is not None:
            saved = sending.received.tokens - sending.form.sized.counted.count.tokens
            self._tidings.used(request.tenant, request.conversation.id, sending.fold, saved)
        return is_news


def _named(request: Request, fold: Fold) -> tuple[bytes, str, str]:
    return request.tenant, request.conversation.id, fold.id


def actions(request: Request, sending: Sending, *, is_news: bool) -> list[Action]:
    fold = sending.fold or sending.would
    observed = [Action.OBSERVE] if request.wishes.mode == "observe" else []
    if fold is None:
        return observed or [Action.PASS]
    return [*observed, _OF_KIND[fold.kind] if is_news else Action.REUSE]


def warnings(sending: Sending) -> list[str]:
    rough = sending.form.sized.counted.count.basis is Basis.ROUGH
    return [*([ROUGH_COUNT] if rough else []), *sending.warnings]


def announcement(request: Request, sending: Sending, *, is_news: bool, folding: bool) -> Headers:
    """`folding` is false where answers are not to tell of folds."""
    conversation = request.conversation
    said = [(CONVERSATION, conversation.id.encode()), (SOURCE, conversation.source.encode())]
    said += _sizes(sending)
    if folding:
        said += _of_folding(request, sending, is_news=is_news)
    if found := warnings(sending):
        said.append((WARNING, ", ".join(found).encode()))
    return said


def _sizes(sending: Sending) -> Headers:
    sized = sending.form.sized
    return [(TOKENS, b"%d" % sized.counted.count.tokens), (LIMIT, b"%d" % sized.budget.room)]


def _of_folding(request: Request, sending: Sending, *, is_news: bool) -> Headers:
    said = [
        (ACTION, ", ".join(actions(request, sending, is_news=is_news)).encode()),
        (ORIGINAL_TOKENS, b"%d" % sending.received.tokens),
    ]
    fold = sending.fold or sending.would
    if fold is None:
        return said
    return [*said, (FOLDED_MESSAGES, b"%d" % _folded(fold)), (FOLD, fold.id.encode())]


def _folded(fold: Fold) -> int:
    return fold.covers - len(fold.kept)
