"""Every chat request is counted before it is sent: what headers, metrics and later requests tell of it."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs

from proxy.counting.tokenizer import Encodings, Tokenizer
from proxy.simulator import Simulator, SimulatorConfig
from proxy.sizing import THRESHOLD, Shares
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from tests.counting.peers import asked
from tests.desk import desk, said
from tests.raw import raw_upstream
from tests.running import Running, running
from tests.simulator.talk import chat, user

STORY = "A long walk through the old town, past the harbour and back. " * 40


class Talk:
    """A client that shows heads as well as bodies."""

    def __init__(self, session: aiohttp.ClientSession, proxy: Running, key: str = "sk-test") -> None:
        self._session = session
        self._proxy = proxy
        self._headers = {"Authorization": f"Bearer {key}"}

    async def __call__(self, body: Any, **headers: str) -> aiohttp.ClientResponse:
        """The answer, read to its end."""
        url = f"{self._proxy.base_url}/chat/completions"
        payload = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._session.post(url, headers={**self._headers, **headers}, **payload) as answer:
            await answer.read()
            return answer


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
def talk(session: aiohttp.ClientSession, tailfold: Running) -> Talk:
    return Talk(session, tailfold)


def counted(answer: aiohttp.ClientResponse) -> int:
    return int(answer.headers["X-Tailfold-Tokens"])


def limit(answer: aiohttp.ClientResponse) -> int:
    return int(answer.headers["X-Tailfold-Limit"])


async def billed(answer: aiohttp.ClientResponse) -> int:
    return int((await answer.json())["usage"]["prompt_tokens"])


async def test_the_first_request_of_a_process_is_counted_as_the_upstream_bills_it(talk: Talk) -> None:
    answer = await talk(chat(user(STORY)))
    assert counted(answer) == await billed(answer)
    assert "X-Tailfold-Warning" not in answer.headers


@pytest.mark.parametrize("mode", ["compress", "observe", "off"])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_tells_size_and_room(talk: Talk, stream: bool, mode: str) -> None:
    body = {**chat(user("hello")), "max_tokens": 1000, "stream": stream}
    answer = await talk(body, **{"X-Tailfold-Mode": mode})
    assert counted(answer) == 8
    assert limit(answer) == 128_000 - 1000 - 6400


async def test_a_refusal_tells_them_too(talk: Talk) -> None:
    answer = await talk({**chat(user("hello")), "max_tokens": -1})
    assert answer.status == 400
    assert counted(answer) == 8


async def test_what_an_upstream_says_in_our_name_is_left_out(talk: Talk, upstream: Simulator) -> None:
    wish = '{"headers": [["X-Tailfold-Tokens", "1"], ["X-Conversation-Id", "another"]]}'
    answer = await talk(chat(user("hello")), **{"x-sim-respond": wish})
    assert answer.headers.getall("X-Tailfold-Tokens") == ["8"]
    assert len(answer.headers.getall("X-Conversation-Id")) == 1
    assert answer.headers["X-Conversation-Source"] == "content"


async def test_a_conversation_that_goes_on_is_counted_from_its_bill(session: aiohttp.ClientSession) -> None:
    config = SimulatorConfig(tokenizer_factor=1.3)
    async with Simulator(config) as upstream, running(upstream.base_url) as proxy:
        talk = Talk(session, proxy)
        first = await talk(chat(user(STORY)))
        assert counted(first) < 0.8 * await billed(first)
        reply = (await first.json())["choices"][0]["message"]
        second = await talk(
            chat(user(STORY), {"role": "assistant", "content": reply["content"]}, user("Go on."))
        )
        assert abs(counted(second) - await billed(second)) <= 0.02 * await billed(second)
        assert proxy.metric("tailfold_estimate_error_ratio_count", basis="anchored") == 1


async def test_an_overflow_teaches_the_window(session: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(window=8000)) as upstream, running(upstream.base_url) as proxy:
        talk = Talk(session, proxy)
        body = {**chat(user("hello")), "max_tokens": 100}
        assert limit(await talk(body)) > 100_000
        too_long = await talk({**chat(user(STORY * 16)), "max_tokens": 100})
        assert too_long.status == 400
        assert limit(await talk(body)) == 8000 - 100 - 400
        assert proxy.metric("tailfold_overflows_total") == 1


TOO_LONG = (
    b'"message":"This model\'s maximum context length is 8192 tokens.","code":"context_length_exceeded"'
)


@pytest.mark.parametrize(
    ("status", "media_type", "body"),
    [
        (b"400 Bad Request", b"application/json", b'{"error":{%b}}' % TOO_LONG),
        (b"400 Bad Request", b"text/plain", b'{"error":{%b}}' % TOO_LONG),
        (b"200 OK", b"application/json", b'{"error":{%b}}' % TOO_LONG),
        (b"200 OK", b"text/event-stream", b': wait\n\ndata: {"error":{%b}}\n\n' % TOO_LONG),
        (b"200 OK", b"text/event-stream", b"event: error\ndata: {%b}\n\n" % TOO_LONG),
    ],
    ids=["a status", "a badly labelled one", "a 200", "an event", "an event by its name"],
)
async def test_an_overflow_is_understood_in_whatever_form_it_comes(
    session: aiohttp.ClientSession, status: bytes, media_type: bytes, body: bytes
) -> None:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, media_type, len(body))
    async with raw_upstream() as upstream, running(upstream.base_url) as proxy:
        upstream.answer = [head + body]
        talk = Talk(session, proxy)
        asking = {**chat(user("hello")), "max_tokens": 100, "stream": True}
        assert limit(await talk(asking)) > 100_000
        assert limit(await talk(asking)) == 8192 - 100 - 409
        assert proxy.metric("tailfold_overflows_total") == 2


async def test_an_answer_that_only_speaks_of_an_overflow_teaches_nothing(
    session: aiohttp.ClientSession, upstream: Simulator
) -> None:
    async with running(upstream.base_url) as proxy:
        talk = Talk(session, proxy)
        asking = {**chat(user(TOO_LONG.decode())), "max_tokens": 100}
        for stream in (False, True, False):
            assert limit(await talk({**asking, "stream": stream})) > 100_000
        assert proxy.metric("tailfold_overflows_total") == 0


async def test_the_users_word_on_a_window_wins(session: aiohttp.ClientSession, upstream: Simulator) -> None:
    models = {"gpt-4o": {"window": 20_000}}
    async with running(upstream.base_url, models=models) as proxy:
        answer = await Talk(session, proxy)({**chat(user("hello")), "max_tokens": 1000})
        assert limit(answer) == 18_000
        assert proxy.metric("tailfold_context_utilization_ratio_count", origin="setting") == 1


async def test_what_the_upstream_says_of_itself_is_asked_in_the_background(
    session: aiohttp.ClientSession,
) -> None:
    config = SimulatorConfig(window=16_000, tells_window=True, model_names=("my-model",))
    async with Simulator(config) as upstream, running(upstream.base_url, windows={"ask": True}) as proxy:
        talk = Talk(session, proxy)
        body = {**chat(user("hello")), "model": "my-model", "max_tokens": 200}
        assert limit(await talk(body)) == 4096 - 200 - 204
        await proxy.app.rooms.asked()
        assert limit(await talk(body)) == 16_000 - 200 - 800


async def test_metrics_compare_what_was_counted_with_what_was_billed(talk: Talk, tailfold: Running) -> None:
    answer = await talk(chat(user(STORY)))
    for metric in ("tailfold_estimated_input_tokens_total", "tailfold_reported_input_tokens_total"):
        assert tailfold.metric(metric, model="gpt-4o") == await billed(answer)
    assert tailfold.metric("tailfold_counting_seconds_count") == 1


async def test_the_log_line_tells_size_and_room(talk: Talk) -> None:
    with capture_logs() as lines:
        await talk({**chat(user("hello")), "max_tokens": 1000})
    [line] = [line for line in lines if line["event"] == "request"]
    assert (line["counted_tokens"], line["room"]) == (8, 120_600)


# When counting fails.


class Failing:
    def encode_ordinary(self, text: str) -> list[int]:
        raise RuntimeError(f"cannot count {text}")


class FailingEncodings(Encodings):
    def ready(self, name: str) -> Tokenizer:
        return Tokenizer(Failing())

    def load(self, name: str) -> Tokenizer:
        return self.ready(name)


@pytest.fixture(params=["raises", "is not there"])
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Encodings:
    return FailingEncodings() if request.param == "raises" else Encodings(tmp_path)


async def test_a_tokenizer_that_fails_costs_a_warning_and_no_request(
    session: aiohttp.ClientSession, upstream: Simulator, broken: Encodings
) -> None:
    async with running(upstream.base_url, encodings=broken) as proxy:
        with capture_logs() as lines:
            talk = Talk(session, proxy)
            answers = [await talk(chat(user(f"{number}. {STORY}"))) for number in range(3)]
    for answer in answers:
        assert answer.status == 200
        assert answer.headers["X-Tailfold-Warning"] == "rough_count"
        assert await billed(answer) < counted(answer) < 3 * await billed(answer)
    warnings = [(line["event"], line.get("encoding")) for line in lines if "counting" in line["event"]]
    assert warnings
    assert len(warnings) == len(set(warnings))
    assert STORY[:20] not in repr(lines)


@pytest.mark.parametrize("body", [b"{", b"[1,2]", b"\xff\xfe", b""])
async def test_what_cannot_be_read_is_counted_by_its_bytes_and_forwarded(talk: Talk, body: bytes) -> None:
    with capture_logs() as lines:
        answers = [await talk(body, **{"Content-Type": "application/json"}) for _ in range(2)]
    for answer in answers:
        assert answer.status == 400
        assert counted(answer) == -(-len(body) // 3)
    assert len([line for line in lines if "by its length" in line["event"]]) == 1


async def test_a_compressed_request_is_counted_by_what_it_says_and_forwarded_as_it_came(
    talk: Talk, upstream: Simulator
) -> None:
    plain = orjson.dumps({**chat(user(STORY)), "max_tokens": 1000, "stream": True})
    packed = gzip.compress(plain)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = await talk(packed, **headers)
    assert upstream.requests[-1].data == packed
    assert counted(answer) == counted(await talk(plain, **{"Content-Type": "application/json"}))
    assert limit(answer) == 120_600


@pytest.mark.parametrize("encoding", ["gzip", "br", "made-up"])
async def test_a_body_that_is_not_what_its_encoding_says_is_the_upstreams_business(
    talk: Talk, encoding: str
) -> None:
    answer = await talk(b"not compressed", **{"Content-Encoding": encoding})
    assert answer.status >= 400
    assert answer.headers["X-Tailfold-Warning"] == "rough_count"


# While counting takes its time.


class Slow:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def encode_ordinary(self, text: str) -> list[int]:
        if len(text) > 20_000:
            self.begun.set()
            assert self.may_end.wait(30)
        return [0] * (len(text) // 4)


class SlowEncodings(Encodings):
    def __init__(self) -> None:
        super().__init__()
        self.slow = Slow()

    def ready(self, name: str) -> Tokenizer:
        return Tokenizer(self.slow)

    def load(self, name: str) -> Tokenizer:
        return self.ready(name)


async def test_another_request_is_answered_while_a_large_one_is_counted(
    session: aiohttp.ClientSession, upstream: Simulator
) -> None:
    encodings = SlowEncodings()
    async with running(upstream.base_url, encodings=encodings) as proxy:
        talk = Talk(session, proxy)
        large = asyncio.ensure_future(talk(chat(user("x " * 20_000))))
        await asyncio.to_thread(encodings.slow.begun.wait, 30)
        assert (await talk(chat(user("hello")))).status == 200
        assert not large.done()
        encodings.slow.may_end.set()
        assert (await large).status == 200


# Callers are strangers to each other.


async def test_a_bill_is_never_used_for_another_caller(session: aiohttp.ClientSession) -> None:
    config = SimulatorConfig(tokenizer_factor=1.3)
    async with Simulator(config) as upstream, running(upstream.base_url) as proxy:
        mine, other = Talk(session, proxy), Talk(session, proxy, key="sk-other")
        await mine(chat(user(STORY)))
        await mine(chat(user(STORY)))
        assert proxy.metric("tailfold_estimate_error_ratio_count", basis="anchored") == 1
        await other(chat(user(STORY)))
        assert proxy.metric("tailfold_estimate_error_ratio_count", basis="anchored") == 1


# Whose word on the threshold counts.


@pytest.mark.parametrize(
    ("general", "said", "origin", "threshold"),
    [
        (None, None, Origin.DEFAULT, THRESHOLD),
        (None, 0.98, Origin.MAP, 0.98),
        (0.5, 0.98, Origin.MAP, 0.5),
        (0.5, 0.9, Origin.SETTING, 0.9),
        (0.5, None, Origin.DEFAULT, 0.5),
    ],
)
def test_the_word_on_this_model_wins_then_the_users_general_one_then_the_map(
    general: float | None, said: float | None, origin: Origin, threshold: float
) -> None:
    known = KnownModel(ModelFacts(threshold=said), {"threshold": origin} if said is not None else {})
    assert Shares(general, 0.8, 0.05).policy_for(known).threshold == threshold


# What a request wishes, and what a text takes.


async def test_a_threshold_of_the_requests_own_wins() -> None:
    async with desk(facts=ModelFacts(window=10_000, threshold=0.5)) as one:
        chat = asked(said("hello"), max_tokens=1_000)
        usual = (await one.sized(chat)).budget
        wished = (await one.sized(chat, threshold=0.25)).budget
        assert (usual.room, usual.hard) == (8_500, 4_250)
        assert (wished.room, wished.hard, wished.soft) == (8_500, 2_125, 1_700)
        assert wished.largest == usual.largest


async def test_a_text_is_counted_for_the_same_window() -> None:
    async with desk() as one:
        sized = await one.sized(asked(said("hello")))
        assert one.sizing.text_counter(sized)("x" * 100) == 100
        assert one.sizing.window_of(b"alice", "any").window.tokens == 8_000
