"""The way of a chat request: receive, identify, recall, count, decide, assemble, forward, relay, record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter

import structlog

from proxy import messages
from proxy.announcing import Announced, actions, announcement, warnings
from proxy.books import Books
from proxy.callers import REFUSED, Callers
from proxy.conversation import Conversation, conversation_of
from proxy.counting.measuring import Split
from proxy.counting.once import Once
from proxy.decoding import NotDecodable, decoder_for
from proxy.exchange import Exchange, Size, Stage
from proxy.fold.history import beginning
from proxy.folding import Folding, refused_as_larger
from proxy.headers import Headers, first, replaced, to_upstream
from proxy.histories import Histories, Told, line_of
from proxy.identify import Tenants, credentials_in
from proxy.lanes import Lanes, Relation
from proxy.messages import ChatRequest
from proxy.metrics import Metrics
from proxy.observing import Observing
from proxy.recalling import Recalling
from proxy.refusal import Refusal, refusal_in
from proxy.relay import Client, relay
from proxy.request import Request, Wishes
from proxy.sending import Sending, as_it_came
from proxy.sizing import Sizing
from proxy.upstream import Answer, Outgoing, Upstream
from proxy.watching import Watch, is_an_error, watch
from proxy.windows.asking import Asking
from proxy.windows.overflow import Overflow, overflow, overflow_by_numbers

log = structlog.get_logger("tailfold")

_REFUSALS = (400, 422)
_LONG = 1_000
# What templates say of a summary in a role or place that they do not know.
_ABOUT_ROLES = ("role", "template", "ystem message")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A chat request as it came in; `target` is the path below /v1 with its query, as the client has it."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    wishes: Wishes


@dataclass(frozen=True, slots=True)
class Rooms:
    """Those that a request passes."""

    upstream: Upstream
    tenants: Tenants
    callers: Callers
    sizing: Sizing
    histories: Histories
    recalling: Recalling
    lanes: Lanes
    folding: Folding
    observing: Observing
    books: Books
    announced: Announced
    asking: Asking | None  # None where the upstream is not to be asked about itself


@dataclass(frozen=True, slots=True)
class _Identified:
    """Whose request it is, of which conversation, and what each of its messages says."""

    tenant: bytes
    split: Split | None  # None where it cannot be told apart
    told: Told | None
    conversation: Conversation


@dataclass(slots=True)
class _Attempt:
    """How a request is sent: in which form, and what has been tried in vain."""

    request: Request
    sending: Sending
    asks_for_usage: bool
    refused: set[str] = field(default_factory=set)
    learned_from: Sending | None = None  # the one whose refusal has taught something


@dataclass(frozen=True, slots=True)
class _Sent:
    answer: Answer
    watched: Watch
    attempt: _Attempt


class ChatPipeline:
    def __init__(self, rooms: Rooms, metrics: Metrics, *, ask_for_usage: bool, tells_folds: bool) -> None:
        self._rooms = rooms
        self._metrics = metrics
        self._ask_for_usage = ask_for_usage  # turns false for good once the upstream has refused the wish
        self._tells_folds = tells_folds
        self._failures = Once()

    async def run(self, incoming: Incoming, client: Client, exchange: Exchange) -> None:
        began = perf_counter()
        chat = self._receive(incoming, exchange)
        named = await self._identify(incoming, chat)
        recalled = await self._recall(chat, named, incoming.wishes)
        request = await self._count(incoming, chat, named, recalled=recalled)
        exchange.counting = perf_counter() - began
        sending = await self._decide(request)
        self._note(exchange, request, sending, is_news=self._rooms.announced.is_news(request, sending))
        exchange.spent(Stage.PREPARE, began + sending.waited)
        sent = await self._forward(incoming, request, sending)
        request, sending = sent.attempt.request, sent.attempt.sending
        is_news = self._rooms.announced.tell(request, sending)
        self._note(exchange, request, sending, is_news=is_news)
        try:
            announced = announcement(request, sending, is_news=is_news, folding=self._tells_folds)
            await relay(sent.answer, sent.watched, client, exchange, announced)
        finally:
            sent.answer.close()
            self._record(incoming, sent, exchange)

    def _receive(self, incoming: Incoming, exchange: Exchange) -> ChatRequest:
        chat = _read(incoming.body, first(incoming.headers, b"content-encoding"))
        exchange.model, exchange.streams = chat.model, chat.streams
        return chat

    async def _identify(self, incoming: Incoming, chat: ChatRequest) -> _Identified:
        tenant = self._rooms.tenants.of(incoming.headers, incoming.target)
        split = await self._rooms.sizing.split(tenant, chat)
        told = await self._told(tenant, split)
        chain = told.chain if told is not None else (beginning(tenant),)
        return _Identified(tenant, split, told, conversation_of(incoming.headers, chat.names, chain))

    async def _told(self, tenant: bytes, split: Split | None) -> Told | None:
        try:
            return await self._rooms.histories.told(tenant, split.parts) if split is not None else None
        except Exception as failure:  # noqa: BLE001 - the request is worth more than its history
            self._log_once("read a history", failure)
            return None

    async def _recall(self, chat: ChatRequest, named: _Identified, wishes: Wishes) -> bool:
        try:
            return await self._rooms.recalling.recall(
                named.tenant, named.conversation, chat, named.split, named.told, wishes.mode
            )
        except Exception as failure:  # noqa: BLE001 - then what this process knows by itself must do
            self._log_once("recall", failure)
            return False

    async def _count(
        self, incoming: Incoming, chat: ChatRequest, named: _Identified, *, recalled: bool
    ) -> Request:
        tenant, wishes = named.tenant, incoming.wishes
        sized = await self._rooms.sizing.size(tenant, chat, named.split, wishes.threshold)
        measured, told = sized.counted.measured, named.told
        line = line_of(told, measured) if told is not None and measured is not None else None
        credentials, query = credentials_in(incoming.headers), incoming.target.partition(b"?")[2]
        request = Request(
            chat, tenant, sized, named.conversation, wishes, credentials, query, line, recalled=recalled
        )
        return self._found(request)

    def _found(self, request: Request) -> Request:
        if request.line is None or request.wishes.mode == "off":
            return request
        try:
            found = self._rooms.lanes.find(request.conversation, request.line)
            if request.sized.budget.past_soft(request.sized.counted.count):
                found = found.of_a_long_request()
            if found.relation is Relation.TRIMMED:  # it keeps the name that it had
                called = replace(request.conversation, id=found.lane.conversation)
                return replace(request, found=found, conversation=called)
            return replace(request, found=found)
        except Exception as failure:  # noqa: BLE001 - it is as good as a new conversation then
            self._log_once("find a lane", failure)
            return request

    async def _decide(self, request: Request, *, again: bool = False) -> Sending:
        try:
            if request.wishes.mode == "observe":
                return await self._rooms.observing.decide(request)
            return await self._rooms.folding.decide(request, again=again)
        except Exception as failure:  # noqa: BLE001 - what we cannot fold is sent as it came
            self._log_once("decide", failure)
            return as_it_came(request)

    # Sent once; once more for each thing of ours that the upstream has refused.

    async def _forward(self, incoming: Incoming, request: Request, sending: Sending) -> _Sent:
        wishes = incoming.wishes
        asks = self._ask_for_usage and wishes.mode == "compress" and wishes.strategy != "off"
        attempt = _Attempt(request, sending, asks)
        while True:
            outgoing, hides = self._assemble(incoming, attempt)
            answer = await self._rooms.upstream.send(outgoing)
            looks_inside = incoming.wishes.mode == "compress" and _is_long(attempt.sending)
            refusal = await refusal_in(answer, looks_inside=looks_inside)
            reason = await self._mended(attempt, refusal, hides=hides) if refusal is not None else None
            if reason is None:
                self._settle(attempt, answer, well=answer.status == 200 and refusal is None)
                return _Sent(answer, watch(answer.headers, hide_usage=hides), attempt)
            answer.close()
            attempt.refused.add(reason)
            self._metrics.resent(reason)

    def _assemble(self, incoming: Incoming, attempt: _Attempt) -> tuple[Outgoing, bool]:
        """What goes out, and whether its stream will have an event in it that the client did not ask for."""
        headers, chat = to_upstream(incoming.headers), attempt.sending.form.chat
        body = messages.asking_for_usage(chat) if attempt.asks_for_usage else None
        if body is None:
            return Outgoing(incoming.method, incoming.target, headers, chat.raw), False
        # An event can only be taken out of a stream that is not compressed.
        plain: Headers = replaced(headers, b"accept-encoding", b"identity")
        return Outgoing(incoming.method, incoming.target, plain, body), True

    async def _mended(self, attempt: _Attempt, refusal: Refusal, *, hides: bool) -> str | None:
        """The attempt is to be made once more, in another form: why. None where there is nothing to mend."""
        if hides and refusal.status in _REFUSALS and refusal.names("stream_options"):
            attempt.asks_for_usage = False
            return "stream_options"
        too_long = _too_long(attempt, refusal)
        if too_long is not None and "overflow" not in attempt.refused:
            return await self._made_shorter(attempt, too_long, refusal)
        if attempt.sending.fold is not None and "role" not in attempt.refused:
            return await self._told_plainly(attempt, refusal)
        return None

    async def _made_shorter(self, attempt: _Attempt, too_long: Overflow, refusal: Refusal) -> str | None:
        request, sent = attempt.request, attempt.sending.form.sized
        if request.wishes.mode != "compress" or not self._learn_from_refusal(attempt, refusal):
            return None
        split = await self._rooms.sizing.split(request.tenant, request.chat)
        threshold = request.wishes.threshold
        sized = await self._rooms.sizing.size(request.tenant, request.chat, split, threshold)
        if sized.budget.reserved is None and too_long.counts_answer(sent.counted.count.tokens, sent.declared):
            return None  # beside such an answer no prompt is short enough
        request = refused_as_larger(replace(request, sized=sized), attempt.sending, too_long)
        return await self._in_another_form(attempt, request, "overflow")

    async def _told_plainly(self, attempt: _Attempt, refusal: Refusal) -> str | None:
        if refusal.status is None or not refusal.names(*_ABOUT_ROLES):
            return None
        return await self._in_another_form(attempt, replace(attempt.request, plainly=True), "role")

    async def _in_another_form(self, attempt: _Attempt, request: Request, reason: str) -> str | None:
        sending = await self._decide(request, again=reason == "overflow")
        if sending.form.chat.raw == attempt.sending.form.chat.raw:
            return None
        attempt.request, attempt.sending = request, sending
        return reason

    def _settle(self, attempt: _Attempt, answer: Answer, *, well: bool) -> None:
        # Some servers quote the whole request in any refusal: only if it was our wish is it not made again.
        if "stream_options" in attempt.refused and answer.status not in _REFUSALS:
            self._ask_for_usage = False
        # So it is with the role of a summary: another request is refused for a role of its own.
        if "role" in attempt.refused and well:
            self._rooms.folding.is_refused_its_role(attempt.request.sized.model)
        if "overflow" in attempt.refused and well:
            self._metrics.overflow_recovered()

    # After the last byte.

    def _note(self, exchange: Exchange, request: Request, sending: Sending, *, is_news: bool) -> None:
        sized = sending.form.sized
        count = sized.counted.count
        exchange.size = Size(
            count.tokens,
            sending.received.tokens,
            count.basis,
            sized.budget.room,
            sized.window.origin,
            exchange.counting,
        )
        exchange.avoided = sending.fold is not None and not request.sized.budget.fits(sending.received)
        exchange.conversation = request.conversation.id
        exchange.actions = actions(request, sending, is_news=is_news)
        exchange.warnings = warnings(sending)

    def _record(self, incoming: Incoming, sent: _Sent, exchange: Exchange) -> None:
        began = perf_counter()
        attempt, sizing = sent.attempt, self._rooms.sizing
        request, sending = attempt.request, attempt.sending
        exchange.usage = sent.watched.usage()
        well = not is_an_error(sent.watched.said())
        self._rooms.callers.answered(request.tenant, exchange.status, well=well)
        if 200 <= exchange.status < 300:
            lesson = sizing.answered(sending.form.sized, exchange.usage)
            if exchange.size is not None:
                exchange.size.truncated = lesson.truncated
            if sending.fold is not None:
                sizing.answered(request.sized, None)  # what was counted of it is remembered all the same
            if self._rooms.asking is not None:
                self._rooms.asking.about(sending.form.sized.model, credentials_in(incoming.headers))
            self._enter(request, sending)
        elif exchange.status not in REFUSED:
            sizing.answered(request.sized, None)
        self._learn_from_what_was_relayed(attempt, sent.watched, exchange)
        exchange.spent(Stage.RECORD, began)

    def _enter(self, request: Request, sending: Sending) -> None:
        try:
            begun = self._rooms.folding.begin(request, sending)
            self._rooms.books.enter(request, sending, begun)
        except Exception as failure:  # noqa: BLE001 - the client has its answer, and it stays one
            self._log_once("enter into the books", failure)

    def _learn_from_what_was_relayed(self, attempt: _Attempt, watched: Watch, exchange: Exchange) -> None:
        said = watched.said()
        if exchange.status < 300 and not is_an_error(said):
            return
        # In a stream, and from some gateways, a refusal comes with a 200.
        status = exchange.status if exchange.status >= 300 else None
        self._learn_from_refusal(attempt, Refusal(status, said, ""))

    def _learn_from_refusal(self, attempt: _Attempt, refusal: Refusal) -> bool:
        too_long = _too_long(attempt, refusal)
        if too_long is None:
            return False
        if attempt.learned_from is not attempt.sending:
            attempt.learned_from = attempt.sending
            self._rooms.sizing.refused(attempt.sending.form.sized, too_long)
            self._metrics.overflowed()
        return True

    def _log_once(self, doing: str, failure: Exception) -> None:
        kind = type(failure).__name__
        if self._failures.first(f"{doing} {kind}"):
            # Only where it happened: the message and the values may quote a conversation.
            log.error("a request is forwarded as it came", doing=doing, kind=kind, at=_place_of(failure))


def _too_long(attempt: _Attempt, refusal: Refusal) -> Overflow | None:
    sized = attempt.sending.form.sized
    counted, declared = sized.counted.count.tokens, sized.declared
    found = overflow(refusal.status, refusal.said) or overflow_by_numbers(
        refusal.status, refusal.said, counted, declared
    )
    return None if found is None else found.of(counted, declared, sized.budget.reserved)


def _place_of(failure: Exception) -> str:
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else ""


def _is_long(sending: Sending) -> bool:
    """Long enough to be refused for its length, by a server whose window is smaller than was said."""
    return sending.form.sized.counted.count.at_most > _LONG


def _read(body: bytes, encoding: bytes | None) -> ChatRequest:
    if encoding is None:
        return messages.read(body, compressed=False)
    try:
        return messages.read_decompressed(body, decoder_for(encoding).feed(body))
    except NotDecodable:
        return messages.read(body, compressed=True)
