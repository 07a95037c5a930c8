"""Where a history may be cut: cut k folds the first k spoken turns, and the tail begins with spoken turn k.

Each rule says by itself which cuts it allows; a cut is made only where all of them do. They take any history
as it comes, with results that nobody asked for, calls without a result and ids used again.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.fold.history import History

RESULTS = frozenset({"tool", "function"})

Rule = Callable[[History], set[int]]


def leaving_something_on_either_side(history: History) -> set[int]:
    return set(range(1, history.length))


def not_between_a_call_and_its_results(history: History) -> set[int]:
    """Of a batch of parallel calls neither, nor of a legacy function call, whose name is its id."""
    allowed = set()
    last_results = _last_results(history)
    reach = 0  # the last result of any call so far
    for cut in range(1, history.length):
        reach = max(reach, last_results.get(cut - 1, 0))
        if reach < cut:
            allowed.add(cut)
    return allowed


def _last_results(history: History) -> dict[int, int]:
    """The number of the last result, by the number of the turn that called."""
    last: dict[int, int] = {}
    callers: dict[str, int] = {}
    for number, position in enumerate(history.spoken):
        turn = history.turns[position]
        # Some servers count their ids from nought in every answer: the newest call of an id is the one meant.
        callers.update(dict.fromkeys(turn.calls, number))
        if turn.answers is not None and turn.answers in callers:
            last[callers[turn.answers]] = number
    return last


def not_before_a_result(history: History) -> set[int]:
    """Whatever its id says: a tail never begins with an answer to something that is no longer there."""
    return {cut for cut in range(1, history.length) if history.turns[history.spoken[cut]].role not in RESULTS}


RULES: tuple[Rule, ...] = (
    leaving_something_on_either_side,
    not_between_a_call_and_its_results,
    not_before_a_result,
)


def allowed_cuts(history: History) -> list[int]:
    """From the shallowest to the deepest."""
    return sorted(set.intersection(*(rule(history) for rule in RULES)))


def begins_with_a_user_message(history: History, cut: int) -> bool:
    return history.turns[history.spoken[cut]].role == "user"
