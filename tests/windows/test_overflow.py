from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.windows.overflow import (
    LongestAnswer,
    Overflow,
    longest_answer,
    out_of_window,
    overflow,
    overflow_by_numbers,
)


def openai(message: str, code: object = "context_length_exceeded") -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}}


def vllm(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def both(limit: int | None = None, asked: int | None = None, answer: int | None = None) -> Overflow:
    return Overflow(limit, asked, answer=answer)


def prompt_alone(limit: int | None = None, asked: int | None = None) -> Overflow:
    return Overflow(limit, asked, of_prompt=True)


# As they were seen in the wild, numbers and all.
REFUSALS: dict[str, tuple[int, object, Overflow]] = {
    "openai": (
        400,
        openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 "
            "tokens. Please reduce the length of the messages."
        ),
        both(128000, 204308),
    ),
    "openai with functions": (
        400,
        openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 "
            "tokens (202767 in the messages, 101 in the functions). Please reduce the length of the messages."
        ),
        both(128000, 202868),
    ),
    "openai completions": (
        400,
        openai(
            "This model's maximum context length is 4097 tokens, however you requested 6539 tokens (6283 in "
            "your prompt; 256 for the completion). Please reduce your prompt; or completion length.",
            None,
        ),
        both(4097, 6539, 256),
    ),
    "openai gpt-5": (
        400,
        openai(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650 "
            "tokens. Please reduce the length of the messages."
        ),
        prompt_alone(272000, 289650),
    ),
    "openai responses": (
        400,
        openai(
            "Your input exceeds the context window of this model. Please adjust your input and try again."
        ),
        both(),
    ),
    "azure": (
        400,
        openai(
            "This model's maximum context length is 8192 tokens. However, you requested 9027 tokens (8027 in "
            "the messages, 1000 in the completion). Please reduce the length of the messages or completion."
        ),
        both(8192, 9027, 1000),
    ),
    "deepseek": (
        400,
        openai(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens "
            "(122942 in the messages, 8192 in the completion). Please reduce the length of the messages or "
            "completion.",
            "invalid_request_error",
        ),
        both(131072, 131134, 8192),
    ),
    "vllm of old": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you requested 19591 "
            "tokens (9591 in the messages, 10000 in the completion). Please reduce the length of the "
            "messages or completion. None",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        both(16384, 19591, 10000),
    ),
    "vllm, the answer reaches too far": (
        400,
        vllm(
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length "
            "is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104). None"
        ),
        both(4096, 4104, 2000),
    ),
    "vllm, the prompt alone": (
        400,
        vllm(
            "This model's maximum context length is 1536 tokens. However, your request has 4176 input "
            "tokens. Please reduce the length of the input messages. None"
        ),
        both(1536, 4176),
    ),
    "vllm v1": (
        400,
        vllm(
            "The decoder prompt (length 25938) is longer than the maximum model length of 4096. Make sure "
            "that `max_model_len` is no smaller than the number of text tokens."
        ),
        both(4096, 25938),
    ),
    "vllm multimodal": (
        400,
        vllm("The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
        both(4096, 25938),
    ),
    "vllm 0.15": (
        400,
        vllm(
            "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context "
            "length is only 131072 tokens, resulting in a maximum input length of 99072 tokens. Please "
            "reduce the length of the input prompt. (parameter=input_tokens, value=99073)"
        ),
        both(131072, 131073, 32000),
    ),
    "vllm of today": (
        400,
        vllm(
            "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens "
            "and your prompt contains at least 3997 input tokens, for a total of at least 4097 tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens."
        ),
        both(4096, 4097, 100),
    ),
    "sglang": (
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
            "code": 400,
        },
        both(40960, 61709),
    ),
    "sglang with an answer": (
        400,
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 262144 tokens. "
            "You requested a total of 270128 tokens: 261936 tokens from the input messages and 8192 tokens "
            "for the completion.",
        },
        both(262144, 270128, 8192),
    ),
    "sglang short of memory": (
        400,
        {"message": "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."},
        prompt_alone(59862, 160062),
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (14429 tokens) exceeds the available context size (8192 tokens), try "
                "increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
        both(8192, 14429),
    ),
    "llama.cpp of old": (
        500,
        {
            "error": {
                "code": 500,
                "message": "the request exceeds the available context size. try increasing the context size "
                "or enable context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 1407,
                "n_ctx": 256,
            }
        },
        both(256, 1407),
    ),
    "llama-cpp-python": (
        400,
        openai("Requested tokens (2285) exceed context window of 2048", None),
        both(2048, 2285),
    ),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 213462 tokens > 200000 maximum",
            },
        },
        prompt_alone(200000, 213462),
    ),
    "anthropic with an answer": (
        400,
        openai(
            "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input "
            "length or `max_tokens` and try again",
            "invalid_request_error",
        ),
        both(200000, 207951, 8192),
    ),
    "gemini": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1196265) exceeds the maximum number of tokens allowed "
                    "(1048575).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        prompt_alone(1048575, 1196265),
    ),
    "gemini, one number": (
        400,
        openai("The input token count exceeds the maximum number of tokens allowed 1048576.", 400),
        prompt_alone(1048576),
    ),
    "vertex": (
        400,
        openai(
            "Unable to submit request because the input token count is 32825 but model only supports up to "
            "32768. Reduce the input token count and try again.",
            400,
        ),
        prompt_alone(32768, 32825),
    ),
    "groq": (400, openai("Please reduce the length of the messages or completion."), both()),
    "cerebras": (
        400,
        openai(
            "Please reduce the length of the messages or completion. Current length is 8543 while limit "
            "is 8192"
        ),
        both(8192, 8543),
    ),
    "mistral": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length",
            "type": "invalid_request_error",
            "code": 3051,
        },
        both(32768, 40960),
    ),
    "openrouter": (
        400,
        openai(
            "This endpoint's maximum context length is 163840 tokens. However, you requested about 200123 "
            "tokens (168123 of text input, 32000 in the output). Please reduce the length of either one.",
            400,
        ),
        both(163840, 200123, 32000),
    ),
    "openrouter, a provider's own words": (
        502,
        {
            "error": {
                "message": "Provider returned error",
                "code": 502,
                "metadata": {
                    "raw": '{"error":{"message":"This model\'s maximum context length is 16000 tokens. '
                    'However, you requested 17165 tokens"}}',
                    "provider_name": "Somebody",
                },
            }
        },
        both(16000, 17165),
    ),
    "xai": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        },
        prompt_alone(131072, 537812),
    ),
    "lm studio": (
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the context "
            "length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length, "
            "or provide a shorter input."
        },
        both(4096, 13055),
    ),
    "lm studio, no numbers": (
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the context "
            "length. Try to load the model with a larger context length, or provide a shorter input"
        },
        both(),
    ),
    "lm studio of old": (
        400,
        {
            "error": "Trying to keep the first 111490 tokens when context the overflows. However, the model "
            "is loaded with context length of only 32768 tokens, which is not enough."
        },
        both(32768, 111490),
    ),
    "lm studio of today": (
        400,
        {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"},
        both(7424, 15028),
    ),
    "tgi": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: "
            "3474 `inputs` tokens and 60 `max_new_tokens`",
            "error_type": "validation",
        },
        both(2048, 3534, 60),
    ),
    "tgi, the prompt alone": (
        422,
        {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"},
        prompt_alone(4096, 5000),
    ),
    "together": (
        400,
        openai("The input (265330 tokens) is longer than the model's context length (262144 tokens).", None),
        both(262144, 265330),
    ),
    "fireworks": (
        400,
        openai("The prompt is too long: 203557, model maximum context length: 196607", "invalid_request"),
        both(196607, 203557),
    ),
    "ollama": (
        400,
        {"error": "prompt too long; exceeded max context length by 4096 tokens"},
        both(),
    ),
    "ollama, the runner's own words": (
        400,
        {
            "error": '{"error":{"code":400,"message":"request (5024 tokens) exceeds the available context '
            'size (4096 tokens), try increasing it","type":"exceed_context_size_error"}}'
        },
        both(4096, 5024),
    ),
    "ollama embeddings": (400, {"error": "the input length exceeds the context length"}, both()),
    "bedrock": (400, {"message": "Input is too long for requested model."}, both()),
    "bedrock nova": (
        400,
        {
            "message": "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update "
            "the input to try again."
        },
        both(),
    ),
    "moonshot": (
        400,
        openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)", None),
        both(262144, 291351),
    ),
    "minimax": (400, openai("invalid params, context window exceeds limit (2013)", None), both()),
    "zhipu": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, both()),
    "dashscope": (
        400,
        openai(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]", None
        ),
        prompt_alone(129024),
    ),
    "copilot": (
        400,
        openai(
            "prompt token count of 145000 exceeds the limit of 128000", "model_max_prompt_tokens_exceeded"
        ),
        prompt_alone(128000, 145000),
    ),
    "github models": (
        413,
        openai(
            "Request body too large for gpt-4o-mini model. Max size: 8000 tokens.", "tokens_limit_reached"
        ),
        prompt_alone(8000),
    ),
    "cohere": (
        400,
        {
            "message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received "
            "4292. Try using a shorter prompt, or enabling prompt truncating."
        },
        prompt_alone(4081, 4292),
    ),
    "poolside": (
        400,
        openai("Input length 265330 exceeds the maximum allowed input length of 262144 tokens.", None),
        prompt_alone(262144, 265330),
    ),
    "watsonx": (
        400,
        {
            "errors": [
                {
                    "code": "invalid_input_argument",
                    "message": "Invalid input argument for Model 'meta-llama/llama-2-70b-chat': the number "
                    "of input tokens 4098 cannot exceed the total tokens limit 4096 for this model",
                }
            ],
            "status_code": 400,
        },
        both(4096, 4098),
    ),
    "litellm": (
        400,
        openai(
            "litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicException - "
            '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 209353 '
            'tokens > 199999 maximum"}}. Received Model Group=claude',
            "400",
        ),
        prompt_alone(199999, 209353),
    ),
    "only a code": (400, openai("Bad request."), both()),
    "numbers with commas": (
        400,
        openai(
            "This model's maximum context length is 131,072 tokens. However, you requested 300,000 tokens"
        ),
        both(131072, 300000),
    ),
}


