"""What every store promises, whichever it is."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from folder_store import FolderStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.ports import NOBODY, Space, Store
from proxy.settings.redis_address import address_in
from proxy.store.guarded import GuardedStore
from proxy.store.keyring import Keyring
from proxy.store.memory import MemoryStore
from proxy.store.redis import RedisStore
from proxy.store.sealed import SealedStore
from proxy.store.sqlite import SqliteStore
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE, Clock, never_opens
from tests.store.reaching import as_the_docs_say
from tests.store.servers import Servers

ALICE, BOB = b"alice" * 6, b"bob" * 10
KEYS = Keyring({"k1": b"1" * 32})
KINDS = ["memory", "sqlite", "sealed sqlite", "folder", "guarded sqlite", "guarded and broken"]
SHARED = ["valkey", "sentinel", "cluster", "sealed valkey", "guarded valkey", "limited valkey"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(kind: str, folder: Path, clock: Clock, tasks: Tasks) -> Store:
    async def opened() -> Store:
        return await SqliteStore.open(folder / "state.db", clock=clock)

    fallback = MemoryStore(clock=clock)
    if kind == "guarded sqlite":
        return GuardedStore(opened, tasks, url="sqlite:///state.db", fallback=fallback, time_limit=PATIENCE)
    return GuardedStore(never_opens, tasks, url="sqlite:///state.db", fallback=fallback)


@pytest.fixture(params=KINDS + SHARED)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, servers: Servers
) -> AsyncIterator[Store]:
    tasks = Tasks()
    made_store: Store
    if request.param in SHARED:
        made_store = await shared(request.param, servers, clock, tasks)
    elif request.param == "memory":
        made_store = MemoryStore(clock=clock)
    elif request.param == "sqlite":
        made_store = await SqliteStore.open(tmp_path / "state.db", clock=clock)
    elif request.param == "folder":
        made_store = FolderStore(tmp_path / "state", clock=clock)
    elif request.param == "sealed sqlite":
        made_store = SealedStore(await SqliteStore.open(tmp_path / "state.db", clock=clock), KEYS)
    else:
        made_store = made(request.param, tmp_path, clock, tasks)
    yield made_store
    await made_store.close()
    await tasks.close(timeout=PATIENCE)


async def shared(kind: str, servers: Servers, clock: Clock, tasks: Tasks) -> Store:
    url = servers.empty("valkey" if "valkey" in kind else kind)
    if kind.startswith("limited"):
        url = as_the_docs_say(url, [servers.started("valkey")])
    address = address_in(url)

    async def opened() -> RedisStore:
        return await RedisStore.open(address, tasks, timeout=PATIENCE, clock=clock)

    if kind.startswith("guarded"):
        fallback = MemoryStore(clock=clock)
        return GuardedStore(opened, tasks, url="redis://", fallback=fallback, time_limit=PATIENCE)
    return SealedStore(await opened(), KEYS) if kind.startswith("sealed") else await opened()


async def test_what_was_put_is_found_and_nothing_else(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"a": b"1", b"b": b"2"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"a", b"b", b"c"]) == {b"a": b"1", b"b": b"2"}


async def test_a_tenant_never_finds_what_another_has_stored(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"alice's"}, ttl=FOREVER)
    await store.put_new(ALICE, Space.SERVER, b"s", b"alice's", ttl=None)
    for other in (BOB, NOBODY):
        assert await store.get(other, Space.COUNTS, [b"k"]) == {}
        assert await store.get(other, Space.SERVER, [b"s"]) == {}
    assert await store.put_new(BOB, Space.SERVER, b"s", b"bob's", ttl=None) == b"bob's"
    assert await store.get(ALICE, Space.SERVER, [b"s"]) == {b"s": b"alice's"}


async def test_keys_of_one_space_never_meet_keys_of_another(store: Store) -> None:
    for space in Space:
        await store.put(ALICE, space, {b"k": space.encode()}, ttl=FOREVER)
    for space in Space:
        assert await store.get(ALICE, space, [b"k"]) == {b"k": space.encode()}


async def test_a_value_that_is_there_is_replaced(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"old", b"other": b"stays"}, ttl=FOREVER)
    await store.put(ALICE, Space.COUNTS, {b"k": b"new"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"k", b"other"]) == {b"k": b"new", b"other": b"stays"}


async def test_a_value_is_gone_when_its_time_is_over(store: Store, clock: Clock) -> None:
    await store.put(ALICE, Space.COUNTS, {b"short": b"1"}, ttl=10)
    await store.put(ALICE, Space.COUNTS, {b"long": b"2"}, ttl=20)
    clock.now += 9.5
    assert set(await store.get(ALICE, Space.COUNTS, [b"short", b"long"])) == {b"short", b"long"}
    clock.now += 0.5
    assert set(await store.get(ALICE, Space.COUNTS, [b"short", b"long"])) == {b"long"}


async def test_replacing_a_value_renews_its_time(store: Store, clock: Clock) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"1"}, ttl=10)
    clock.now += 9
    await store.put(ALICE, Space.COUNTS, {b"k": b"2"}, ttl=10)
    clock.now += 9
    assert await store.get(ALICE, Space.COUNTS, [b"k"]) == {b"k": b"2"}


async def test_the_first_to_settle_decides_for_good(store: Store, clock: Clock) -> None:
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None) == b"first"
    clock.now += 100 * FOREVER
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=None) == b"first"
    assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"first"}


async def test_what_is_settled_is_not_replaced_by_a_put(store: Store) -> None:
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"settled", ttl=None)
    await store.put(NOBODY, Space.SERVER, {b"secret": b"put", b"other": b"put"}, ttl=1)
    assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"settled"}
    assert await store.get(NOBODY, Space.SERVER, [b"other"]) == {b"other": b"put"}


async def test_settling_takes_the_value_that_is_there_but_not_an_expired_one(
    store: Store, clock: Clock
) -> None:
    await store.put(NOBODY, Space.SERVER, {b"live": b"put", b"dead": b"put"}, ttl=10)
    assert await store.put_new(NOBODY, Space.SERVER, b"live", b"settled", ttl=None) == b"put"
    clock.now += 10
    assert await store.put_new(NOBODY, Space.SERVER, b"dead", b"settled", ttl=None) == b"settled"
    assert await store.get(NOBODY, Space.SERVER, [b"live", b"dead"]) == {b"live": b"put", b"dead": b"settled"}


@pytest.mark.parametrize("ttl", [FOREVER, float("inf"), None])
async def test_the_first_value_wins_and_everybody_is_told_which(store: Store, ttl: float | None) -> None:
    answers = [
        await store.put_new(ALICE, Space.FOLDS, b"k", value, ttl=ttl) for value in (b"first", b"", b"third")
    ]
    assert answers == [b"first"] * 3
    assert await store.get(ALICE, Space.FOLDS, [b"k"]) == {b"k": b"first"}
    assert await store.put_new(BOB, Space.FOLDS, b"k", b"bob's", ttl=ttl) == b"bob's"
    assert await store.put_new(ALICE, Space.LANES, b"k", b"a lane", ttl=ttl) == b"a lane"


async def test_an_empty_value_wins_like_any_other(store: Store) -> None:
    assert await store.put_new(ALICE, Space.FOLDS, b"k", b"", ttl=FOREVER) == b""
    assert await store.put_new(ALICE, Space.FOLDS, b"k", b"second", ttl=FOREVER) == b""


async def test_of_many_at_once_one_wins(store: Store) -> None:
    values = [str(number).encode() for number in range(50)]
    answers = await asyncio.gather(
        *(store.put_new(ALICE, Space.FOLDS, b"k", value, ttl=FOREVER) for value in values)
    )
    assert len(set(answers)) == 1
    assert answers[0] in values


async def test_a_winner_whose_time_is_over_is_no_winner(store: Store, clock: Clock) -> None:
    await store.put_new(ALICE, Space.FOLDS, b"k", b"first", ttl=10)
    clock.now += 10
    assert await store.get(ALICE, Space.FOLDS, [b"k"]) == {}
    assert await store.put_new(ALICE, Space.FOLDS, b"k", b"second", ttl=10) == b"second"
    clock.now += 9.5
    assert await store.get(ALICE, Space.FOLDS, [b"k"]) == {b"k": b"second"}


async def test_a_winner_is_kept_as_long_as_the_one_who_asked_for_the_longest_wants(
    store: Store, clock: Clock
) -> None:
    for ttl in (10, 20, 5):
        await store.put_new(ALICE, Space.FOLDS, b"k", str(ttl).encode(), ttl=ttl)
    clock.now += 19.5
    assert await store.get(ALICE, Space.FOLDS, [b"k"]) == {b"k": b"10"}
    clock.now += 0.5
    assert await store.get(ALICE, Space.FOLDS, [b"k"]) == {}


async def test_what_is_kept_for_good_stays_so_though_others_want_less(store: Store, clock: Clock) -> None:
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None)
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=10) == b"first"
    clock.now += 100 * FOREVER
    assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"first"}


ABLE_TO_DELETE = pytest.mark.parametrize(
    "store", [kind for kind in KINDS if "broken" not in kind], indirect=True
)


@ABLE_TO_DELETE
async def test_what_was_deleted_is_gone_and_nothing_else(store: Store) -> None:
    values = {number.to_bytes(2, "big"): b"" for number in range(1000)}
    for tenant in (ALICE, BOB):
        for space in (Space.MESSAGES, Space.FOLDS):
            await store.put(tenant, space, values, ttl=FOREVER)
    some = list(values)[:600]
    await store.delete(ALICE, Space.MESSAGES, [*some, b"absent"])
    assert (await store.get(ALICE, Space.MESSAGES, list(values))).keys() == values.keys() - set(some)
    assert await store.get(ALICE, Space.FOLDS, list(values)) == values
    assert await store.get(BOB, Space.MESSAGES, list(values)) == values
    await store.delete(ALICE, Space.MESSAGES, [])


@ABLE_TO_DELETE
@pytest.mark.parametrize("ttl", [FOREVER, None])
async def test_a_winner_that_was_deleted_leaves_room_for_another(store: Store, ttl: float | None) -> None:
    await store.put_new(ALICE, Space.FOLDS, b"k", b"first", ttl=ttl)
    await store.delete(ALICE, Space.FOLDS, [b"k"])
    assert await store.get(ALICE, Space.FOLDS, [b"k"]) == {}
    assert await store.put_new(ALICE, Space.FOLDS, b"k", b"second", ttl=ttl) == b"second"


async def test_a_claim_has_one_holder_who_may_renew_it(store: Store, clock: Clock) -> None:
    assert await store.claim(ALICE, b"work", b"one", ttl=10)
    assert not await store.claim(ALICE, b"work", b"two", ttl=10)
    clock.now += 9
    assert await store.claim(ALICE, b"work", b"one", ttl=10)
    clock.now += 9
    assert not await store.claim(ALICE, b"work", b"two", ttl=10)
    assert await store.claim(ALICE, b"other work", b"two", ttl=10)
    assert await store.claim(BOB, b"work", b"two", ttl=10)


async def test_a_claim_whose_time_is_over_goes_to_the_next(store: Store, clock: Clock) -> None:
    await store.claim(ALICE, b"work", b"one", ttl=10)
    clock.now += 10
    assert await store.claim(ALICE, b"work", b"two", ttl=10)
    assert not await store.claim(ALICE, b"work", b"one", ttl=10)


async def test_a_refused_claim_does_not_prolong_the_one_that_stands(store: Store, clock: Clock) -> None:
    await store.claim(ALICE, b"work", b"one", ttl=10)
    clock.now += 5
    assert not await store.claim(ALICE, b"work", b"two", ttl=100)
    clock.now += 5
    assert await store.claim(ALICE, b"work", b"two", ttl=10)


async def test_a_claim_is_given_back_by_its_holder_only(store: Store) -> None:
    await store.claim(ALICE, b"work", b"one", ttl=10)
    await store.release(ALICE, b"work", b"two")
    await store.release(BOB, b"work", b"one")
    assert not await store.claim(ALICE, b"work", b"two", ttl=10)
    await store.release(ALICE, b"work", b"one")
    assert await store.claim(ALICE, b"work", b"two", ttl=10)
    await store.release(ALICE, b"work", b"one")  # late, and no longer its own
    assert not await store.claim(ALICE, b"work", b"one", ttl=10)


async def test_of_many_who_claim_at_once_one_is_let_through(store: Store) -> None:
    claims = (store.claim(ALICE, b"work", str(number).encode(), ttl=10) for number in range(50))
    assert (await asyncio.gather(*claims)).count(True) == 1


async def test_nothing_in_gives_nothing_out(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, []) == {}
    await store.put(ALICE, Space.COUNTS, {b"": b""}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b""]) == {b"": b""}


async def test_keys_and_values_are_bytes_of_any_kind(store: Store) -> None:
    values = {bytes([byte]): bytes([byte, 0, 255 - byte]) for byte in range(256)}
    values |= {b"\0": b"\0\0", b"a\0b": b"\xff\xfe", b"a": b"'; --"}
    await store.put(ALICE, Space.COUNTS, values, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, list(values)) == values


async def test_a_large_value_comes_back_whole(store: Store) -> None:
    value = bytes(range(256)) * 4096 * 8
    await store.put(ALICE, Space.MESSAGES, {b"k": value}, ttl=FOREVER)
    assert await store.get(ALICE, Space.MESSAGES, [b"k"]) == {b"k": value}
    assert await store.put_new(ALICE, Space.FOLDS, b"k", value, ttl=FOREVER) == value
    assert await store.put_new(ALICE, Space.FOLDS, b"k", b"", ttl=FOREVER) == value


@pytest.mark.parametrize("count", [1, 3, 511, 512, 513, 5000])
async def test_many_keys_are_asked_at_once(store: Store, count: int) -> None:
    values = {number.to_bytes(4, "big"): str(number).encode() for number in range(count)}
    await store.put(ALICE, Space.COUNTS, values, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [*values, b"absent"]) == values


async def test_a_key_asked_twice_is_found_once(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"k", b"k", b"k"]) == {b"k": b"1"}


async def test_concurrent_callers_do_not_disturb_each_other(store: Store) -> None:
    async def one(number: int) -> dict[bytes, bytes]:
        key = str(number).encode()
        await store.put(ALICE, Space.COUNTS, {key: key}, ttl=FOREVER)
        return await store.get(ALICE, Space.COUNTS, [key])

    answers = await asyncio.gather(*(one(number) for number in range(50)))
    assert answers == [{str(number).encode(): str(number).encode()} for number in range(50)]


async def test_closing_twice_is_harmless(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    await store.close()
    await store.close()


# Whatever is done in whatever order: a store is a dictionary with an hourglass.

Step = tuple[str, bytes, bytes, bytes, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put new", "settle", "delete", "claim", "release", "wait"]),
        st.sampled_from([ALICE, BOB]),
        st.sampled_from([b"a", b"b"]),
        st.binary(max_size=2),
        st.integers(1, 5),
    ),
    max_size=25,
)


class Hourglass:
    """A store in the words of its contract, to which the real ones are held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[bytes, bytes, Space], tuple[bytes, float]] = {}

    def live(self, tenant: bytes, space: Space) -> dict[bytes, tuple[bytes, float]]:
        return {
            k: kept
            for (t, k, s), kept in self._kept.items()
            if (t, s) == (tenant, space) and self._lasts(kept)
        }

    def put(self, tenant: bytes, key: bytes, value: bytes, ttl: float) -> None:
        if self.live(tenant, Space.COUNTS).get(key, (b"", 0.0))[1] != float("inf"):
            self._kept[tenant, key, Space.COUNTS] = value, self._clock.now + ttl

    def put_new(self, tenant: bytes, key: bytes, value: bytes, ttl: float) -> bytes:
        winner, until = self.live(tenant, Space.COUNTS).get(key, (value, 0.0))
        self._kept[tenant, key, Space.COUNTS] = winner, max(until, self._clock.now + ttl)
        return winner

    def delete(self, tenant: bytes, key: bytes) -> None:
        self._kept.pop((tenant, key, Space.COUNTS), None)

    def claim(self, tenant: bytes, key: bytes, holder: bytes, ttl: float) -> bool:
        free = self.live(tenant, Space.CLAIMS).get(key, (holder, 0.0))[0] == holder
        if free:
            self._kept[tenant, key, Space.CLAIMS] = holder, self._clock.now + ttl
        return free

    def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        if self.live(tenant, Space.CLAIMS).get(key, (b"", 0.0))[0] == holder:
            self._kept.pop((tenant, key, Space.CLAIMS), None)

    def _lasts(self, kept: tuple[bytes, float]) -> bool:
        return kept[1] > self._clock.now


