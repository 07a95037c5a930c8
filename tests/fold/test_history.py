from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fold.history import DIGEST_SIZE, INSTRUCTING, Turn, history
from proxy.identify import TENANT_SIZE

TENANT = b"a caller's name."

# Few identities, so that histories often agree for a while, or say the same in another order.
identities = st.sampled_from([bytes([each]) * DIGEST_SIZE for each in range(3)])
speakers = st.sampled_from(["user", "assistant", "tool", "function", ""])
spoken = st.builds(Turn, st.binary(), speakers, identities, st.integers(0, 9))
instructions = st.builds(
    Turn, st.binary(), st.sampled_from(sorted(INSTRUCTING)), identities, st.integers(0, 9)
)
conversations = st.lists(spoken, max_size=8)
callers = st.binary(min_size=TENANT_SIZE, max_size=TENANT_SIZE)
mixed = st.lists(spoken | instructions, max_size=12)


def said(turns: list[Turn]) -> list[bytes]:
    return [turn.identity for turn in turns if not turn.instructs]


@given(mixed, mixed)
def test_a_value_of_the_chain_names_exactly_one_beginning(one: list[Turn], other: list[Turn]) -> None:
    first, second = history(one, TENANT), history(other, TENANT)
    for k, value in enumerate(first.chain):
        for n, another in enumerate(second.chain):
            assert (value == another) == (said(one)[:k] == said(other)[:n])


@given(conversations, st.data())
def test_instructions_anywhere_do_not_change_the_chain(turns: list[Turn], data: st.DataObject) -> None:
    instructed = list(turns)
    for instruction in data.draw(st.lists(instructions, max_size=4)):
        instructed.insert(data.draw(st.integers(0, len(instructed))), instruction)
    assert history(instructed, TENANT).chain == history(turns, TENANT).chain


@given(mixed, spoken)
def test_what_is_said_later_leaves_the_chain_before_it_alone(turns: list[Turn], new: Turn) -> None:
    before, after = history(turns, TENANT), history([*turns, new], TENANT)
    assert after.chain[:-1] == before.chain
    assert after.chain[-1] not in before.chain


@given(mixed)
def test_spoken_turns_are_numbered_by_themselves(turns: list[Turn]) -> None:
    told = history(turns, TENANT)
    places = [told.position(number) for number in range(told.length)]
    assert [turns[place] for place in places] == [turn for turn in turns if not turn.instructs]
    assert told.position(told.length) == len(turns)
    assert len(told.chain) == told.length + 1


@given(mixed, callers, callers)
def test_another_caller_shares_no_value_not_even_that_of_no_turns(
    turns: list[Turn], one: bytes, other: bytes
) -> None:
    shared = set(history(turns, one).chain) & set(history(turns, other).chain)
    assert bool(shared) == (one == other)


def test_where_nothing_is_spoken_the_chain_names_the_empty_beginning_alone() -> None:
    rules = Turn(b"{}", "system", bytes(DIGEST_SIZE), 1)
    told = history([rules, rules], TENANT)
    assert (told.length, told.position(0)) == (0, 2)
    assert told.chain == history([], TENANT).chain
    assert len(told.chain) == 1
