"""The lines of `tailfold demo`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import click

from proxy.cli.demo_figures import Step, Totals, Turn
from proxy.cli.demo_work import TOKENS_PER_TURN

_COLUMNS = 48
# A history that goes on and on leaves the bar, or the window would be a dot in it.
_MOST_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Display:
    window: int
    turns: int
    colour: bool

    def opening(self) -> Iterator[str]:
        yield f"A conversation of {self.turns} turns with a model whose window has {self.window:,} tokens."
        sent, left_out, limit = (self._cell(kind) for kind in ("sent", "left out", "limit"))
        yield f"{sent} sent upstream   {left_out} received, not sent   {limit} the limit for a prompt"
        yield ""

    def line(self, turn: Turn) -> str:
        step = turn.last
        sizes = f"{step.received:>8,} received {step.sent:>7,} sent"
        return f"{turn.number:>4} {self._bar(step)} {sizes}  {self._happened(turn)}".rstrip()

    def _bar(self, step: Step) -> str:
        limit = self._column(step.limit)
        sent, received = self._column(step.sent), self._column(max(step.received, step.sent))
        kinds = ["sent"] * sent + ["left out"] * (received - sent)
        kinds += ["nothing"] * (_COLUMNS - len(kinds))
        if 0 < limit <= _COLUMNS:
            kinds[limit - 1] = "limit"
        return "".join(self._cell(kind, len(list(run))) for kind, run in groupby(kinds))

    def _column(self, tokens: int) -> int:
        full = max(self.window, min(self.turns * TOKENS_PER_TURN, _MOST_WINDOWS * self.window))
        return min(_COLUMNS, round(tokens / full * _COLUMNS))

    def _cell(self, kind: str, columns: int = 1) -> str:
        plain, character, colour = _CELLS[kind]
        return click.style(character * columns, fg=colour) if self.colour else plain * columns

    def _happened(self, turn: Turn) -> str:
        if turn.refused:
            return self._styled("refused", "red")
        step = turn.decisive
        told = ", ".join(step.actions)
        if step.folded_messages:
            told += f", {step.folded_messages} messages"
        if step.fold:
            told += f" [{step.fold}]"
        colour = {"pass": None, "reuse": "cyan"}.get(told.partition(",")[0], "yellow")
        return self._styled(told, colour)

    def _styled(self, text: str, colour: str | None) -> str:
        return click.style(text, fg=colour) if self.colour and colour else text

    def closing(self, totals: Totals) -> Iterator[str]:
        yield ""
        summaries = f"{totals.summary_tokens:,} of them for {_counted(totals.summary_calls, 'summary call')}"
        facts = {
            "turns": f"{totals.turns}, in {_counted(totals.requests, 'request')}; {totals.refused} refused",
            "folds": f"{totals.folds}",
            "received": f"{totals.received_tokens:,} tokens",
            "sent": f"{totals.sent_tokens:,} tokens, {summaries}",
            "saved": f"{totals.saved_share:.0%}",
            "cached": f"{totals.cached_share:.0%} of the conversation's prompts, by the provider",
            "without": f"{_counted(totals.refused_without, 'turn')} would have been refused, larger than the "
            f"window of {totals.window:,} tokens",
        }
        for name, fact in facts.items():
            yield f"{name:<10}{fact}"


# On a terminal, and without one.
_CELLS = {
    "sent": ("#", "█", "green"),
    "left out": ("-", "░", "bright_black"),
    "limit": ("|", "│", "red"),
    "nothing": (".", "·", "bright_black"),
}


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
