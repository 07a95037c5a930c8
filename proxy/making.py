"""From a cut to a fold: the text is written by a model, in as many steps as its window asks for, or picked
without one where no model can be asked.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.fold import artefacts, wording
from proxy.fold.artefacts import Index
from proxy.fold.extract import extract
from proxy.fold.history import History, Turn
from proxy.fold.lengths import Lengths
from proxy.fold.record import Fold, Kind, Trigger, address_of
from proxy.fold.steps import AROUND, Steps, steps
from proxy.fold.tail import Cut
from proxy.fold.transcript import Chunk, transcript
from proxy.fold.wording import Place
from proxy.headers import Headers
from proxy.summarizer import TOO_LONG, Summarizer, SummaryFailed, SummaryRefused, Wanted, Written

# Of a summary's tokens, for the index of what was touched.
_INDEX_SHARE = 4
# Of a model that refuses a step as too long, each smaller than the one before.
_MOST_WINDOWS = 4
# An answer that is no summary is asked for once more, and then taken for a failure.
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Prefix:
    """What was sent of a conversation up to a cut, as its provider has it in its cache."""

    messages: Sequence[bytes]
    beside_messages: Mapping[str, bytes]  # what else the request says, in the client's own bytes
    beside: bytes  # names its instructions and tools
    tokens: int
    window: int  # of the conversation's model


@dataclass(frozen=True, slots=True)
class Job:
    """A fold that is to be made."""

    history: History
    cut: Cut
    model: str  # the conversation's own
    preferred: str | None  # the model to ask first
    lengths: Lengths
    credentials: Headers
    role: Place
    prompt: str = "general"
    query: bytes = b""  # of the client's address: some providers want a version or a key there
    trigger: Trigger = Trigger.AUTO
    shrunk: Mapping[int, bytes] = field(default_factory=dict)  # what is sent of kept turns, by their numbers
    prefix: Prefix | None = None  # to be asked for on this, if it can be

    @property
    def prefix_value(self) -> bytes:
        """The chain's value that names what is folded."""
        return self.history.chain[self.cut.covers]

    @property
    def beside(self) -> bytes | None:
        """Names the instructions that its text comes to know of, by itself or by the one it goes on from."""
        if self.prefix is not None:
            return self.prefix.beside
        return self.cut.base.beside if self.cut.base else None

    @property
    def address(self) -> bytes:
        return address_of(self.prefix_value, self.beside)

    @property
    def told(self) -> Sequence[Turn]:
        """What the summary adds to the one that it goes on from."""
        end = self.cut.covers
        if end == self.history.length:
            # Its last group is sent itself, and no later summary goes on from such a fold.
            while end - 1 in self.cut.kept:
                end -= 1
        return [self.history.turns[self.history.spoken[number]] for number in range(self.first, end)]

    @property
    def first(self) -> int:
        """The number of the first of them."""
        return self.cut.base.covers if self.cut.base else 0

    @property
    def original_tokens(self) -> int:
        """Of all that the fold stands for, as far as it was not told before."""
        before = self.cut.base.summary_tokens if self.cut.base else 0
        return before + sum(turn.tokens for turn in self.told)

    @property
    def limit(self) -> int:
        return self.lengths.limit(self.original_tokens)

    def in_a_smaller_window(self, named: int | None) -> Job:
        """After a refusal, which may have named the window of the model that writes."""
        window = self.lengths.window
        if named is None or named >= window:
            # It has other tokens than we, or another model has stood in for it.
            told = sum(turn.tokens for turn in self.told)
            named = min(window, told + 2 * AROUND) // 2
        return replace(self, lengths=replace(self.lengths, window=named))

    def at_most(self, tokens: int) -> Job:
        """The same with a shorter text."""
        return replace(self, lengths=replace(self.lengths, wished=min(tokens, self.lengths.wished)))


