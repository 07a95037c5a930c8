"""Which model writes the summaries of a conversation, and how long these may become."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.fold.lengths import Lengths
from proxy.request import Request
from proxy.settings.sections import Summarizer
from proxy.sizing import Sizing
from proxy.summarizer import preferred_model
from proxy.windows.facts import Origin


@dataclass(frozen=True, slots=True)
class Writer:
    preferred: str | None  # the model to ask first; None is the conversation's own
    lengths: Lengths


class Writers:
    def __init__(self, sizing: Sizing, settings: Summarizer, most_tokens: int | None) -> None:
        self._sizing = sizing
        self._settings = settings
        self._most_tokens = most_tokens

    def of(self, request: Request) -> Writer:
        own, known = request.sized.model, request.sized.window.known
        by_user = known.origins.get("summary_model") is Origin.SETTING
        preferred = preferred_model(self._settings, known.facts.summary_model, by_user=by_user)
        writes = self._sizing.window_of(request.tenant, preferred or own).window
        if writes.assumed:
            writes = self._sizing.window_of(request.tenant, own).window
        given = {"longest_answer": writes.max_output, "wished": self._most_tokens}
        said = {name: tokens for name, tokens in given.items() if tokens is not None}
        return Writer(preferred, Lengths(writes.tokens, room=request.sized.budget.room, **said))
