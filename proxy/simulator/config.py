"""Everything a simulated provider can be told about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# How the summary model does its work.
Summaries = Literal["good", "echo", "empty", "refusal", "tool_call", "inflated", "error", "hang"]
# How a prompt that is too long is refused: by its status, in an answer that began as a good one ("event" and
# "ok"), or not at all.
Overflow = Literal["status", "words", "nameless", "event", "ok", "truncate"]

# How a bill tells of what was read from the cache: within the prompt's tokens, beside them, or not at all.
CacheIsBilled = Literal["within", "beside", "not"]

# The longest answers that may be asked for.
LONGEST_ANSWERS = {"gpt-4o": 16_384, "gpt-4o-mini": 16_384, "gpt-4.1": 32_768, "gpt-5": 128_000}

DEFAULT_MODELS = (
    "gpt-4o",
    "gpt-4o-mini",
    "gpt-4.1",
    "gpt-5",
    "text-embedding-3-small",
    "text-embedding-3-large",
)


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    window: int = 128_000
    windows: Mapping[str, int] = field(default_factory=dict)  # by model, where it differs from `window`
    longest_answers: Mapping[str, int] = field(default_factory=lambda: LONGEST_ANSWERS)  # by model
    tells_window: bool = False  # in the list of models, as vLLM does
    model_names: tuple[str, ...] = DEFAULT_MODELS
    any_model: bool = True  # False: a name outside `model_names` is OpenAI's 404
    api_key: str | None = None

    counting: Literal["tiktoken", "rough"] = "tiktoken"  # rough: a quarter of the characters
    tokenizer_factor: float = 1.0
    cache_min_tokens: int | None = 1024  # None: no prompt cache

    cache_is_billed: CacheIsBilled = "within"

    overflow: Overflow = "status"
    caps_answers: bool = False  # an answer that finds no place beside its prompt is cut, not refused
    strict_template: bool = False  # one system message, at the beginning; no two of the user's in a row

    alternating_template: bool = False  # after an instruction, user and assistant take turns, and nobody else

    summaries: Summaries = "good"
    summary_delay: float = 0.0  # seconds before a summary begins

    answer_tokens: int = 64
    chunk_delay: float = 0.0
    compress: bool = False
    refuses_stream_options: bool = False
    refuses_unknown_parameters: bool = True

    retry_after: float = 1.0
    drip_bytes: int = 16
    drip_delay: float = 0.001

    record: bool = True
    recorded_requests: int = 1000
    memory_limit: int = 8 * 2**20  # a larger body is kept on disk
    max_body: int = 8 * 2**30
    max_decoded: int = 256 * 2**20  # what a compressed body may grow to
    max_kept_file: int = 2 * 2**30  # of a larger upload only size and digest are kept

    def window_of(self, model: str) -> int:
        return self.windows.get(model, self.window)

    def answer_limit(self, declared: int | None) -> int | None:
        """A declared length in the vocabulary's tokens."""
        return None if declared is None else int(declared / self.tokenizer_factor)