class Maker:
    def __init__(
        self,
        summarizer: Summarizer,
        count: Callable[[str], int],
        *,
        clock: Callable[[], float] = time.time,
        name: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._summarizer = summarizer
        self.count = count
        self._clock = clock
        self._name = name

    async def summary(self, job: Job) -> Fold:
        """By a model. Raises SummaryFailed."""
        for _ in range(_MOST_WINDOWS - 1):
            try:
                return await self._in_steps(job)
            except SummaryFailed as failure:
                if failure.reason != TOO_LONG:
                    raise
                job = job.in_a_smaller_window(failure.window)
        return await self._in_steps(job)

    async def on_prefix(self, job: Job, prefix: Prefix) -> Fold:
        """By the conversation's own model, behind what was sent last. Raises SummaryRefused where it is to be
        asked for in the usual way instead.
        """
        wish = wording.wish(job.prompt, job.limit, merges=job.cut.base is not None)
        tokens = prefix.tokens + self.count(wish.decode())
        if tokens + job.limit > prefix.window:
            raise SummaryRefused(TOO_LONG)
        messages = b"[%b]" % b",".join([*prefix.messages, wish])
        wanted = Wanted(
            messages,
            tokens,
            job.limit,
            job.model,
            None,
            job.credentials,
            job.query,
            prefix.beside_messages,
        )
        told = await asyncio.to_thread(transcript, job.told, job.first)
        written = await self._accepted(wanted, told, job.original_tokens)
        _, index = artefacts.parted(job.cut.base.text if job.cut.base else "")
        text = wording.answer_text(written.message)
        whole = await asyncio.to_thread(self._with_index, job, text, index)
        return self._fold(job, whole, Kind.SUMMARY, written.model)

    async def _in_steps(self, job: Job) -> Fold:
        before, index = artefacts.parted(job.cut.base.text if job.cut.base else "")
        # A long history is many megabytes to read: other requests go on meanwhile.
        planned = await asyncio.to_thread(self._steps, job, before)
        text, model = planned.previous, job.model
        for chunk in planned.chunks:
            written = await self._written(job, chunk, text)
            text, model = wording.answer_text(written.message), written.model
        whole = await asyncio.to_thread(self._with_index, job, text, index)
        return self._fold(job, whole, Kind.SUMMARY, model)

    async def extract(self, job: Job) -> Fold:
        """Without a model."""
        text = await asyncio.to_thread(self._picked, job)
        return self._fold(job, text, Kind.SHRUNK if job.shrunk else Kind.EXTRACT)

    def truncation(self, job: Job, *, marked: bool = True) -> Fold:
        """Nothing but a word that something was there, or not even that."""
        if not marked:
            return self._fold(job, "", Kind.TRUNCATION)
        left_out = job.cut.covers - len(job.cut.kept)
        text = wording.truncation(left_out, job.original_tokens) if left_out else ""
        return self._fold(job, text, Kind.TRUNCATION)

    def _with_index(self, job: Job, text: str, before: Index) -> str:
        index = artefacts.index(job.told, before)
        return artefacts.with_index(text, index.text(job.limit // _INDEX_SHARE, self.count))

    def _picked(self, job: Job) -> str:
        if not job.told and job.cut.base is None:
            return ""
        text, index = artefacts.parted(job.cut.base.text if job.cut.base else "")
        return extract(job.told, job.limit, self.count, first=job.first, previous=text, artefacts=index)

    def _steps(self, job: Job, previous: str) -> Steps:
        return steps(
            job.told,
            job.first,
            previous,
            window=job.lengths.window,
            limit=job.limit,
            count=self.count,
        )

    async def _written(self, job: Job, chunk: Chunk, previous: str) -> Written:
        messages, record = wording.request(job.prompt, chunk.text, job.limit, previous), self.count(previous)
        tokens = AROUND + record + chunk.tokens
        wanted = Wanted(messages, tokens, job.limit, job.model, job.preferred, job.credentials, job.query)
        return await self._accepted(wanted, chunk.text, chunk.original_tokens + record)

    async def _accepted(self, wanted: Wanted, told: str, original_tokens: int) -> Written:
        for _ in range(_ATTEMPTS):
            written = await self._summarizer.write(wanted)
            judging = partial(
                wording.verdict,
                written.message,
                written.finish_reason,
                transcript=told,
                original_tokens=original_tokens,
                count=self.count,
            )
            rejected = await asyncio.to_thread(judging)
            if rejected is None:
                return written
        raise SummaryRefused(rejected.value if rejected else "rejected")

    def _fold(self, job: Job, text: str, kind: Kind, model: str | None = None) -> Fold:
        before_user = _is_followed_by_a_user(job)
        role = "system" if job.role == "append" else job.role
        messages = wording.record_messages(text, role, before_user=before_user) if text else ()
        plainer = wording.record_messages(text, "user", before_user=before_user) if text else ()
        return Fold(
            id=self._name(),
            home=job.history.home,
            prefix=job.prefix_value,
            covers=job.cut.covers,
            kept=job.cut.kept,
            messages=messages,
            plainer=plainer if role != "user" else (),
            appended=wording.appended_record(text) if job.role == "append" and text else b"",
            shrunk=dict(job.shrunk),
            text=text,
            kind=kind,
            trigger=job.trigger,
            created=self._clock(),
            original_tokens=job.original_tokens,
            summary_tokens=sum(self.count(message.decode()) for message in messages),
            parent=job.cut.base.id if job.cut.base else None,
            model=model,
            beside=job.beside,
        )


def _is_followed_by_a_user(job: Job) -> bool:
    number = job.cut.kept[0] if job.cut.kept else job.cut.covers
    position = job.history.position(number)
    return position < len(job.history.turns) and job.history.turns[position].role == "user"
