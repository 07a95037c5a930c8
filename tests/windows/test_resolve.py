from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.budget import Policy, Window, budget
from proxy.store.memory import MemoryStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.learned import LearnedWindows
from proxy.windows.overflow import Overflow
from proxy.windows.resolve import DEFAULT_WINDOW, Resolved, Windows
from proxy.windows.said import Said
from tests.store.doubles import PATIENCE, Clock

ALICE = b"alice"


class Models:
    def __init__(self, known: KnownModel) -> None:
        self._known = known

    def look_up(self, name: str) -> KnownModel:
        return self._known


class Upstream:
    def __init__(self, said: Said | None) -> None:
        self._said = said

    def said_of(self, model: str) -> Said | None:
        return self._said

    def recalling(self, model: str) -> list[Awaitable[None]]:
        """It was never away."""
        return []


def known(origin: Origin | None = None, facts: ModelFacts | None = None) -> KnownModel:
    if origin is None or facts is None:
        return KnownModel()
    names = ("window", "excludes_answer", "max_output")
    return KnownModel(facts, {name: origin for name in names if getattr(facts, name) is not None})


class Forgetful(LateWriter):
    """Nothing is written, so no event loop is needed: what is resolved is resolved from memory."""

    def later(self, *_: object, ttl: float) -> None:
        pass


class Windowed:
    """A model of which something is known, said or learned."""

    def __init__(self, model: KnownModel | None = None, said: Said | None = None) -> None:
        writer = Forgetful(MemoryStore(), Tasks())
        self.learned = LearnedWindows("http://upstream.example/v1", writer, Clock())
        self._windows = Windows(Models(model or KnownModel()), Upstream(said), self.learned)

    @property
    def resolved(self) -> Resolved:
        return self._windows.of(ALICE, "m")

    @property
    def window(self) -> Window:
        return self.resolved.window


LAYERS = (Origin.SETTING, Origin.MAP, Origin.LITELLM, None)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("said", [None, Said(2222)])
def test_the_user_s_word_comes_first_then_the_upstream_s_then_the_maps(
    layer: Origin | None, said: Said | None
) -> None:
    model = known(layer, ModelFacts(window=1111))
    resolved = Windowed(model, said).resolved
    if layer is Origin.SETTING:
        assert (resolved.window.tokens, resolved.origin) == (1111, Origin.SETTING)
    elif said is not None:
        assert (resolved.window.tokens, resolved.origin) == (2222, Origin.UPSTREAM)
    elif layer is not None:
        assert (resolved.window.tokens, resolved.origin) == (1111, layer)
    else:
        assert (resolved.window.tokens, resolved.origin) == (DEFAULT_WINDOW, Origin.DEFAULT)
    assert resolved.window.assumed == (resolved.origin is Origin.DEFAULT)
    assert not resolved.learned
    assert resolved.known is model


@pytest.mark.parametrize(
    ("layer", "mapped", "said", "meant"),
    [
        (Origin.SETTING, 100, 200, 100),
        (Origin.SETTING, None, 200, 200),
        (Origin.MAP, 100, 200, 200),
        (Origin.MAP, 100, None, 100),
        (Origin.LITELLM, 100, 200, 200),
    ],
)
def test_the_longest_answer_follows_the_same_order(
    layer: Origin, mapped: int | None, said: int | None, meant: int
) -> None:
    facts = ModelFacts(window=5000, max_output=mapped)
    assert Windowed(known(layer, facts), Said(6000, said)).window.max_output == meant


def test_the_user_s_word_on_the_answer_counts_where_the_window_is_the_upstream_s() -> None:
    facts = ModelFacts(window=5000, max_output=100)
    model = KnownModel(facts, {"window": Origin.MAP, "max_output": Origin.SETTING})
    assert Windowed(model, Said(6000, 200)).window == Window(6000, 100)


@pytest.mark.parametrize(
    ("mapped", "said", "meant"),
    [
        (272_000, Said(272_000, excludes_answer=None), True),
        (272_000, Said(270_000, excludes_answer=None), False),
        (272_000, Said(272_000, excludes_answer=False), False),
        (None, Said(272_000, excludes_answer=None), False),
    ],
)
def test_whether_a_window_is_the_prompt_s_alone_the_maps_may_know(
    mapped: int | None, said: Said, meant: bool
) -> None:
    facts = ModelFacts(window=mapped, excludes_answer=True if mapped else None)
    assert Windowed(known(Origin.LITELLM, facts), said).window.excludes_answer is meant


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("said", [None, Said(100_000)])
def test_a_refusal_lowers_every_word(layer: Origin | None, said: Said | None) -> None:
    model = Windowed(known(layer, ModelFacts(window=100_000)), said)
    model.learned.refused(ALICE, "m", Overflow(limit=3000), counted=3500, declared=None)
    assert model.window == Window(3000)
    assert model.resolved.learned


