"""Recognising that a prompt was refused as too long, in the words of every provider we know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

# An upstream that refuses says so at once; whatever comes later is an echo of the request.
_MOST_TEXT = 64 * 1024
_MOST_LEAVES = 256
_MOST_DEPTH = 8
_MOST_TOKENS = 10**9

# Gateways in front of a model turn its 400 into a 500 or 502, or put it into an answer that began well.
_STATUSES = frozenset({200, 400, 413, 422, 500, 502})
# Words that nobody knows are only tried to be understood where it is the upstream itself that refuses, a
# prompt of some size, and names its size as we have counted it, or nearly.
_REFUSED_ITSELF = frozenset({400, 413, 422})
_LEAST_COUNTED = 1_000
_NEAR = 0.1
_LEAST_LIMIT = 0.1  # of the size; a smaller number is about something else
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]{2,10}(?![\w.]*\d)")
# An error of one of these kinds is not about the prompt, whatever else it says.
_OTHER_CODES = frozenset({"401", "402", "403", "404", "408", "429"})
_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
    }
)
# Where errors speak. Elsewhere (`input`, `body`) some servers quote the request, which may say anything.
_SPEAKING = frozenset(
    {
        "error",
        "errors",
        "message",
        "msg",
        "detail",
        "details",
        "description",
        "reason",
        "code",
        "type",
        "status",
        "metadata",
        "raw",
        "internal_code",
        "n_ctx",
        "n_prompt_tokens",
    }
)


@dataclass(frozen=True, slots=True)
class LongestAnswer:
    """A refusal of a request for the length of the answer that it asks for."""

    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Overflow:
    """A refusal of a prompt for its length, with the numbers it names."""

    limit: int | None = None
    asked: int | None = None  # what was sent, as the upstream counted it
    of_prompt: bool = False  # the limit is for the prompt alone, not for prompt and answer together
    by_answer_alone: bool = False  # so long a one was asked for that no prompt is short enough
    answer: int | None = None  # how much of what was sent is the answer that was asked for

    def of(self, counted: int, declared: int | None, reserved: int | None) -> Overflow:
        """The same for a request of this size. Who names no number has most likely counted the answer too,
        where less than was declared had been kept free for it.
        """
        if self.limit is not None or self.asked is not None or (declared or 0) <= (reserved or 0):
            return self
        return replace(self, asked=counted + (declared or 0), answer=declared)

    def prompt(self, counted: int, declared: int | None) -> int | None:
        """What the upstream has counted without the declared answer, where we have counted so much. An answer
        that it has added by itself has to find its place too.
        """
        if self.asked is None or declared is None:
            return self.asked
        if self.answer is not None:
            return self.asked - self.answer
        return min((self.asked, self.asked - declared), key=lambda tokens: abs(tokens - counted))

    def counts_answer(self, counted: int, declared: int | None) -> bool:
        """Was it refused for its prompt and the declared answer together?"""
        return not self.of_prompt and self.asked is not None and self.asked != self.prompt(counted, declared)


def overflow(status: int | None, body: object) -> Overflow | None:
    """What a refusal says of a prompt that could be made to fit; None where it is about something else. An
    event of a stream has no status.
    """
    refused = out_of_window(status, body)
    return None if refused is None or refused.by_answer_alone else refused


def out_of_window(status: int | None, body: object) -> Overflow | None:
    """The same for whoever can ask for a shorter answer, too."""
    if status is not None and status not in _STATUSES:
        return None
    if status in (None, 200) and not _is_error(body, status):
        return None
    leaves = list(islice(_leaves(body), _MOST_LEAVES))
    codes = _codes_in(leaves)
    if codes & _OTHER_CODES:
        return None
    text, named = _text_of(leaves), bool(codes & _CODES)
    if not named and _SOMETHING_ELSE.search(text):
        return None
    return _understood(text, dict(leaves), named=named)


def overflow_by_numbers(
    status: int | None, body: object, counted: int, declared: int | None
) -> Overflow | None:
    """Of a refusal in words that nobody has seen yet: one of its numbers is what we have counted, and another
    one is too small for that.
    """
    if status not in _REFUSED_ITSELF or counted < _LEAST_COUNTED:
        return None
    leaves = list(islice(_leaves(body), _MOST_LEAVES))
    text = _text_of(leaves)
    if _codes_in(leaves) & _OTHER_CODES or _SOMETHING_ELSE.search(text) or longest_answer(body) is not None:
        return None
    numbers = {int(said.replace(",", "")) for said in _NUMBER.findall(text)}
    answer = declared or 0
    sizes = {counted: answer, counted + answer: 0}  # and what may come on top of them
    near = [(abs(n - size) / size, n, n + beside) for n in numbers for size, beside in sizes.items()]
    for off, asked, whole in sorted(near):
        limits = [n for n in numbers - {asked} if _LEAST_LIMIT * asked <= n < whole]
        if off <= _NEAR and limits:
            return Overflow(max(limits), asked)
    return None


def _codes_in(leaves: Sequence[tuple[str, object]]) -> set[str]:
    return {str(value)[:64].lower() for key, value in leaves if key in ("code", "type", "internal_code")}


def _text_of(leaves: Sequence[tuple[str, object]]) -> str:
    return "\n".join(value[:_MOST_TEXT] for _, value in leaves if isinstance(value, str))[:_MOST_TEXT]


def _understood(text: str, fields: dict[str, object], *, named: bool) -> Overflow | None:
    told = next((told for saying in _SAYINGS if (told := saying.found_in(text)) is not None), None)
    if told is None:
        told = _Told({}) if named else None
    if told is None:
        return None
    # llama.cpp has fields for the numbers.
    return Overflow(
        _tokens(fields.get("n_ctx")) or told.number("limit"),
        _tokens(fields.get("n_prompt_tokens")) or told.asked,
        told.of_prompt,
        told.answer_alone_is_too_long,
        told.number("answer"),
    )


def longest_answer(body: object) -> LongestAnswer | None:
    """What a refusal says of the longest answer that a model gives; None where it is about something else."""
    text = "\n".join(value for _, value in islice(_leaves(body), _MOST_LEAVES) if isinstance(value, str))
    for saying in _OF_ANSWERS:
        if (told := saying.found_in(text[:_MOST_TEXT])) is not None:
            beyond = told.number("beyond")
            return LongestAnswer(beyond - 1 if beyond is not None else told.number("limit"))
    return None


def _is_error(body: object, status: int | None) -> bool:
    """Of what came where an answer was due: is it an error? An answer's own text may be about anything."""
    if isinstance(body, dict):
        return "error" in body or "error" in (body.get("object"), body.get("type"))
    return status is None and isinstance(body, str | bytes)