async def follow(store: Store, clock: Clock, steps: list[Step]) -> None:
    model = Hourglass(clock)
    for step in steps:
        await take(step, store, clock, model)
        for owner in (ALICE, BOB):
            for space in (Space.COUNTS, Space.CLAIMS):
                expected = {key: value for key, (value, _) in model.live(owner, space).items()}
                assert await store.get(owner, space, [b"a", b"b"]) == expected


async def take(step: Step, store: Store, clock: Clock, model: Hourglass) -> None:
    act, tenant, key, value, number = step
    match act:
        case "wait":
            clock.now += number
        case "put":
            await store.put(tenant, Space.COUNTS, {key: value}, ttl=number)
            model.put(tenant, key, value, number)
        case "put new":
            winner = await store.put_new(tenant, Space.COUNTS, key, value, ttl=number)
            assert winner == model.put_new(tenant, key, value, number)
        case "settle":
            winner = await store.put_new(tenant, Space.COUNTS, key, value, ttl=None)
            assert winner == model.put_new(tenant, key, value, float("inf"))
        case "delete":
            await store.delete(tenant, Space.COUNTS, [key])
            model.delete(tenant, key)
        case "claim":
            claimed = await store.claim(tenant, key, value, ttl=number)
            assert claimed == model.claim(tenant, key, value, number)
        case "release":
            await store.release(tenant, key, value)
            model.release(tenant, key, value)