def test_a_refusal_raises_no_word_but_nobody_s() -> None:
    somebodys = Windowed(known(Origin.MAP, ModelFacts(window=8000)))
    nobodys = Windowed()
    for model in (somebodys, nobodys):
        model.learned.refused(ALICE, "m", Overflow(limit=128_000), counted=130_000, declared=None)
    assert somebodys.window == Window(8000)
    assert not somebodys.resolved.learned
    # A deployment that nobody knows must not be crushed to the default, now that it has said what it holds.
    assert nobodys.window == Window(128_000)
    assert nobodys.resolved.origin is Origin.DEFAULT
    assert nobodys.resolved.learned


@pytest.mark.parametrize("layer", LAYERS)
def test_a_prompt_that_was_taken_raises_only_what_nobody_has_said(layer: Origin | None) -> None:
    model = Windowed(known(layer, ModelFacts(window=8000)))
    model.learned.accepted(ALICE, "m", 50_000)
    if layer is None:
        assert model.window == Window(50_000, assumed=True)  # it may be far larger still: no fold yet
    else:
        assert model.window == Window(8000)


def test_a_short_prompt_does_not_lower_the_default() -> None:
    model = Windowed()
    model.learned.accepted(ALICE, "m", 50)
    assert model.window == Window(DEFAULT_WINDOW, assumed=True)


def test_a_prompt_that_was_taken_raises_what_was_learned() -> None:
    model = Windowed(known(Origin.MAP, ModelFacts(window=100_000)))
    model.learned.refused(ALICE, "m", Overflow(limit=3000), counted=3500, declared=None)
    model.learned.accepted(ALICE, "m", 5000)
    assert model.window == Window(5000)


MIXED = [
    # (window, its answer, for the prompt alone?), (bound, for the prompt alone?), what holds
    (Window(200_000, 8000), (199_999, True), Window(199_999, 8000)),
    (Window(131_072), (2050, True), Window(2050, 129_022, excludes_answer=True)),
    (Window(131_072, 8000), (2050, True), Window(2050, 8000, excludes_answer=True)),
    (Window(131_072, 8000), (200_000, True), Window(131_072, 8000)),
    (Window(272_000, 128_000, True), (400_000, False), Window(272_000, 128_000, excludes_answer=True)),
    (Window(272_000, 128_000, True), (380_000, False), Window(272_000, 108_000, excludes_answer=True)),
    (Window(272_000, 128_000, True), (200_000, False), Window(200_000, 128_000)),
    (Window(272_000, 128_000, True), (250_000, True), Window(250_000, 128_000, excludes_answer=True)),
]


@pytest.mark.parametrize(("window", "bound", "holds"), MIXED)
def test_a_limit_of_the_prompt_and_one_of_both_are_put_together(
    window: Window, bound: tuple[int, bool], holds: Window
) -> None:
    facts = ModelFacts(window.tokens, window.excludes_answer, window.max_output)
    model = Windowed(known(Origin.MAP, facts))
    model.learned.refused(ALICE, "m", Overflow(bound[0], of_prompt=bound[1]), counted=500_000, declared=None)
    assert model.window == holds


tokens = st.integers(min_value=20_000, max_value=1_000_000)


@given(tokens, st.booleans(), st.none() | tokens, tokens, st.booleans(), st.none() | st.integers(0, 4000))
def test_what_fits_the_window_that_holds_fits_what_was_said_and_what_was_learned(
    window: int, excludes: bool, max_output: int | None, bound: int, of_prompt: bool, declared: int | None
) -> None:
    told = Window(window, max_output, excludes)
    model = Windowed(known(Origin.MAP, ModelFacts(window, excludes, max_output)))
    model.learned.refused(ALICE, "m", Overflow(bound, of_prompt=of_prompt), counted=2_000_000, declared=None)
    holds = budget(model.window, declared, Policy()).largest
    assert holds <= budget(told, declared, Policy()).largest
    assert holds <= budget(Window(bound, max_output, of_prompt), declared, Policy()).largest


async def test_recalling_asks_for_what_was_said_and_what_was_learned() -> None:
    writer = LateWriter(MemoryStore(), Tasks())
    LearnedWindows("http://u/v1", writer).refused(ALICE, "m", Overflow(3000), counted=9000, declared=None)
    windows = Windows(Models(KnownModel()), Upstream(None), LearnedWindows("http://u/v1", writer))
    assert windows.of(ALICE, "m").window == Window(DEFAULT_WINDOW, assumed=True)
    await asyncio.gather(*windows.recalling(ALICE, "m"))
    assert windows.of(ALICE, "m").window == Window(3000)
    await writer.drain(PATIENCE)
