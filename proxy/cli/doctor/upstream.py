"""Can the upstream be reached as the proxy would, does it take the key, and what time does it have?"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from proxy.cli.doctor import clocks
from proxy.cli.doctor.finding import Finding, fails, passes, warns
from proxy.errors import UpstreamError, UpstreamTimeout, UpstreamTlsFailed, UpstreamUnreachable
from proxy.headers import Headers, first
from proxy.metrics import Metrics
from proxy.settings import Settings
from proxy.tasks import Tasks
from proxy.upstream import Outgoing, Timeouts, Upstream
from proxy.upstream.pool import origin_of

KEY_VARIABLE = "OPENAI_API_KEY"
PATIENCE = 5.0

_UPSTREAM, _KEY, _CLOCK = "upstream", "key", "upstream clock"
_HEADER_SAFE = re.compile(r"[!-~]+")
_REFUSED = (401, 403)


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """The user's own, for as long as the checks run. It is shown nowhere."""

    value: str | None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Key:
        return cls(environ.get(KEY_VARIABLE) or None)

    @property
    def is_malformed(self) -> bool:
        return self.value is not None and not _HEADER_SAFE.fullmatch(self.value)

    @property
    def headers(self) -> Headers:
        if self.value is None or self.is_malformed:
            return []
        return [(b"Authorization", b"Bearer " + self.value.encode())]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    date: bytes | None
    seconds: float
    at: float  # our time, halfway between the question and its answer


Answered = Reply | UpstreamError


async def check(settings: Settings, key: Key, tasks: Tasks) -> list[Finding]:
    try:
        origin = origin_of(settings.upstream, settings.tls.ca_file, verify=settings.tls.verify)
    except OSError:
        hint = "it should be a PEM file with the certificates of the authorities to trust"
        return [fails(_UPSTREAM, "tls.ca_file cannot be read as certificates", hint)]
    timeouts = Timeouts(min(settings.timeouts.connect, PATIENCE), PATIENCE, PATIENCE)
    upstream = Upstream(settings.upstream, origin, timeouts, Metrics(), tasks)
    try:
        questions = [[], key.headers] if key.headers else [[]]
        answers = await asyncio.gather(*(_asked(upstream, credentials) for credentials in questions))
    finally:
        upstream.close()
    bare, keyed = answers[0], answers[-1]
    return [reached(settings.upstream, bare), accepted(key, bare, keyed), *told_time(bare)]


async def _asked(upstream: Upstream, credentials: Headers) -> Answered:
    """For the list of models: it costs nothing, and nearly every server has one."""
    headers = [*credentials, (b"Accept", b"application/json"), (b"User-Agent", b"tailfold")]
    began, at = time.monotonic(), time.time()
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await upstream.send(Outgoing(b"GET", b"/models", headers, None))
    except UpstreamError as failure:
        return failure
    except TimeoutError:
        return UpstreamTimeout(f"The upstream did not answer within {PATIENCE:g} s.")
    answer.close()
    took = time.monotonic() - began
    return Reply(answer.status, first(answer.headers, b"date"), took, at + took / 2)


def reached(url: str, reply: Answered) -> Finding:
    if isinstance(reply, UpstreamError):
        return fails(_UPSTREAM, reply.message.rstrip("."), _what_to_do(reply))
    found = f"{url} answers with status {reply.status} after {reply.seconds * 1000:,.0f} ms"
    if reply.status >= 500:
        return warns(_UPSTREAM, found, "it is there, and in trouble: look at its own log or status page")
    if 300 <= reply.status < 400:
        return warns(_UPSTREAM, found, "no redirect is followed: set upstream to where it leads")
    if reply.status == 404:
        found += ": it has no list of models, or its path is another one"
    return passes(_UPSTREAM, found)


def _what_to_do(failure: UpstreamError) -> str:
    if isinstance(failure, UpstreamTlsFailed):
        return "name its authority in tls.ca_file; a server without TLS is reached by http://"
    if isinstance(failure, UpstreamTimeout | UpstreamUnreachable):
        return "is the address right, and does the server run? HTTPS_PROXY is not used"
    return "is it an HTTP server? One with TLS is reached by https://"


def accepted(key: Key, bare: Answered, keyed: Answered) -> Finding:
    if key.is_malformed:
        hint = "a key is printable ASCII: look for a space, a quote or a line break in it"
        return fails(_KEY, f"{KEY_VARIABLE} cannot be sent in a header", hint)
    if key.value is None:
        return _without_key(bare)
    if isinstance(keyed, UpstreamError):
        return warns(_KEY, f"whether {KEY_VARIABLE} is accepted cannot be told", "see upstream")
    if keyed.status in _REFUSED:
        hint = "is it this provider's, and valid still? A restricted key needs the right to list models"
        return fails(_KEY, f"{KEY_VARIABLE} is refused with status {keyed.status}", hint)
    if keyed.status != 200:
        found = f"whether {KEY_VARIABLE} is accepted cannot be told by status {keyed.status}"
        return warns(_KEY, found, "try it with a request of your client's")
    if _lists(bare):
        return passes(_KEY, f"the upstream lists its models without one, so {KEY_VARIABLE} was not tested")
    return passes(_KEY, f"{KEY_VARIABLE} is accepted")


def _without_key(bare: Answered) -> Finding:
    if _lists(bare):
        return passes(_KEY, f"{KEY_VARIABLE} is not set; the upstream asks for none to list its models")
    found = f"{KEY_VARIABLE} is not set: clients bring their own"
    return warns(_KEY, found, f"to have one tried, set {KEY_VARIABLE}")


def _lists(reply: Answered) -> bool:
    return isinstance(reply, Reply) and reply.status == 200


def told_time(reply: Answered) -> list[Finding]:
    """Nothing where the upstream does not say the time."""
    if isinstance(reply, UpstreamError) or reply.date is None:
        return []
    try:
        date = parsedate_to_datetime(reply.date.decode("latin-1")).timestamp()
    except ValueError:
        return []
    # The header has whole seconds, rounded down.
    return [clocks.compared(_CLOCK, "the upstream", date + 0.5 - reply.at)]
