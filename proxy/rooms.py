"""Putting the rooms together: what is here and in `proxy.app` is all that names concrete classes."""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from proxy.counting.counter import Counter, Manner
from proxy.counting.knowledge import Knowledge
from proxy.counting.measuring import Measurer
from proxy.counting.recollection import Recollection
from proxy.counting.tokenizer import Encodings
from proxy.counting.vocabularies import DEFAULT
from proxy.identify import Tenants
from proxy.metrics import Metrics
from proxy.pipeline import ChatPipeline
from proxy.ports import NOBODY, Space
from proxy.settings import Settings
from proxy.sizing import Shares, Sizing, manner_of
from proxy.store import PAUSE, open_store
from proxy.store.slots import Slot
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.upstream import Timeouts, Upstream
from proxy.upstream.pool import Origin, tls_context
from proxy.windows.asking import Asking
from proxy.windows.learned import LearnedWindows
from proxy.windows.model_map import ModelMap, said_by_the_user
from proxy.windows.resolve import Silence, Windows

# Of the bytes of recent conversations that are kept at hand, per process.
_REMEMBERED_BYTES = 64 * 1024**2
# Counting lets go of the interpreter's lock, so one thread per core would do; a request rarely needs any.
_COUNTING_THREADS = 2
_SECRET = Slot(NOBODY, Space.SERVER, b"secret")
_WRITING_AT_THE_END = 2.0
_ASKING = Timeouts(connect=5.0, first_byte=10.0, idle=10.0)


class Rooms:
    """Everything that outlives a request, from the upstream's connections to what is remembered."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        tasks: Tasks,
        encodings: Encodings,
        *,
        store_pause: float = PAUSE,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._tasks = tasks
        timeouts = Timeouts(settings.timeouts.connect, settings.timeouts.first_byte, settings.timeouts.idle)
        origin = _origin(settings)
        self.upstream = Upstream(settings.upstream, origin, timeouts, metrics, tasks)
        self._secret = _said_or_made(settings.secret)
        self._tenants = Tenants(self._secret)
        self._store = open_store(
            settings.store_url,
            tasks,
            on_outage=metrics.store_outage,
            on_overruled=self._overruled,
            pause=store_pause,
        )
        self._writer = LateWriter(self._store, tasks)
        self._pool = ThreadPoolExecutor(_COUNTING_THREADS, thread_name_prefix="counting")
        self._encodings = encodings
        self._models = ModelMap(said_by_the_user(settings.models))
        self._models_read = asyncio.Event()
        self._learned = LearnedWindows(settings.upstream, self._writer)
        self._asked_at = Upstream(_root(settings.upstream), origin, _ASKING, metrics, tasks)
        self._asking = Asking(self._asked_at, settings.upstream, self._writer, tasks)

    async def pipeline(self) -> ChatPipeline:
        await self._settle_secret()
        return ChatPipeline(
            self.upstream,
            self._tenants,
            self._sizing(),
            self._asking if self._settings.windows.ask else None,
            self._metrics,
            ask_for_usage=self._settings.usage.ask,
        )

    def begin_reading(self) -> None:
        """What takes a while to read is read in the background, so that it is there for the first request."""
        self._tasks.start(self._read(), name="read vocabulary and model map")

    async def asked(self) -> None:
        """Wait until the upstream has answered what it is being asked about itself."""
        await self._asking.finished()

    async def close(self) -> None:
        await self._writer.drain(_WRITING_AT_THE_END)
        await self._tasks.close(timeout=0)
        await self._store.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.upstream.close()
        self._asked_at.close()

    async def _settle_secret(self) -> None:
        """Where the user gives none, the store's: ours only if that has none yet, or cannot be asked."""
        if self._settings.secret is None:
            self._tenants.use(await self._store.put_new(*_SECRET, self._secret, ttl=None))

    def _overruled(self, slot: Slot, theirs: bytes) -> None:
        """The store could not be asked at the start, and has a secret after all. Callers get the names back
        under which it knows them; what was learned under the others is lost, and is learned again.
        """
        if slot == _SECRET:
            self._tenants.use(theirs)

    def _sizing(self) -> Sizing:
        recollection = Recollection(_REMEMBERED_BYTES)
        measurer = Measurer(self._encodings, recollection, self._writer, self._pool)
        knowledge = Knowledge(self._settings.upstream, self._writer)
        counter = Counter(measurer, knowledge, self._writer, self._manner)
        compression = self._settings.compression
        shares = Shares(compression.threshold, compression.soft_ratio, compression.margin)
        said = self._asking if self._settings.windows.ask else Silence()
        return Sizing(counter, Windows(self._models, said, self._learned), shares, self._models_read)

    def _manner(self, model: str) -> Manner:
        return manner_of(self._models.look_up(model).facts)

    async def _read(self) -> None:
        run = asyncio.get_running_loop().run_in_executor
        try:
            await run(self._pool, self._models.load)
        finally:
            self._models_read.set()
        await run(self._pool, self._encodings.load, DEFAULT)


def _said_or_made(secret: SecretStr | None) -> bytes:
    return secrets.token_bytes(32) if secret is None else secret.get_secret_value().encode()


def _root(upstream: str) -> str:
    """The server behind an upstream: what it says of itself lies beside /v1 as often as below it."""
    parts = urlsplit(upstream)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def _origin(settings: Settings) -> Origin:
    parts = urlsplit(settings.upstream)
    tls = tls_context(settings.tls.ca_file, verify=settings.tls.verify) if parts.scheme == "https" else None
    return Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls)
