"""What the user wants of folding, for one request: its own word, then its model's, then the settings'."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.fold.history import History
from proxy.fold.lengths import Lengths
from proxy.fold.plan import FoldPolicy
from proxy.fold.wording import Place
from proxy.request import Wishes
from proxy.settings.sections import Compression
from proxy.settings.values import retained_tokens
from proxy.windows.facts import KnownModel, Origin

RETAINED = 1_000

# Providers whose models take a system message anywhere. Any other server's template may take only one, and
# only at the beginning.
_TAKE_SYSTEM_MESSAGES = (
    "api.openai.com",
    ".openai.azure.com",
    ".services.ai.azure.com",
    "openrouter.ai",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.groq.com",
    "api.deepseek.com",
    "api.x.ai",
)


@dataclass(frozen=True, slots=True)
class Policies:
    settings: Compression
    host: str  # the upstream's

    def strategy(self, known: KnownModel, wishes: Wishes) -> str:
        if not self.settings.enabled:
            return "off"
        return wishes.strategy or known.facts.strategy or self.settings.strategy

    def fold(
        self, known: KnownModel, wishes: Wishes, room: int, lengths: Lengths, *, may_start: bool
    ) -> FoldPolicy:
        retain = retained_tokens(self._retained(known, wishes), room)
        return FoldPolicy(retain, self.settings.min_tokens, may_start=may_start, lengths=lengths)

    def role(self, history: History) -> Place:
        """In which role a summary is told to the model."""
        if self.settings.summary_role != "auto":
            return self.settings.summary_role
        if not self.host.endswith(_TAKE_SYSTEM_MESSAGES):
            return "user"
        instructing = {turn.role for turn in history.turns if turn.instructs}
        return "developer" if instructing == {"developer"} else "system"

    def _retained(self, known: KnownModel, wishes: Wishes) -> int | str:
        if wishes.retain is not None:
            return wishes.retain
        of_model, of_all = known.facts.retain_tokens, self.settings.retain_tokens
        if of_model is not None and (known.origins.get("retain_tokens") is Origin.SETTING or of_all is None):
            return of_model
        return RETAINED if of_all is None else of_all
