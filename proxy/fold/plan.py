"""What is done about a request: sent as it is, sent with a fold that is known, or folded anew. Pure.

A fold changes the prefix and so empties the provider's cache: between two folds what is sent only grows at
its end, a fold is prepared before it is needed, and it goes deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.budget import Budget, Size
from proxy.fold.history import History
from proxy.fold.lengths import UNBOUNDED, Lengths
from proxy.fold.record import Fold
from proxy.fold.tail import Allowance, Cut, Weighed, deeper_cut, usable_folds


@dataclass(frozen=True, slots=True)
class FoldPolicy:
    retain_tokens: int = 1_000  # for the tail
    min_tokens: int = 2_000  # a smaller request is left alone …
    least_progress: float = 0.1  # … and so is one of which a fold would free less than this of the room
    may_start: bool = True  # false: only what must be folded is
    lengths: Lengths = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Known:
    """A fold that belongs to this history."""

    fold: Fold
    size: Size  # of the request as it would be sent with it


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a plan is made on."""

    history: History
    size: Size  # of the request as it came
    fixed: int  # tokens of it that are not messages: tools, a response format
    budget: Budget
    known: Sequence[Known] = ()
    last: str | None = None  # the id of the fold that this lane's previous request was sent with
    policy: FoldPolicy = FoldPolicy()


@dataclass(frozen=True, slots=True)
class Keep:
    """Send it as it came."""

    prepare: Cut | None = None  # to be made in the background, for a later request


@dataclass(frozen=True, slots=True)
class Reuse:
    """Send it with this fold."""

    fold: Fold
    prepare: Cut | None = None


@dataclass(frozen=True, slots=True)
class Make:
    """It is past the trigger and nothing is ready."""

    cut: Cut
    instead: Fold | None  # what it is sent with while this is being made; None: as it came
    must: bool  # not even that fits the window: the request has to wait


Plan = Keep | Reuse | Make


@dataclass(frozen=True, slots=True)
class _Choice:
    """A way to send the request with what is there already."""

    fold: Fold | None
    size: Size


def plan(now: Situation) -> Plan:
    usable = _usable(now)
    choices = _choices(now, usable)
    for choice in choices:
        if not now.budget.past_hard(choice.size):
            return _sending(choice, _preparation(now, usable, choice))
    for choice in choices:
        if now.budget.fits(choice.size):
            cut = _worthwhile_cut(now, choice)
            return Make(cut, choice.fold, must=False) if cut else _sending(choice)
    smallest = min(choices, key=lambda choice: choice.size.tokens)
    needed = _deeper_cut(now)
    return Make(needed.cut, smallest.fold, must=True) if needed else _sending(smallest)


def _usable(now: Situation) -> list[Known]:
    """From the shallowest to the deepest."""
    if not now.known:
        return []
    sizes = {known.fold.id: known.size for known in now.known}
    folds = usable_folds(now.history, (known.fold for known in now.known))
    return [Known(fold, sizes[fold.id]) for fold in folds]


def _choices(now: Situation, usable: list[Known]) -> list[_Choice]:
    """The one that goes on as the last request did comes first, then the others by how much they keep."""
    folded = [_Choice(known.fold, known.size) for known in usable]
    in_use = [choice for choice in folded if choice.fold and choice.fold.id == now.last]
    return [*(in_use or [_Choice(None, now.size)]), *folded]


def _sending(choice: _Choice, prepare: Cut | None = None) -> Keep | Reuse:
    return Keep(prepare) if choice.fold is None else Reuse(choice.fold, prepare)


def _preparation(now: Situation, usable: list[Known], choice: _Choice) -> Cut | None:
    if not now.budget.past_soft(choice.size):
        return None
    if any(not now.budget.past_soft(known.size) for known in usable):
        return None  # it has been prepared, and waits until it is needed
    return _worthwhile_cut(now, choice)


def _worthwhile_cut(now: Situation, choice: _Choice) -> Cut | None:
    """For a fold that may be; one that must be asks for no floor and no progress."""
    floor = min(now.policy.min_tokens, now.budget.room // 2)
    if not now.policy.may_start or choice.size.tokens < floor:
        return None
    deeper = _deeper_cut(now)
    return deeper.cut if deeper and deeper.freed >= _least_progress(now) else None


def _deeper_cut(now: Situation) -> Weighed | None:
    tail = min(now.policy.retain_tokens, now.budget.room // 2)
    # Less than the least progress below the trigger, and the next fold would be due before it is worth it.
    messages = now.budget.hard - now.fixed - _least_progress(now)
    allowance = Allowance(tail, messages, now.policy.lengths)
    return deeper_cut(now.history, [known.fold for known in now.known], allowance)


def _least_progress(now: Situation) -> int:
    return int(now.policy.least_progress * now.budget.room)
