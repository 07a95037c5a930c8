from __future__ import annotations

from proxy.cli.demo_work import SYSTEM, TOKENS_PER_TURN, TOOLS, Work
from proxy.simulator.tokens import TiktokenCounter, message_tokens


def test_the_same_turn_is_about_the_same_work_every_time() -> None:
    assert Work(7).question == Work(7).question
    assert Work(7).result("c") == Work(7).result("c")


def test_no_two_turns_say_the_same() -> None:
    turns = [Work(number) for number in range(200)]
    assert len({str(turn.question) for turn in turns}) == 200
    assert len({str(turn.result("c")) for turn in turns}) == 200


def test_every_tool_is_declared_and_named_as_the_simulated_model_expects() -> None:
    declared = {tool["function"]["name"] for tool in TOOLS}
    turns = [Work(number) for number in range(9)]
    assert {turn.tool for turn in turns} == declared
    assert all(f"call:{turn.tool}" in turn.question["content"] for turn in turns)
    assert "call:" not in SYSTEM["content"]


def test_question_and_result_are_most_of_what_a_turn_adds() -> None:
    counter = TiktokenCounter()
    for number in range(30):
        work = Work(number)
        size = sum(message_tokens(message, counter) for message in (work.question, work.result("c")))
        assert TOKENS_PER_TURN / 2 < size < TOKENS_PER_TURN
