from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.estimate import NOTHING, Estimate
from proxy.counting.prompt import Chain, Message, Outside, Prompt, digest_of, sums
from tests.counting.peers import ALICE, BOB

estimates = st.builds(Estimate, *[st.integers(0, 1000)] * 4)
histories = st.lists(st.tuples(st.binary(max_size=3), estimates), max_size=8)


def messages(history: list[tuple[bytes, Estimate]], tenant: bytes = ALICE) -> list[Message]:
    return [Message(digest_of(raw, tenant), "user", estimate) for raw, estimate in history]


def chained(history: list[tuple[bytes, Estimate]], tenant: bytes = ALICE) -> Chain:
    chain = Chain(tenant)
    for message in messages(history, tenant):
        chain.add(message)
    return chain


@given(histories, histories)
def test_a_chain_value_names_exactly_one_history(
    one: list[tuple[bytes, Estimate]], other: list[tuple[bytes, Estimate]]
) -> None:
    same = [raw for raw, _ in one] == [raw for raw, _ in other]
    assert (chained(one).values[-1] == chained(other).values[-1]) == same


@given(histories)
def test_nobody_finds_anothers_history_by_its_name(history: list[tuple[bytes, Estimate]]) -> None:
    assert not set(chained(history, ALICE).values) & set(chained(history, BOB).values)
    assert digest_of(b"hello", ALICE) != digest_of(b"hello", BOB)


@given(histories, st.integers(0, 8))
def test_a_chain_that_is_taken_up_again_goes_on_as_if_it_had_never_stopped(
    history: list[tuple[bytes, Estimate]], at: int
) -> None:
    whole, begun = chained(history), chained(history[:at])
    resumed = Chain(ALICE, begun.values, begun.roles)
    for message in messages(history[at:]):
        resumed.add(message)
    assert (resumed.values, resumed.roles) == (whole.values, whole.roles)
    known = sums(messages(history[:at]))
    assert sums(messages(history[at:]), known) == sums(messages(history))


@given(histories, estimates)
def test_a_prompt_is_the_sum_of_its_parts(history: list[tuple[bytes, Estimate]], beside: Estimate) -> None:
    chain = chained(history)
    prompt = Prompt(chain.values, sums(messages(history)), chain.roles, Outside(b"", beside))
    assert prompt.length == len(history)
    assert [prompt.message(at) for at in range(prompt.length)] == [estimate for _, estimate in history]
    total = sum((estimate for _, estimate in history), NOTHING)
    assert prompt.estimate == total + beside
    for at in range(prompt.length + 1):
        assert prompt.since(at) == sum((estimate for _, estimate in history[at:]), NOTHING)
