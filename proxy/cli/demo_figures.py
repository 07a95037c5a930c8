"""What the answers of `tailfold demo` tell of sizes, folds and cost: per request, per turn and in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai.types import CompletionUsage

# These make a fold; `reuse` sends one again.
_FOLDING = frozenset({"fold", "extract", "truncate"})


@dataclass(frozen=True, slots=True)
class Step:
    """One request."""

    received: int  # tokens of the history as the client sent it
    sent: int  # tokens of what went upstream
    limit: int
    actions: tuple[str, ...]
    folded_messages: int
    fold: str | None  # the name of the fold that was sent
    billed: int = 0
    cached: int = 0
    refused: bool = False

    @classmethod
    def told(
        cls, headers: Mapping[str, str], usage: CompletionUsage | None, *, refused: bool = False
    ) -> Step:
        """By the head of its answer and its bill. Where a header is missing, nothing was done."""
        sent = int(headers.get("x-tailfold-tokens", 0))
        actions = headers.get("x-tailfold-action", "pass").split(",")
        return cls(
            received=int(headers.get("x-tailfold-original-tokens", sent)),
            sent=sent,
            limit=int(headers.get("x-tailfold-limit", 0)),
            actions=tuple(action.strip() for action in actions),
            folded_messages=int(headers.get("x-tailfold-folded-messages", 0)),
            fold=headers.get("x-tailfold-fold"),
            billed=usage.prompt_tokens if usage else 0,
            cached=_cached(usage),
            refused=refused,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user asked, with every request that it took."""

    number: int
    steps: tuple[Step, ...]

    @property
    def last(self) -> Step:
        return self.steps[-1]

    @property
    def decisive(self) -> Step:
        """The request in which most happened."""
        return next((step for step in self.steps if _FOLDING.intersection(step.actions)), self.last)

    @property
    def refused(self) -> bool:
        return any(step.refused for step in self.steps)


@dataclass(frozen=True, slots=True)
class Totals:
    window: int
    turns: int
    requests: int
    refused: int
    folds: int
    received_tokens: int
    sent_tokens: int  # what the summaries have cost included
    summary_calls: int
    summary_tokens: int
    saved_share: float
    refused_without: int  # turns whose history is larger than the window
    cached_share: float

    @classmethod
    def of(cls, turns: Sequence[Turn], window: int, summaries: Sequence[int]) -> Totals:
        """`summaries` are the tokens that each call of the summary model was sent."""
        steps = [step for turn in turns for step in turn.steps]
        received = sum(step.received for step in steps)
        sent = sum(step.sent for step in steps) + sum(summaries)
        return cls(
            window=window,
            turns=len(turns),
            requests=len(steps),
            refused=sum(turn.refused for turn in turns),
            folds=_folds(steps),
            received_tokens=received,
            sent_tokens=sent,
            summary_calls=len(summaries),
            summary_tokens=sum(summaries),
            saved_share=_share(received - sent, received),
            refused_without=sum(any(step.received > window for step in turn.steps) for turn in turns),
            cached_share=_share(sum(step.cached for step in steps), sum(step.billed for step in steps)),
        )


def _folds(steps: Sequence[Step]) -> int:
    """Every fold once, however many requests it was sent in."""
    named = {step.fold for step in steps if step.fold}
    nameless = sum(bool(_FOLDING.intersection(step.actions)) for step in steps if not step.fold)
    return len(named) + nameless


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _cached(usage: CompletionUsage | None) -> int:
    details = usage.prompt_tokens_details if usage else None
    return details.cached_tokens or 0 if details else 0
