"""What is known of a model, and who has said so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Origin(StrEnum):
    """Who has said a number, from the one that counts most to the one that counts least."""

    SETTING = "setting"  # the user's own configuration
    UPSTREAM = "upstream"  # the upstream, of itself
    MAP = "map"  # the shipped models.yaml
    LITELLM = "litellm"  # litellm's model map
    DEFAULT = "default"  # nobody


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """None where nothing has been said."""

    window: int | None = None
    # The window is for the prompt alone, the answer has its own beside it. Goes with `window`.
    excludes_answer: bool | None = None
    max_output: int | None = None
    encoding: str | None = None
    images: str | None = None  # a rule of `proxy.counting.images`
    factor: float | None = None  # its tokens for one of ours, where its tokenizer is not public
    threshold: float | None = None
    retain_tokens: int | str | None = None  # tokens, or a share of the room as `10%`
    strategy: str | None = None
    summary_model: str | None = None
    tool_prompt: int | None = None  # tokens that its provider adds where a request has tools


@dataclass(frozen=True, slots=True)
class KnownModel:
    """The facts of all layers put together, and whose each of them is (by field name, where there is one)."""

    facts: ModelFacts = ModelFacts()
    origins: Mapping[str, Origin] = field(default_factory=dict)
