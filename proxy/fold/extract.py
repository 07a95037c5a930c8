"""A summary without a model: the sentences of a conversation that say most, in their order.

It is no good prose, but it is always there: nobody is asked, and the same history has the same extract.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proxy.fold.artefacts import NOTHING, Index, index, with_index
from proxy.fold.history import Turn
from proxy.fold.shrink import without_middle
from proxy.fold.transcript import harmless
from proxy.fold.utterance import Utterance, utterance

Count = Callable[[str], int]

# The parts of the room: how the conversation began, what the user laid down, what was touched. The rest, and
# whatever these leave, goes to the best sentences.
_BEGINNING = 0.2
_RULES = 0.3
_ARTEFACTS = 0.25

# In characters.
_LOOKED_AT = 20_000  # of one message
_LONGEST_BEGINNING = 4_000
_LONGEST_SENTENCE = 320

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]?\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_TERM = re.compile(r"[^\W\d_]{3,40}")
_ARTEFACT = re.compile(r"[\w-]+[/._\\][\w./\\-]+|\b\w*\d\w*\b|`")
_RULE = re.compile(
    r"\b(?:must|mustn't|never|always|do not|don't (?!have|know|think|see|want|remember)|only use|make sure"
    r"|ensure|avoid|required?|under no|at least|at most|no more than|prefer|important|should not|shouldn't"
    r"|muss|müssen|darf|dürfen|nie|niemals|immer|nicht|nur|siempre|nunca|debes?|no (?:uses|hagas)"
    r"|toujours|jamais|doit|dois|il faut|sempre|mai|deve|никогда|всегда|нельзя|должен)\b"
    r"|必须|不要|不得|禁止|务必|总是|絶対|必ず|しないで|항상|절대",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided?|decision|chose|because|instead|the (?:problem|cause|reason|fix|solution)|fixed|found"
    r"|failed|passes|error|agreed?|confirmed?|todo|next step|conclusion|therefore|result|weil|entschieden"
    r"|deshalb)\b",
    re.IGNORECASE,
)

_BEGAN = "The user began with: "
_RULES_HEADING = "Rules of the user:"
_SAID_HEADING = "What was said:"


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    order: tuple[int, int]  # the message's number, and the place in it; what was told before has none
    speaker: str
    is_rule: bool

    def __str__(self) -> str:
        return f"[{self.order[0]} {self.speaker}] {self.text}" if self.speaker else self.text


class _Room:
    """Tokens that are left, and what has been taken for them."""

    def __init__(self, tokens: int, count: Count) -> None:
        self.left = tokens
        self._count = count

    def pay(self, text: str) -> bool:
        """Whether it was still affordable."""
        cost = self._count(text) + 1
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def choose(self, sentences: Sequence[_Sentence], most: int) -> list[_Sentence]:
        """The first of them, for at most so much. What is too long is passed over, not an end."""
        kept = self.left - min(most, self.left)
        self.left -= kept
        chosen = [each for each in sentences if self.left > 0 and self.pay(str(each))]
        self.left += kept
        return chosen


def extract(
    turns: Sequence[Turn],
    most_tokens: int,
    count: Count,
    *,
    first: int = 0,
    previous: str = "",
    artefacts: Index = NOTHING,
) -> str:
    """At most so many tokens, with an index of artefacts at the end: those given and what the turns add.

    `previous` is an earlier summary of what lies before the turns, of any kind and without its index. How the
    conversation began and its rules are taken from there; its other lines compete with the turns' sentences.
    """
    spoken = [utterance(turn.raw) for turn in turns]
    room = _Room(most_tokens, count)
    for heading in (_RULES_HEADING, _SAID_HEADING):
        room.pay(heading)
    began = _beginning(previous, spoken, int(most_tokens * _BEGINNING), count)
    room.pay(began)
    sentences = _distinct([*_told_before(previous), *_sentences(spoken, first)])
    rules = room.choose([each for each in sentences if each.is_rule], int(most_tokens * _RULES))
    touched = index(turns, artefacts).text(min(int(most_tokens * _ARTEFACTS), room.left), count)
    room.pay(touched)
    said = room.choose(_ranked(sentences, rules, first + len(turns)), room.left)
    return _fitting(began, rules, sorted(said, key=lambda each: each.order), touched, most_tokens, count)


def _fitting(
    began: str, rules: list[_Sentence], said: list[_Sentence], touched: str, most: int, count: Count
) -> str:
    """The whole may have a few tokens more than its pieces: then the last of what was said goes first."""
    while True:
        lines = [began] if began else []
        lines += [_RULES_HEADING, *(f"- {each.text}" for each in rules)] if rules else []
        lines += [_SAID_HEADING, *map(str, said)] if said else []
        text = with_index("\n".join(lines), touched).strip()
        if count(text) <= most:
            return text
        if said:
            said = said[: len(said) * 7 // 8]
        elif touched:
            touched = ""
        elif rules:
            rules = rules[: len(rules) * 7 // 8]
        elif began:
            began = began[: len(began) * 7 // 8].rstrip()
        else:
            return ""


def _beginning(previous: str, spoken: Sequence[Utterance], most: int, count: Count) -> str:
    lines = [line for line in previous.split("\n") if line.startswith(_BEGAN)]
    texts = [said.text for said in spoken if said.role == "user" and said.text.strip()]
    if not lines and (previous or not texts):
        return ""
    line = lines[0] if lines else _BEGAN + _one_line(texts[0], _LONGEST_BEGINNING)
    while count(line) > most and len(line) > len(_BEGAN):
        line = line[: len(line) * 7 // 8].rstrip() + "…"
    return line if len(line) > len(_BEGAN) else ""


def _one_line(text: str, longest: int) -> str:
    return " ".join(harmless(text[: 2 * longest]).split())[:longest]


def _told_before(previous: str) -> Iterator[_Sentence]:
    for place, line in enumerate(previous.split("\n")):
        text = _one_line(line.removeprefix("- "), _LONGEST_SENTENCE)
        if text and not text.startswith((_BEGAN, _RULES_HEADING, _SAID_HEADING)):
            said = text.startswith("[")
            yield _Sentence(text, (-1, place), "", not said and bool(_RULE.search(text)))


def _sentences(spoken: Sequence[Utterance], first: int) -> Iterator[_Sentence]:
    for number, said in enumerate(spoken, first):
        speaker = "result" if said.is_result else said.role or "somebody"
        text = without_middle(said.text, _LOOKED_AT, "\n…\n")
        for place, piece in enumerate(filter(None, _END_OF_SENTENCE.split(text))):
            sentence = _one_line(piece, _LONGEST_SENTENCE)
            if _TERM.search(sentence):
                is_rule = said.role == "user" and bool(_RULE.search(sentence))
                yield _Sentence(sentence, (number, place), speaker, is_rule)


def _distinct(sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """Of what was said several times the first."""
    found: dict[str, _Sentence] = {}
    for sentence in sentences:
        found.setdefault(sentence.text, sentence)
    return list(found.values())


def _ranked(sentences: Sequence[_Sentence], taken: Sequence[_Sentence], messages: int) -> list[_Sentence]:
    """The others, from the best on."""
    terms = [set(_TERM.findall(each.text.lower())) for each in sentences]
    frequency = Counter(term for own in terms for term in own)
    known = {each.order for each in taken}
    scores = {
        each.order: _score(each, own, frequency, messages)
        for each, own in zip(sentences, terms, strict=True)
        if each.order not in known
    }
    rest = [each for each in sentences if each.order in scores]
    return sorted(rest, key=lambda each: (-scores[each.order], each.order))


def _score(sentence: _Sentence, terms: set[str], frequency: Counter[str], messages: int) -> float:
    """What is often spoken of, decides something, names things, comes late, opens a message."""
    number, place = sentence.order
    common = sum(math.log(frequency[term]) for term in terms) / (len(terms) + 4)
    return (
        common
        + 0.6 * bool(_DECISION.search(sentence.text))
        + 0.2 * min(4, sum(1 for _ in _ARTEFACT.finditer(sentence.text)))
        + 0.8 * max(number, 0) / max(messages, 1)
        + 0.3 * (place == 0)
        + _WEIGHT_OF_SPEAKERS.get(sentence.speaker, 0.0)
        + 1.0 * sentence.is_rule
    )


# What a user says weighs most, and what was told before has been weighed already.
_WEIGHT_OF_SPEAKERS = {"": 1.0, "user": 0.6, "assistant": 0.2, "result": -0.4}
