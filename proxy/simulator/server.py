"""A provider that speaks OpenAI, on a real socket."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.http import HttpVersion11
from aiohttp.web_protocol import RequestHandler

from proxy.simulator.answers import Answer, ApiError, Framing, requested_answer
from proxy.simulator.config import SimulatorConfig, Summaries
from proxy.simulator.encodings import CODINGS, acceptable_coding, encoded
from proxy.simulator.faults import Fault, fault_named, faulty_script, refusal
from proxy.simulator.reception import received_body
from proxy.simulator.recorder import ReceivedRequest, Recorder
from proxy.simulator.routes import Routes
from proxy.simulator.summaries import SummaryModel, is_summary_call
from proxy.simulator.tokens import counter_for
from proxy.simulator.validate import unknown_parameter
from proxy.simulator.wire import Script, Sent, Step, perform, script

Order = Fault | Answer | Script

CHAT_PATH = "/v1/chat/completions"
LARGEST_HEADER = 2**20
MOST_HEADERS = 10_000
PATIENCE_AT_THE_END = 0.1


class Connections(web.Server):
    """aiohttp's server, with a number for every connection."""

    def __init__(self, handler: Callable[[web.BaseRequest], Any]) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,  # otherwise nobody notices that the client has left
            auto_decompress=False,
            access_log=None,
            max_line_size=LARGEST_HEADER,
            max_field_size=LARGEST_HEADER,
            max_headers=MOST_HEADERS,
        )
        self._open: dict[RequestHandler, tuple[int, asyncio.Transport]] = {}
        self.opened = 0

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.opened += 1
        self._open[handler] = (self.opened, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)

    def number_of(self, handler: RequestHandler) -> int:
        return self._open[handler][0] if handler in self._open else 0

    @property
    def open_now(self) -> int:
        return len(self._open)

    def drop_all(self) -> None:
        for _, transport in tuple(self._open.values()):
            transport.close()