@pytest.mark.parametrize(("status", "body", "meant"), REFUSALS.values(), ids=REFUSALS)
def test_a_prompt_that_is_too_long_is_recognised_in_everybody_s_words(
    status: int, body: object, meant: Overflow
) -> None:
    assert overflow(status, body) == meant


@pytest.mark.parametrize(("body", "meant"), [row[1:] for row in REFUSALS.values()], ids=REFUSALS)
def test_the_same_is_recognised_in_an_event_of_a_stream(body: object, meant: Overflow) -> None:
    assert overflow(None, body if isinstance(body, dict) and "error" in body else {"error": body}) == meant


TEXTS = {name: row for name, row in REFUSALS.items() if row[2].limit is not None and row[2].asked is not None}


@pytest.mark.parametrize(("status", "body", "meant"), TEXTS.values(), ids=TEXTS)
def test_the_same_is_recognised_as_text(status: int, body: object, meant: Overflow) -> None:
    assert overflow(status, orjson.dumps(body).decode()) == meant
    assert overflow(None, orjson.dumps(body)) == meant


ANSWERS: dict[str, tuple[str, int | None]] = {
    "openai": (
        "max_tokens is too large: 20000. This model supports at most 16384 completion tokens, whereas you "
        "provided 20000.",
        16_384,
    ),
    "anthropic": (
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5",
        8_192,
    ),
    "deepseek": ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192),
    "dashscope": (
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 2000]",
        2_000,
    ),
    "gemini": (
        "Unable to submit request because it has a maxOutputTokens value of 70000 but the supported range is "
        "from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
        65_536,
    ),
    "groq": ("max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000", 8_000),
    "groq, newer": (
        "`max_completion_tokens` must be less than or equal to `16384`, the maximum value",
        16_384,
    ),
    "ollama": (
        "max_tokens (384000) exceeds model's maximum output tokens (65536) for model deepseek-v4-flash",
        65_536,
    ),
    "bedrock": (
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens "
        "value that is lower than 4096.",
        4_096,
    ),
    "without a number": ("max_completion_tokens is limited for this model", None),
}


