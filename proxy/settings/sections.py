"""The groups of settings, each setting with its default and its meaning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    model_validator,
)

from proxy.settings.values import (
    Bytes,
    Retained,
    Seconds,
    Share,
    Tokens,
    comma_separated,
    encryption_keys,
    header_safe,
    host_names,
    sealing,
)

# The rules of `proxy.counting.images`, which this floor does not know; a test holds them together.
ImageRule = Literal[
    "tiles-85-170",
    "tiles-70-140",
    "tiles-75-150",
    "tiles-65-129",
    "tiles-2833-5667",
    "patches-1.62",
    "patches-2.46",
    "patches-1.72",
    "anthropic",
    "gemini",
]
Strategy = Literal["summarize", "extractive", "off"]
SummaryRole = Literal["auto", "system", "user", "assistant", "append"]
SummarizerVia = Literal["auto", "upstream", "litellm"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]


class Section(BaseModel):
    # Values are hidden in pydantic's own messages because one of them may be a secret.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Usage(Section):
    ask: bool = Field(
        default=True,
        description="Ask the upstream for token usage in streams when the client did not, and keep the extra "
        "chunk from the client.",
    )


class Compression(Section):
    threshold: Share | None = Field(
        default=None,
        description="Share of the room for a prompt from which on a conversation is due to be folded. The "
        "room is the model's window less the answer's part and the margin. Without it (null) the model map's "
        "own, 0.95 for most. What `models` says of a model wins over both.",
    )
    soft_ratio: Share = Field(
        default=0.8, description="Share of the threshold from which on a fold is prepared in the background."
    )
    margin: float = Field(
        default=0.05, ge=0, lt=0.5, description="Share of the window that is left free for safety."
    )

    enabled: bool = Field(
        default=True,
        description="Fold at all. False folds nothing, whatever `models` or a request says. The rest goes "
        "on: usage is asked for and messages are kept, neither of which `mode: off` does.",
    )
    strategy: Strategy = Field(
        default="summarize",
        description="How the old part is told: `summarize` asks a model, `extractive` picks the sentences "
        "that say most without one, `off` folds nothing. What `models` says of a model wins.",
    )
    retain_tokens: Retained | None = Field(
        default=None,
        description="Tokens of recent messages that stay word for word, or a share of the room such as 10%; "
        "never more than half of the room. The newest user message, and the newest tool call with its "
        "results, stay even if they are larger. Without it (null) the model map's own, 1000 for most. What "
        "`models` says of a model wins over both.",
    )
    min_tokens: int = Field(
        default=2_000,
        ge=0,
        description="For a request with fewer tokens no fold is made unless it would not fit the window. "
        "More than half of the room counts as half of it.",
    )
    summary_role: SummaryRole = Field(
        default="auto",
        description="The role in which a summary is told to the model: `system`, `user` (followed by a line "
        "of the assistant's where a user message comes next), `assistant`; or `append`, behind the text of "
        "the first system message where there is one. `auto` is `system` for known providers, or `developer` "
        "where the client's own instructions have that role, and `user` elsewhere, as many chat templates "
        "take one system message only. A model whose template refuses its role is told its summaries "
        "as `user` from then on.",
    )
    summary_max_tokens: Tokens | None = Field(
        default=None,
        description="Most tokens of a summary's text. It has a tenth of what it replaces, at least 200 and "
        "at most 8,000, in any case: this only makes it shorter. Null sets no further limit.",
    )


class Summarizer(Section):
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="The model that writes summaries. Without it (null) the model map's choice, a cheap "
        "model of the same provider, and the conversation's own where that one is not served; `own` is the "
        "conversation's own. A name with a provider before it (anthropic/claude-haiku-4-5) is called through "
        "litellm, with the provider's key from the environment. It wins over what `models` says.",
    )
    via: SummarizerVia = Field(
        default="auto",
        description="How the model named above is reached: `upstream` asks the upstream with the caller's "
        "key, `litellm` the provider itself. `auto` is litellm for a provider's name and a slash, unless the "
        "upstream is known to have such names itself, as OpenRouter, Groq or Together do; a gateway of your "
        "own is not known, so say `upstream` there. The conversation's own model is always the upstream's.",
    )
    prompt: Annotated[str, Field(min_length=1)] = Field(
        default="general",
        description="What the model is told: `general`, `coding`, `concise`, `detailed`, or instructions of "
        "your own. How to read the transcript is added to them.",
    )
    on_prefix: bool = Field(
        default=False,
        description="Ask the conversation's own model, behind the conversation as it was sent last, so that "
        "most of what it reads is in the provider's cache. `model` and `via` then count only where that is "
        "refused or does not fit. Such a summary is used only with the same instructions and tools.",
    )
    timeout: Seconds = Field(default=60.0, description="Seconds that a call of the summary model may take.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=0.3,
        description="The summary model's temperature. Null leaves it out; so does a model's refusal of it.",
    )
    max_wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=10.0,
        description="Seconds that a request waits for a summary if it would not fit the window without one. "
        "Then an extract is made without a model, and the summary is finished for later requests.",
    )
    daily_tokens: Annotated[int, Field(ge=0)] | None = Field(
        default=20_000_000,
        description="Tokens that summaries may cost a caller in a day (UTC), as billed. Beyond it no model "
        "is asked until the next day, and what would not fit gets an extract made without one. Null is no "
        "limit.",
    )


class History(Section):
    store_messages: bool = Field(
        default=True,
        description="Keep the original messages, so that what was folded can be read again. False keeps "
        "their digests only; summaries are kept in any case.",
    )
    ttl: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=30 * 24 * 3600.0,
        description="Seconds for which messages are kept from when they came in, and folds from when they "
        "were last used; null is for ever.",
    )


class Redis(Section):
    timeout: Annotated[float, Field(ge=0.05, le=0.25)] = Field(
        default=0.2,
        description="Seconds that a request waits for the shared store, connecting included; between 0.05 "
        "and 0.25. Then it goes on with what the process knows by itself.",
    )
    pause: Annotated[float, Field(ge=1, le=300)] = Field(
        default=5.0,
        description="Seconds until a shared store that did not answer is tried again, in the background.",
    )


class Encryption(Section):
    keys: Annotated[SecretStr | None, AfterValidator(sealing)] = Field(
        default=None,
        description="Keys under which values are encrypted before they reach the store (AES-256-GCM): "
        "`id:base64key`, each of 32 bytes, several separated by commas. The first one encrypts, all of them "
        "decrypt. What none of them decrypts counts as missing. Without any (null) values are stored as they "
        "are. Has no flag, because other users of a machine can see flags.",
    )

    @property
    def by_id(self) -> dict[str, bytes]:
        return encryption_keys(self.keys.get_secret_value()) if self.keys is not None else {}


class Notify(Section):
    headers: bool = Field(
        default=True,
        description="Tell in answer headers what was folded. The conversation, the size and warnings are "
        "told in any case.",
    )
    events: bool = Field(
        default=True,
        description="Write log lines, and tell the event stream inside the process, of folds and what went "
        "wrong with them. Metrics are counted in any case.",
    )


class Windows(Section):
    ask: bool = Field(
        default=True,
        description="Ask the upstream in the background how large its models' windows are, as vLLM, "
        "llama.cpp, Ollama, LM Studio, OpenRouter and LiteLLM tell.",
    )


class Model(Section):
    """What the user knows of a model. Only what is given counts; the rest comes from the shipped map."""

    window: Tokens | None = Field(default=None, description="Tokens of prompt and answer together.")
    excludes_answer: bool | None = Field(
        default=None, description="The window is for the prompt alone; the answer has its own beside it."
    )
    max_output: Tokens | None = Field(default=None, description="Tokens of the longest answer.")
    encoding: Literal["o200k_base", "cl100k_base"] | None = Field(
        default=None, description="The vocabulary to count with."
    )
    images: ImageRule | None = Field(default=None, description="The rule by which its images are counted.")
    factor: float | None = Field(
        default=None, gt=0.1, lt=10, description="Its tokens for one of the vocabulary's."
    )
    tool_prompt: Tokens | None = Field(
        default=None, description="Tokens that its provider adds where a request has tools."
    )
    threshold: Share | None = Field(default=None, description="`compression.threshold` for this model.")
    retain_tokens: Retained | None = Field(
        default=None, description="`compression.retain_tokens` for this model."
    )
    strategy: Strategy | None = Field(default=None, description="`compression.strategy` for this model.")
    summary_model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The model that writes its summaries, unless `summarizer.model` names one.",
    )

    @model_validator(mode="after")
    def _a_window_goes_with_what_it_excludes(self) -> Model:
        if self.excludes_answer is not None and self.window is None:
            raise ValueError("excludes_answer says what is in a window: give the window with it")
        return self


class Timeouts(Section):
    connect: Seconds = Field(
        default=5.0, description="Seconds for reaching the upstream, the TLS handshake included."
    )
    first_byte: Seconds = Field(
        default=600.0,
        description="Seconds from the request being sent to the first byte of the upstream's answer.",
    )
    idle: Seconds = Field(
        default=300.0,
        description="Seconds between two pieces of an answer before the upstream counts as gone. There is no "
        "limit for an answer as a whole.",
    )
    head: Seconds = Field(default=30.0, description="Seconds a client may take for the head of its request.")
    body: Seconds = Field(
        default=30.0, description="Seconds a client's body may lag behind `limits.body_rate`."
    )
    keepalive: Seconds = Field(
        default=75.0, description="Seconds an idle client connection is kept open for the next request."
    )
    drain: Seconds = Field(
        default=30.0, description="Seconds that running answers get to finish after SIGTERM."
    )


class Limits(Section):
    chat_body: Bytes = Field(
        default=128 * 1024**2,
        description="Largest body of a chat completion request. Other paths are streamed and have no limit.",
    )
    in_flight: Bytes = Field(
        default=1024**3, description="Bytes of request bodies held in memory at one time, per worker."
    )
    connections: int = Field(
        default=4096, ge=1, description="Client connections open at one time, per worker."
    )
    head: Bytes = Field(
        default=64 * 1024, description="Largest head (request line and headers) of a request."
    )
    body_rate: Bytes = Field(
        default=1024, description="Bytes per second below which a client's body counts as too slow."
    )


class Tls(Section):
    ca_file: FilePath | None = Field(
        default=None,
        description="PEM file with the certificate authorities to trust for the upstream; null means the "
        "system's.",
    )
    verify: bool = Field(
        default=True,
        description="Verify the upstream's certificate. False makes the connection open to interception.",
    )


class Admin(Section):
    token: Annotated[SecretStr | None, AfterValidator(header_safe)] = Field(
        default=None,
        description="Secret for everything outside /v1 (page, API, metrics). Required to listen on an "
        "address that other machines reach. Has no flag, because other users of a machine can see flags.",
    )
    hosts: Annotated[tuple[str, ...], BeforeValidator(comma_separated), AfterValidator(host_names)] = Field(
        default=(),
        description="Host names under which everything outside /v1 may be asked, besides loopback names and "
        "the address listened on. As a variable: separated by commas.",
    )


class Metrics(Section):
    open: bool = Field(default=False, description="Serve /metrics without the admin token.")


class Log(Section):
    level: LogLevel = Field(default="info", description="Least level that is logged.")
    format: LogFormat = Field(
        default="auto", description="`console`, `json`, or `auto`: console on a terminal, else JSON."
    )