class Simulator:
    """`async with Simulator(config) as sim:` serves at `sim.base_url` until the block ends."""

    def __init__(
        self,
        config: SimulatorConfig | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.config = config or SimulatorConfig()
        self._host, self._port, self._ssl = host, port, ssl_context
        counter = counter_for(self.config)
        self._summaries = SummaryModel(self.config, counter)
        self._routes = Routes(self.config, counter, self._summaries)
        self._recorder = Recorder(record=self.config.record, keep=self.config.recorded_requests)
        self._orders: deque[Order] = deque()
        self._request_numbers = count(1)
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._connections = Connections(self._handle)
        self._runner = web.ServerRunner(self._connections, shutdown_timeout=PATIENCE_AT_THE_END)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._ssl, backlog=1024).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        return self._port

    @property
    def base_url(self) -> str:
        return f"{'https' if self._ssl else 'http'}://{self._host}:{self._port}/v1"

    # What a test tells it.

    def fail_next(self, fault: Fault | str, times: int = 1) -> None:
        self._orders.extend([Fault(fault)] * times)

    def answer_next(self, answer: Answer, times: int = 1) -> None:
        """The next request gets exactly this answer, whatever it asks."""
        self._orders.extend([answer] * times)

    def perform_next(self, steps: Iterable[Step]) -> None:
        """The next request gets these bytes, pauses and endings, well-formed or not."""
        self._orders.append(Script(tuple(steps)))

    def write_summaries(self, manner: Summaries, *, delay: float = 0.0) -> None:
        """From now on in this manner, and so many seconds after they were asked for."""
        self._summaries.manner, self._summaries.delay = manner, delay

    @contextmanager
    def holding_summaries(self) -> Iterator[None]:
        """Summaries asked for within the block are given when it ends."""
        with self._summaries.holding():
            yield

    def drop_connections(self) -> None:
        """Close every connection, idle ones included, as a provider that restarts does."""
        self._connections.drop_all()

    # What a test asks it.

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The newest requests whose body was received whole, oldest first."""
        return self._recorder.requests

    def summary_calls(self) -> list[ReceivedRequest]:
        """Those of `requests` that asked for a summary."""
        return [received for received in self.requests if is_summary_call(received)]

    def chat_calls(self) -> list[ReceivedRequest]:
        """Those of `requests` that went on with a conversation."""
        return [
            received
            for received in self.requests
            if received.route == CHAT_PATH and not is_summary_call(received)
        ]

    @property
    def arrived(self) -> int:
        """Requests whose headers were received, since the start."""
        return self._recorder.arrived

    @property
    def active(self) -> int:
        """Requests being answered now."""
        return self._recorder.active

    @property
    def cancelled(self) -> int:
        """Requests whose client left before the answer was sent."""
        return self._recorder.cancelled

    @property
    def connections_opened(self) -> int:
        return self._connections.opened

    @property
    def connections_open(self) -> int:
        return self._connections.open_now

    def forget_requests(self) -> None:
        self._recorder.forget()

    async def wait_until(self, condition: Callable[[], bool], timeout: float = 5.0) -> None:
        """Until the condition, which is asked whenever a request comes, is received or ends."""
        await self._recorder.wait_until(condition, timeout)

    async def wait_for_request(self, number: int | None = None, timeout: float = 5.0) -> None:
        """Until request `number` has arrived, counted from one; without a number, until the next one."""
        wanted = self.arrived + 1 if number is None else number
        await self.wait_until(lambda: self.arrived >= wanted, timeout)

    # One request.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            with self._recorder.handling():
                return await self._exchange(request)
        except ConnectionError:
            return Sent(keep_alive=False)

    async def _exchange(self, request: web.BaseRequest) -> Sent:
        try:
            received = await self._receive(request)
        except ApiError as error:
            return await perform(script(error.answer(), keep_alive=False), request, self._stopping)
        steps = self._steps(received, request)
        return await perform(steps, request, self._stopping)

    async def _receive(self, request: web.BaseRequest) -> ReceivedRequest:
        connection = self._connections.number_of(request.protocol)
        received = ReceivedRequest(
            request.method,
            request.raw_path,
            request.raw_headers,
            await received_body(request, self.config),
            connection,
            self.config.max_decoded,
        )
        self._recorder.record(received)
        return received

    def _steps(self, received: ReceivedRequest, request: web.BaseRequest) -> Iterable[Step]:
        order = self._order(received)
        if isinstance(order, Script):
            return order.steps
        answer = _fitting(self._answer(received, order), request)
        if isinstance(order, Fault):
            return faulty_script(answer, order, self.config)
        steps = script(answer, head_only=request.method == "HEAD", keep_alive=request.keep_alive)
        return steps if order else chain(self._summaries.before(received), steps)

    def _order(self, received: ReceivedRequest) -> Order | None:
        try:
            return _ordered_by(received) or (self._orders.popleft() if self._orders else None)
        except ApiError as misunderstood:
            return misunderstood.answer()

    def _answer(self, received: ReceivedRequest, order: Fault | Answer | None) -> Answer:
        if isinstance(order, Answer):
            return order
        try:
            self._refuse(received, order)
            answer = self._routes.answer(received)
        except ApiError as error:
            answer = error.answer()
        return self._dressed(answer, received)

    def _refuse(self, received: ReceivedRequest, fault: Fault | None) -> None:
        if error := refusal(fault, self.config):
            raise error
        if fault is Fault.REFUSE_STREAM_OPTIONS:
            match received.parsed:
                case {"stream_options": _}:
                    raise unknown_parameter("stream_options")
        self._authenticate(received)

    def _authenticate(self, received: ReceivedRequest) -> None:
        expected, given = self.config.api_key, received.credential
        if expected is None or hmac.compare_digest(expected.encode(), given.encode()):
            return
        text = "Incorrect API key provided." if given else "You didn't provide an API key."
        raise ApiError(text, status=401, code="invalid_api_key")

    def _dressed(self, answer: Answer, received: ReceivedRequest) -> Answer:
        """With the headers that every answer has, compressed where that is wished."""
        number = next(self._request_numbers)
        answer = answer.with_headers(("x-request-id", f"req_{number:032x}"), ("openai-version", "2020-10-01"))
        coding = self._coding(received)
        return encoded(answer, coding) if coding else answer

    def _coding(self, received: ReceivedRequest) -> str | None:
        if wished := received.header("x-sim-compress"):
            return wished if wished in CODINGS else None
        return acceptable_coding(received.header("accept-encoding")) if self.config.compress else None


def _fitting(answer: Answer, request: web.BaseRequest) -> Answer:
    """A client of HTTP/1.0 knows no chunks."""
    if request.version < HttpVersion11 and answer.framing is Framing.CHUNKED:
        return replace(answer, framing=Framing.CLOSE)
    return answer


def _ordered_by(received: ReceivedRequest) -> Order | None:
    """What the request itself asks for."""
    if name := received.header("x-sim-fault"):
        return fault_named(name)
    if wish := received.header("x-sim-respond"):
        return requested_answer(wish)
    # Parsing every body twice would cost more than the answer; almost none holds these bytes.
    if received.data.find(b'"fault:') >= 0 and isinstance(received.parsed, dict):
        model = str(received.parsed.get("model"))
        return fault_named(model.removeprefix("fault:")) if model.startswith("fault:") else None
    return None