def _leaves(value: object, key: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(name, str) and name.lower() in _SPEAKING:
                yield from _leaves(inner, name.lower(), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, key, depth + 1)
    elif isinstance(value, bytes):
        yield key, value[:_MOST_TEXT].decode(errors="replace")
    else:
        yield key, value


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= _MOST_TOKENS else None


@dataclass(frozen=True, slots=True)
class _Told:
    numbers: dict[str, str | None]
    of_prompt: bool = False

    def number(self, name: str) -> int | None:
        said = self.numbers.get(name)
        return _tokens(int(said.replace(",", ""))) if said else None

    @property
    def asked(self) -> int | None:
        prompt, answer = self.number("prompt"), self.number("answer")
        return self.number("asked") or (prompt + (answer or 0) if prompt is not None else None)

    @property
    def answer_alone_is_too_long(self) -> bool:
        """Then no prompt is short enough: the client has asked for too long an answer."""
        answer, limit = self.number("answer"), self.number("limit")
        return answer is not None and limit is not None and answer >= limit


@dataclass(frozen=True, slots=True)
class _Saying:
    pattern: re.Pattern[str]
    of_prompt: bool

    def found_in(self, text: str) -> _Told | None:
        match = self.pattern.search(text)
        return None if match is None else _Told(match.groupdict(), self.of_prompt)


def _saying(text: str, *, of_prompt: bool = False) -> _Saying:
    """`<limit>` and its like stand for a number. Gaps are bounded, so that no text takes long to search."""
    pattern = re.sub(r"<(\w+)>", r"(?P<\1>\\d[\\d,]{0,14})", text)
    return _Saying(re.compile(pattern, re.IGNORECASE | re.DOTALL), of_prompt)


def _of_prompt(text: str) -> _Saying:
    return _saying(text, of_prompt=True)


# The first that matches is taken, so those that say more come before those that say less.
_SAYINGS = (
    # vLLM, from newest to oldest
    _saying(
        r"maximum context length is <limit> tokens.{0,40}?requested <answer> output tokens"
        r".{0,60}?contains (?:at least )?<prompt> input tokens"
    ),
    _saying(
        r"passed <prompt> input tokens and requested <answer> output tokens"
        r".{0,60}?context length is only <limit>"
    ),
    _saying(
        r"is too large: <answer>\..{0,60}?maximum context length is <limit> tokens"
        r" and your request has <prompt> input tokens"
    ),
    _saying(
        r"prompt \((?:total )?length <asked>\) is (?:longer than the maximum model length of"
        r"|too long to fit into the model \(context length) <limit>"
    ),
    # SGLang
    _saying(
        r"maximum context length of <limit> tokens.{0,40}?total of <asked> tokens: <prompt> tokens"
        r".{0,60}?and <answer> tokens for the completion"
    ),
    _of_prompt(r"input length \(<asked> tokens\) exceeds the maximum allowed length \(<limit>"),
    # SGLang, Together
    _saying(r"input \(<asked> tokens\) is longer than the model'?s context length \(<limit>"),
    # OpenAI, Azure, DeepSeek, OpenRouter, vLLM of old, and whoever imitates them
    _saying(
        r"maximum context length is <limit> tokens?.{0,60}?requested (?:about )?<asked> tokens"
        r"(?: \([^)]{0,120}?<answer> (?:in|for) the (?:completion|output))?"
    ),
    _saying(
        r"maximum context length is <limit> tokens?"
        r".{0,60}?(?:resulted in|request has|contains(?: at least)?) <asked> "
    ),
    _saying(r"maximum context length (?:is|of) <limit>"),
    # OpenAI, from GPT-5 on
    _of_prompt(r"input tokens exceed the configured limit of <limit>(?: tokens.{0,30}?resulted in <asked>)?"),
    # Anthropic
    _of_prompt(r"prompt is too long: <asked> tokens > <limit> maximum"),
    _saying(r"input length and `?max_tokens`? exceed context limit: <prompt> \+ <answer> > <limit>"),
    # Fireworks, Ollama's cloud
    _saying(r"prompt is too long: <asked>, model maximum context length: <limit>"),
    # Gemini, Vertex
    _of_prompt(
        r"input token count(?: \(<asked>\))? exceeds the maximum number of tokens allowed(?: \(?<limit>)?"
    ),
    _of_prompt(r"input token count is <asked> but (?:the )?model (?:only )?supports up to <limit>"),
    # llama.cpp, Ollama; the first is what its fields look like in a quotation
    _saying(r"n_prompt_tokens\W{1,6}<asked>\W{1,6}n_ctx\W{1,6}<limit>"),
    _saying(r"(?:request \(<asked> tokens\) )?exceeds the available context size(?: \(<limit>)?"),
    _saying(r"input length exceeds the context length(?: of <limit>)?"),
    # LM Studio
    _saying(
        r"tokens to keep from the initial prompt is greater than the context length"
        r"(?: \(n_keep: <asked> ?>= n_ctx: <limit>)?"
    ),
    _saying(r"n_keep \(<asked>\) >= n_ctx \(<limit>"),
    _saying(r"keep the first <asked> tokens when .{0,90}?context length of only <limit>"),
    # llama-cpp-python
    _saying(r"requested tokens \(<asked>\) exceed context window of <limit>"),
    # TGI, Together
    _saying(
        r"`inputs` tokens \+ `max_new_tokens` must be <= <limit>"
        r"(?:\. given: <prompt> `inputs` tokens and <answer>)?"
    ),
    _of_prompt(r"`inputs` must have less than <limit> tokens(?:\. given: <asked>)?"),
    # Mistral
    _saying(r"prompt contains <asked> tokens.{0,40}?too large for model with <limit> maximum context length"),
    # xAI
    _of_prompt(r"maximum prompt length is <limit>(?: but the request contains <asked>)?"),
    # Cerebras
    _saying(r"current length is <asked> while limit is <limit>"),
    # Moonshot
    _saying(r"exceeded model token limit: <limit>(?: \(requested: <asked>)?"),
    # DashScope
    _of_prompt(r"range of input length should be \[\d{1,9}, ?<limit>"),
    # GitHub Copilot, GitHub Models
    _of_prompt(r"prompt token count of <asked> exceeds the limit of <limit>"),
    _of_prompt(r"request body too large for .{0,80}? model\. max size: <limit> tokens"),
    # Poolside and others
    _of_prompt(r"input length <asked> exceeds the maximum allowed input length of <limit>"),
    _of_prompt(r"max input tokens: <limit>, request input token count: <asked>"),
    # Cohere
    _of_prompt(r"tokens in the prompt cannot exceed <limit>(?: - received <asked>)?"),
    # watsonx
    _saying(r"number of input tokens <asked> cannot exceed the total tokens limit <limit>"),
    # Groq, MiniMax, Zhipu, Bedrock, OpenAI's Responses, LiteLLM and all that name no numbers
    _saying(
        r"exceeds? (?:the|model) context window|(?:prompt|input) is too long|prompt (?:tokens )?too long"
        r"|context size has been exceeded|reduce the length of the (?:messages|prompt|input)"
        r"|context[ _](?:length|window)[ _]exceeded|context window exceeds limit"
        r"|input length exceeds .{0,30}?context length|input tokens exceeds maximum length"
        r"|exceeds the model'?s maximum context length|ContextWindowExceededError|prompt exceeds max length"
        r"|exceed_context_size_error|model_context_window_exceeded|exceeded max context length"
    ),
)

# Those that have a limit for the answer alone, whatever the prompt.
_ANSWER = r"max_(?:completion_|output_)?tokens"
_OF_ANSWERS = (
    # OpenAI, Azure
    _saying(_ANSWER + r"\W{1,3}is too large.{0,60}?supports at most <limit> "),
    # Anthropic
    _saying(_ANSWER + r": <asked> > <limit>, which is the maximum allowed number of output tokens"),
    # DeepSeek, DashScope
    _saying(r"range of " + _ANSWER + r" (?:is|should be) \[\d{1,9}, ?<limit>"),
    # Gemini, Vertex
    _saying(r"maxOutputTokens value of <asked> but the supported range is .{0,30}? to <beyond> \(exclusive"),
    # Groq, Cohere
    _saying(_ANSWER.replace("_t", "[_ ]t") + r"\b.{0,90}? must be less than or equal to `?<limit>"),
    # Ollama's cloud
    _saying(_ANSWER + r" \(<asked>\) exceeds (?:the )?model'?s maximum output tokens \(<limit>"),
    # Bedrock
    _saying(r"maximum tokens you requested exceeds the model limit of <limit>"),
    # Whoever names no number
    _saying(_ANSWER + r"\b.{0,60}?(?:is too (?:large|high|long|big)|is limited|exceeds|out of range)"),
)

_SOMETHING_ELSE = re.compile(
    r"rate.?limit|too many requests|per (?:minute|hour|day)\b|\b[tr]p[md]\b|quota|throttl"
    r"|more credits|billing|string_above_max_length|string too long|api key",
    re.IGNORECASE,
)
