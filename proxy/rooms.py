"""Putting the rooms together: what is here and in `proxy.app` is all that names concrete classes."""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from pydantic import SecretStr

from proxy.announcing import Announced
from proxy.books import Books
from proxy.callers import Callers
from proxy.counting.counter import Counter, Manner
from proxy.counting.knowledge import Knowledge
from proxy.counting.measuring import Measurer
from proxy.counting.recollection import Recollection
from proxy.counting.tokenizer import Encodings
from proxy.counting.vocabularies import DEFAULT, KNOWN
from proxy.events import Events
from proxy.folding import Folding
from proxy.folds import Folds
from proxy.going_on import Forms, Plain
from proxy.hearsay import Hearsay
from proxy.histories import Histories
from proxy.identify import Tenants
from proxy.lanes import Lanes
from proxy.metrics import Metrics
from proxy.naming import Naming
from proxy.observing import Observing
from proxy.pipeline import ChatPipeline
from proxy.pipeline import Rooms as Line
from proxy.policies import Policies
from proxy.ports import NOBODY, Space
from proxy.recalling import Recalling
from proxy.records import Records
from proxy.settings import Settings
from proxy.sizing import Shares, Sizing, manner_of
from proxy.spending import Spending
from proxy.store import PAUSE, TIME_LIMIT, open_store
from proxy.store.guarded import GuardedStore
from proxy.store.memory import MemoryStore
from proxy.store.slots import Slot
from proxy.store.writing import KEPT, LateWriter
from proxy.summarizer import summarizer_for
from proxy.tasks import Tasks
from proxy.tidings import Tidings
from proxy.upstream import Timeouts, Upstream, root_of
from proxy.upstream.pool import origin_of
from proxy.windows.asking import Asking
from proxy.windows.kept import Kept
from proxy.windows.learned import LearnedWindows
from proxy.windows.model_map import ModelMap, said_by_the_user
from proxy.windows.resolve import Silence, Windows
from proxy.workshop import Workshop
from proxy.writers import Writers

