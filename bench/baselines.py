"""What others would have sent for the same requests. Pure, and rather kinder to them than not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.prompts import Piece, Prompt, SummaryCall, cached

# What most peers keep word for word beside their summary.
RETAINED = 1_000
# Instructions around a transcript: what Tailfold's own calls say there.
ASKING = 500


def sliding_window(prompts: Sequence[Prompt], room: int) -> list[Prompt]:
    """The instructions, and each time the newest messages that fit beside them."""
    return [_slid(prompt, room) for prompt in prompts]


def _slid(prompt: Prompt, room: int) -> Prompt:
    if prompt.tokens <= room:
        return prompt
    system = _system(prompt)
    beside = room - prompt.opening - sum(piece.tokens for piece in system)
    return Prompt(prompt.opening, (*system, *newest(prompt.pieces, beside)))


def folding_every_turn(
    prompts: Sequence[Prompt], trigger: int, summary_tokens: int
) -> tuple[list[Prompt], list[SummaryCall]]:
    """Past the trigger, every request's old part is summed up anew; the client sends all of it each time.

    The transcript in their calls only grows, so with each stands what a provider could have cached of it that
    finds a known beginning within a message too. The simulated one finds whole messages only.
    """
    sent: list[Prompt] = []
    told: list[Prompt] = []
    for number, prompt in enumerate(prompts):
        tail = newest(prompt.pieces, RETAINED)
        old = _spoken(prompt.pieces)[: -len(tail) or None] if prompt.tokens > trigger else []
        if old:
            told.append(Prompt(ASKING, tuple(old)))
            prompt = Prompt(prompt.opening, (*_system(prompt), _summary(number, summary_tokens), *tail))
        sent.append(prompt)
    calls = zip(told, cached(told), strict=True)
    return sent, [SummaryCall(one.tokens, summary_tokens, saved) for one, saved in calls]


def _summary(number: int, tokens: int) -> Piece:
    """Never the same twice, as a model wrote it."""
    return Piece("system", b"summary %d" % number, tokens)


def newest(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """The newest messages within so many tokens, calls with their results; the newest group in any case."""
    kept: list[Piece] = []
    size = 0
    for group in reversed(list(groups(_spoken(pieces)))):
        size += sum(piece.tokens for piece in group)
        if kept and size > most:
            break
        kept = [*group, *kept]
    return kept


def groups(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Results go with the message before them."""
    group: list[Piece] = []
    for piece in pieces:
        if group and not piece.is_result:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _system(prompt: Prompt) -> list[Piece]:
    return [piece for piece in prompt.pieces if piece.is_system]


def _spoken(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if not piece.is_system]