@given(steps=STEPS)
@settings(max_examples=100, deadline=None)
def test_the_memory_store_is_a_dictionary_with_an_hourglass(steps: list[Step]) -> None:
    clock = Clock()
    asyncio.run(follow(MemoryStore(clock=clock), clock, steps))


@given(steps=STEPS)
@settings(max_examples=100, deadline=None)
def test_a_sealed_store_is_a_dictionary_with_an_hourglass(steps: list[Step]) -> None:
    clock = Clock()
    asyncio.run(follow(SealedStore(MemoryStore(clock=clock), KEYS), clock, steps))


@given(steps=STEPS)
@settings(max_examples=40, deadline=None)
def test_the_example_of_a_custom_store_is_a_dictionary_with_an_hourglass(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        asyncio.run(follow(FolderStore(Path(folder), clock=clock), clock, steps))


@given(steps=STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_shared_store_is_a_dictionary_with_an_hourglass(servers: Servers, steps: list[Step]) -> None:
    async def with_a_server(url: str) -> None:
        clock, tasks = Clock(), Tasks()
        store = await RedisStore.open(address_in(url), tasks, timeout=PATIENCE, clock=clock)
        await follow(store, clock, steps)
        await store.close()
        await tasks.close(timeout=PATIENCE)

    asyncio.run(with_a_server(servers.empty("valkey")))


@given(steps=STEPS)
@settings(max_examples=40, deadline=None)
def test_the_sqlite_store_is_a_dictionary_with_an_hourglass(steps: list[Step]) -> None:
    async def with_a_file(folder: str) -> None:
        clock = Clock()
        store = await SqliteStore.open(Path(folder) / "state.db", clock=clock)
        try:
            await follow(store, clock, steps)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(with_a_file(folder))