@pytest.mark.parametrize(("said", "limit"), ANSWERS.values(), ids=ANSWERS)
def test_the_longest_answer_of_a_model_is_understood_and_is_no_matter_of_the_prompt(
    said: str, limit: int | None
) -> None:
    for body in (openai(said, "invalid_value"), said):
        assert longest_answer(body) == LongestAnswer(limit)
        assert overflow(400, body) is None
        assert out_of_window(400, body) is None


@pytest.mark.parametrize(
    "said",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
        "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
        "The model `gpt-4o-mini` does not exist or you do not have access to it.",
    ],
)
def test_not_everything_that_is_said_of_an_answers_length_is_about_its_most(said: str) -> None:
    assert longest_answer(openai(said, None)) is None


def test_a_quoted_request_says_nothing_of_the_longest_answer() -> None:
    said = "max_tokens is too large: 9. This model supports at most 8 completion tokens"
    assert longest_answer({"detail": [{"msg": "Field required", "input": {"messages": said}}]}) is None


def test_whoever_can_ask_for_a_shorter_answer_is_told_of_those_that_leave_no_room_for_a_prompt() -> None:
    refused = out_of_window(*OTHERS["too long an answer for any prompt"])
    assert refused is not None
    assert (refused.limit, refused.by_answer_alone) == (4_096, True)