# Of the bytes of recent conversations that are kept at hand, per process.
_REMEMBERED_BYTES = 64 * 1024**2
# Counting lets go of the interpreter's lock, so one thread per core would do; a request rarely needs any.
_COUNTING_THREADS = 2
_SECRET = Slot(NOBODY, Space.SERVER, b"secret")
_OPENING = 2.0  # seconds that the start waits for the store
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
        store_pause: float | None = None,
        store_time_limit: float | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._tasks = tasks
        timeouts = Timeouts(settings.timeouts.connect, settings.timeouts.first_byte, settings.timeouts.idle)
        origin = origin_of(settings.upstream, settings.tls.ca_file, verify=settings.tls.verify)
        self.upstream = Upstream(settings.upstream, origin, timeouts, metrics, tasks)
        self._secret = _said_or_made(settings.secret)
        self._tenants = Tenants(self._secret)
        self._store = open_store(
            settings.store_url,
            tasks,
            keys=settings.encryption.by_id,
            on_outage=self._store_is_away,
            on_back=self._store_is_back,
            on_asked=metrics.store_asked,
            on_foreign=metrics.store_foreign,
            on_overruled=self._overruled,
            pause=_first(store_pause, settings.redis.pause if settings.is_shared else PAUSE),
            time_limit=_first(store_time_limit, settings.redis.timeout if settings.is_shared else TIME_LIMIT),
        )
        self.store_trouble: str | None = None  # why it cannot be used now
        self._callers = Callers()
        self._writer = LateWriter(self._store, tasks, self._callers)
        self.events = Events()
        self._tidings = Tidings(metrics, self.events, tells=settings.notify.events)
        self._folds = Folds(self._store, self._writer, ttl=self._ttl)
        self.records = Records(
            self._writer, ttl=self._ttl, keep_messages=settings.history.store_messages, clock=time.time
        )
        self._naming = Naming(self.records, tasks)
        self._workshop = self._opened_workshop(settings)
        self._pool = ThreadPoolExecutor(_COUNTING_THREADS, thread_name_prefix="counting")
        self._encodings = encodings
        self._models = ModelMap(said_by_the_user(settings.models))
        self._models_read = asyncio.Event()
        self._learned = LearnedWindows(settings.upstream, self._writer)
        self._asked_at = Upstream(root_of(settings.upstream), origin, _ASKING, metrics, tasks)
        self._asking = Asking(self._asked_at, settings.upstream, self._writer, tasks)

    async def pipeline(self) -> ChatPipeline:
        if isinstance(self._store, GuardedStore):
            await self._store.begin(_OPENING)
        await self._settle_secret()
        return ChatPipeline(
            self._line_of_a_request(),
            self._metrics,
            ask_for_usage=self._settings.usage.ask,
            tells_folds=self._settings.notify.headers,
        )

    def _line_of_a_request(self) -> Line:
        settings, sizing = self._settings, self._sizing()
        lanes = Lanes(self._writer, ttl=self._ttl, clock=time.time)
        policies = Policies(settings.compression, urlsplit(settings.upstream).hostname or "")
        writers = Writers(sizing, settings.summarizer, settings.compression.summary_max_tokens)
        hearsay = Hearsay(self._writer, ttl=self._ttl)
        forms = Forms(Kept(Plain, settings.upstream, b"plain", self._writer))
        folding = Folding(
            self._folds,
            hearsay,
            sizing,
            policies,
            writers,
            self._workshop,
            settings.summarizer,
            forms,
            self._metrics,
        )
        memory = MemoryStore()
        imagined = Folds(memory, LateWriter(memory, self._tasks), ttl=self._ttl)
        return Line(
            self.upstream,
            self._tenants,
            self._callers,
            sizing,
            Histories(self._pool),
            Recalling(sizing, lanes, hearsay, self._folds, forms, on_prefix=settings.summarizer.on_prefix),
            lanes,
            folding,
            Observing(imagined, sizing, policies, writers, self._tidings),
            Books(lanes, hearsay, self._folds, self.records, self._tidings, self._metrics, self._naming),
            Announced(self._tidings),
            self._asking if settings.windows.ask else None,
        )

    async def folded(self) -> None:
        """Wait for the folds that are being made."""
        await self._workshop.idle()

    def _ttl(self) -> float:
        ttl = self._settings.history.ttl
        return float("inf") if ttl is None else ttl

    def _counts_kept(self) -> float:
        return min(KEPT, self._ttl())

    def _opened_workshop(self, settings: Settings) -> Workshop:
        summarizer = summarizer_for(settings.summarizer, self.upstream, settings.upstream)
        spending = Spending(self._writer, settings.summarizer.daily_tokens, clock=time.time)
        return Workshop(
            self._folds,
            self._store,
            self._tasks,
            summarizer,
            spending,
            self._tidings,
            self._callers,
            patience=settings.summarizer.timeout,
            clock=time.time,
        )

    def begin_reading(self) -> None:
        """What takes a while to read is read in the background, so that it is there for the first request."""
        self._tasks.start(self._read(), name="read vocabulary and model map")

    async def asked(self) -> None:
        """Wait until the upstream has answered what it is being asked about itself."""
        await self._asking.finished()

    async def written(self) -> None:
        """Wait until what was learned is in the store, as far as there is time."""
        await self._naming.settle()
        await self._writer.drain(_WRITING_AT_THE_END)

    async def close(self) -> None:
        await self.written()
        await self._tasks.close(timeout=0)
        await self._store.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.upstream.close()
        self._asked_at.close()

    async def _settle_secret(self) -> None:
        """Where the user gives none, the store's: ours only if that has none yet, or cannot be asked."""
        if self._settings.secret is None:
            self._tenants.use(await self._store.put_new(*_SECRET, self._secret, ttl=None))

    def _store_is_away(self, reason: str) -> None:
        self.store_trouble = reason if reason != "corrupt" else None
        self._metrics.store_outage(reason)

    def _store_is_back(self) -> None:
        self.store_trouble = None
        self._metrics.store_back()
        self._folds.store_is_back()
        self.records.store_is_back()

    def _overruled(self, slot: Slot, theirs: bytes) -> None:
        """The store could not be asked at the start, and has a secret after all. Callers get the names back
        under which it knows them; what was learned under the others is lost, and is learned again.
        """
        if slot == _SECRET:
            self._tenants.use(theirs)

    def _sizing(self) -> Sizing:
        recollection = Recollection(_REMEMBERED_BYTES)
        measurer = Measurer(self._encodings, recollection, self._writer, self._pool)
        knowledge = Knowledge(self._settings.upstream, self._writer, kept=self._counts_kept)
        counter = Counter(measurer, knowledge, self._writer, self._manner, kept=self._counts_kept)
        compression = self._settings.compression
        shares = Shares(compression.threshold, compression.soft_ratio, compression.margin)
        said = self._asking if self._settings.windows.ask else Silence()
        return Sizing(counter, Windows(self._models, said, self._learned), shares, self._models_read)

    def _manner(self, model: str) -> Manner:
        return manner_of(self._models.look_up(model).facts)

    async def _read(self) -> None:
        """Both at once, since the first request needs both."""
        await asyncio.gather(self._read_models(), self._read_vocabularies())

    async def _read_models(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._models.load)
        finally:
            self._models_read.set()

    async def _read_vocabularies(self) -> None:
        """One after the other, first the one that nearly all models count with."""
        for name in (DEFAULT, *KNOWN):
            await asyncio.get_running_loop().run_in_executor(self._pool, self._encodings.load, name)


def _first(said: float | None, usual: float) -> float:
    return usual if said is None else said


def _said_or_made(secret: SecretStr | None) -> bytes:
    """Made as text, so that it can be given to other replicas."""
    return (secrets.token_urlsafe(32) if secret is None else secret.get_secret_value()).encode()
