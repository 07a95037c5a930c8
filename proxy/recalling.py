"""What others may know of a request, and this process does not yet: asked of the store once, all together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from proxy.conversation import Conversation
from proxy.counting.measuring import Split
from proxy.folds import Folds
from proxy.going_on import Forms
from proxy.hearsay import Hearsay
from proxy.histories import Told
from proxy.lanes import Lane, Lanes, others_answered
from proxy.messages import ChatRequest
from proxy.sizing import Sizing

# The store has its own limit, which is shorter. This one is for one that has none.
LONGEST = 6.0


class Recalling:
    """Rooms say what they would have to ask for, and remember the answers. Questions that are asked at once
    take one round trip to a store that is somewhere else.
    """

    def __init__(
        self,
        sizing: Sizing,
        lanes: Lanes,
        hearsay: Hearsay,
        folds: Folds,
        forms: Forms,
        *,
        on_prefix: bool,
    ) -> None:
        self._sizing = sizing
        self._lanes = lanes
        self._hearsay = hearsay
        self._folds = folds
        self._forms = forms
        self._on_prefix = on_prefix

    async def recall(
        self,
        tenant: bytes,
        conversation: Conversation,
        chat: ChatRequest,
        split: Split | None,
        told: Told | None,
        mode: str,
    ) -> bool:
        """Whether its newest folds have been looked for."""
        lane = self._lanes.remembered(told) if told is not None else None
        looks_for_folds = mode == "compress" and told is not None and _may_have_folds(told, lane)
        questions = self._sizing.recalling(tenant, chat, split)
        if told is not None and mode != "off":
            questions += self._of_the_line(tenant, conversation, told)
        if told is not None and looks_for_folds:
            questions += self._forms.recalling(chat.model or "")
            questions += _asked(self._folds.recalling(tenant, told.chain, self._beside(split)))
        if questions:
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(*questions)
        return looks_for_folds

    def _of_the_line(self, tenant: bytes, conversation: Conversation, told: Told) -> list[Awaitable[None]]:
        question = self._lanes.recalling(tenant, conversation, told)
        if question is None:
            return []
        return [question, *_asked(self._hearsay.recalling(tenant, conversation))]

    def _beside(self, split: Split | None) -> bytes | None:
        """What names the folds that have seen the instructions, where there may be such."""
        return split.opening if split is not None and self._on_prefix else None


def _may_have_folds(told: Told, lane: Lane | None) -> bool:
    """Of one that this process has answered it is known how full it was; any other may have been folded."""
    if lane is None:
        return told.length > 1
    return told.length > 1 and (others_answered(told, lane.length) or lane.filled > 0)


def _asked(question: Awaitable[None] | None) -> list[Awaitable[None]]:
    return [] if question is None else [question]