OTHERS: dict[str, tuple[int | None, object]] = {
    "rate limit": (429, openai("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000", None)),
    "groq's 413": (
        413,
        openai(
            "Request too large for model `llama-3.1-8b` on tokens per minute (TPM): Limit 6000, Requested "
            "7000, please reduce your message size and try again.",
            "rate_limit_exceeded",
        ),
    ),
    "rate limit that sounds like it": (
        400,
        openai("Rate limit reached: prompt is too long for the tokens of this minute", "rate_limit_exceeded"),
    ),
    "rate limit in a stream": (None, {"error": {"code": 429, "message": "prompt is too long for now"}}),
    "bedrock's throttle": (400, {"message": "Too many tokens, please wait before trying again."}),
    "quota": (400, openai("You exceeded your current quota, please check your plan and billing", None)),
    "credits": (
        402,
        openai("This request requires more credits, or fewer max_tokens. You requested up to 64000", 402),
    ),
    "wrong key": (401, openai("Incorrect API key provided: the context window exceeds limit", None)),
    "unknown model": (
        404,
        openai("The model `x` with a maximum context length of 4096 does not exist", None),
    ),
    "too long an answer": (
        400,
        openai(
            "max_tokens is too large: 99999. This model supports at most 16384 completion tokens, whereas "
            "you provided 99999.",
            "invalid_value",
        ),
    ),
    "too long an answer for any prompt": (
        400,
        vllm(
            "'max_tokens' or 'max_completion_tokens' is too large: 8000. This model's maximum context length "
            "is 4096 tokens and your request has 2778 input tokens (8000 > 4096 - 2778). None"
        ),
    ),
    "too long an answer for any prompt, openai": (
        400,
        openai(
            "This model's maximum context length is 4096 tokens. However, you requested 4217 tokens (121 in "
            "the messages, 4096 in the completion). Please reduce the length of the messages or completion."
        ),
    ),
    "too long an answer for any prompt, sglang": (
        400,
        {
            "message": "Requested token count exceeds the model's maximum context length of 262144 tokens. "
            "You requested a total of 271206 tokens: 9062 tokens from the input messages and 262144 "
            "tokens for the completion."
        },
    ),
    "anthropic's limit of an answer": (
        400,
        openai("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens", None),
    ),
    "a string's length": (
        400,
        openai(
            "Invalid 'user': string too long. Expected a string with maximum length 64, but got 80 instead.",
            "string_above_max_length",
        ),
    ),
    "a body's size": (413, openai("Request exceeds the maximum size", "request_too_large")),
    "a quoted request": (
        422,
        {
            "detail": [
                {
                    "type": "missing",
                    "loc": ["body", "messages"],
                    "msg": "Field required",
                    "input": {"messages": "why do I see: prompt is too long: 9 tokens > 8 maximum"},
                }
            ]
        },
    ),
    "an answer about it": (
        200,
        {"choices": [{"message": {"content": "prompt is too long: 213462 tokens > 200000 maximum"}}]},
    ),
    "a chunk about it": (None, {"choices": [{"delta": {"content": "context_length_exceeded"}}]}),
    "a page about it": (200, "<html>prompt is too long</html>"),
    "overloaded": (503, openai("The server is overloaded", None)),
    "nothing": (400, None),
    "an empty page": (400, ""),
}


@pytest.mark.parametrize(("status", "body"), OTHERS.values(), ids=OTHERS)
def test_other_refusals_are_not_taken_for_it(status: int | None, body: object) -> None:
    assert overflow(status, body) is None


def test_numbers_that_nobody_can_mean_are_not_taken() -> None:
    told = openai(
        "This model's maximum context length is 99999999999 tokens. However, you requested 0 tokens"
    )
    assert overflow(400, told) == both()
    assert overflow(400, {"error": {"type": "exceed_context_size_error", "n_ctx": True}}) == both()
    assert overflow(400, {"error": {"type": "exceed_context_size_error", "n_ctx": "8192"}}) == both()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["error", "message", "code", "x"]), inner)
    ),
)


@given(st.none() | st.sampled_from([200, 400, 413, 500]), json_values)
def test_no_body_makes_it_fail(status: int | None, body: object) -> None:
    overflow(status, body)


HOSTILE = [
    "maximum context length is 1 tokens ",
    "maximum context length is 1 tokens. However, you requested 1 output tokens and ",
    "request (1 tokens) ",
    "prompt contains 1 tokens ",
    "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,",
    "input length exceeds ",
    "too many tokens: size limit exceeded by ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_almost_the_right_words_is_read_in_no_time(piece: str) -> None:
    text = piece * (2**20 // len(piece))
    began = time.thread_time()
    overflow(400, text)
    overflow(400, {"error": {"message": text, "code": text}})
    assert time.thread_time() - began < 2.0


def test_a_deep_or_wide_body_is_read_in_no_time() -> None:
    deep: Any = "prompt is too long"
    for _ in range(900):
        deep = {"error": deep}
    wide = {"error": [{"message": "x"}] * 200_000}
    began = time.thread_time()
    assert overflow(400, deep) is None
    assert overflow(400, wide) is None
    assert time.thread_time() - began < 2.0


# In words that nobody has seen, by the numbers in them.


@pytest.mark.parametrize(
    ("words", "declared", "said"),
    [
        ("Sorry, your text has 9,918 pieces but I can only take in 8,000.", None, both(8000, 9918)),
        ("输入长度 9918 超过最大长度 8192", None, both(8192, 9918)),
        ("Limit: 10000. Yours: 9918 and 200 for the answer.", 200, both(10_000, 9918)),
        ("10118 of 10000 used", 200, both(10_000, 10_118)),
        ("batch 1 of 4096: 9918 > 8192", None, both(8192, 9918)),
    ],
)
def test_a_refusal_in_unknown_words_is_understood_by_its_numbers(
    words: str, declared: int | None, said: Overflow
) -> None:
    assert overflow(400, openai(words, None)) is None
    assert overflow_by_numbers(400, openai(words, None), 9_900, declared) == said


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai("You have 9918 of 8000 requests per minute.", None)),
        (400, openai("string too long: 9918, at most 8000", None)),
        (
            400,
            openai("max_tokens is too large: 9918. This model supports at most 8192 tokens", None),
        ),
        (429, openai("9918 > 8000", None)),
        (500, openai("9918 > 8000", None)),
        (None, openai("9918 > 8000", None)),
        (400, openai("9918 > 8000", 402)),
        (400, openai("Line 9918 is broken.", None)),
        (400, openai("9918 is less than 20000.", None)),
        (400, openai("Field 7 of message 9918 should be 12 characters long.", None)),
        (400, openai("v1.9918.8000, at 2026-11-19T09:12:44", None)),
        (400, {"input": "9918 > 8000", "error": {"message": "no"}}),
        (400, "nothing"),
    ],
)
def test_other_refusals_with_numbers_are_not(status: int | None, body: object) -> None:
    assert overflow_by_numbers(status, body, 9_900, None) is None


def test_a_short_prompt_is_refused_for_something_else() -> None:
    assert overflow_by_numbers(400, openai("918 > 800", None), 918, None) is None


@pytest.mark.parametrize(
    ("said", "counted", "declared", "prompt", "counts_answer"),
    [
        # The answer is named …
        (both(8000, 10_000, 7000), 2900, 7000, 3000, True),
        # … even where so much of the prompt is not counted any more.
        (both(100_000, 100_001, 90_000), 60_000, 90_000, 10_001, True),
        # The upstream has added one by itself: a shorter prompt makes place for it.
        (both(8192, 9096, 4096), 5000, None, 9096, False),
        # It is not, but is in what was asked for.
        (both(8000, 10_000), 2900, 7000, 3000, True),
        (both(8000, 11_000), 2900, 8000, 3000, True),
        (both(8000, 2**40 + 3000), 2900, 2**40, 3000, True),
        # It is not in it: a shorter prompt may be answered, whatever was declared.
        (both(8000, 9000), 8800, 8000, 9000, False),
        (both(8000, 9000), 8800, None, 9000, False),
        (prompt_alone(8000, 9000), 8800, 8000, 9000, False),
        # Nobody says.
        (both(8000), 8800, 8000, None, False),
        (both(), 8800, 8000, None, False),
    ],
)
def test_a_refusal_tells_the_prompt_s_part_of_what_was_asked_for(
    said: Overflow,
    counted: int,
    declared: int | None,
    prompt: int | None,
    counts_answer: bool,
) -> None:
    assert said.prompt(counted, declared) == prompt
    assert said.counts_answer(counted, declared) is counts_answer
