"""What a conversation has touched, found without a model: files, addresses, identifiers, commands, calls.

It stands beside a summary because summaries lose these first. Newest first, and bounded: of what is old and
never named again nothing remains in the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice, zip_longest

from proxy.fold.history import Turn
from proxy.fold.shrink import without_middle
from proxy.fold.transcript import harmless
from proxy.fold.utterance import Call, Utterance, utterance

HEADING = "Artefacts (found without a model, newest first):"

# Of each kind at most so many are remembered, and so many taken from one tool's result: a list of all files
# says less than the few that were opened.
MOST = 200
MOST_OF_A_RESULT = 30

# In characters. Of a text the ends are looked at: a log names there what it is about.
_LOOKED_AT = 200_000
_LONGEST_ITEM = 200
_LONGEST_CALL = 120
_LONGEST_OUTCOME = 80

Count = Callable[[str], int]


class Kind(StrEnum):
    """In the order in which they are told."""

    FILE = "Files"
    URL = "URLs"
    IDENTIFIER = "Identifiers"
    NUMBER = "Numbers"
    NAME = "Names"
    COMMAND = "Command"
    CALL = "Call"


# They may have spaces in them, so each has a line of its own.
_IN_LINES = frozenset({Kind.COMMAND, Kind.CALL})
_IN_RESULTS = frozenset({Kind.FILE, Kind.URL, Kind.IDENTIFIER})

Items = Mapping[str, str]  # newest first: what it is, and of a call how it ended


@dataclass(frozen=True, slots=True)
class Index:
    kinds: Mapping[Kind, Items]

    def text(self, most_tokens: int, count: Count) -> str:
        """As much of it as fits, the newest of every kind before the second newest of any."""
        chosen = list(self._affordable(most_tokens - count(HEADING), count))
        text = _told(chosen)
        while chosen and count(text) > most_tokens:
            # The whole may have a few tokens more than its pieces.
            del chosen[-1 - len(chosen) // 16 :]
            text = _told(chosen)
        return text

    def _affordable(self, budget: int, count: Count) -> Iterator[tuple[Kind, str]]:
        columns = [
            [(kind, _line(kind, *item)) for item in items.items()] for kind, items in self.kinds.items()
        ]
        for kind, line in filter(None, chain.from_iterable(zip_longest(*columns))):
            cost = count(f"\n{kind}: {line}" if kind in _IN_LINES else f" {line}") + 1
            if cost <= budget:
                budget -= cost
                yield kind, line


NOTHING = Index({kind: {} for kind in Kind})


def index(turns: Iterable[Turn], previous: Index = NOTHING) -> Index:
    """The previous one and what these turns add: the same as if it were made of all at once."""
    latest: dict[Kind, dict[str, str]] = {
        kind: dict(reversed([*previous.kinds.get(kind, {}).items()])) for kind in Kind
    }
    for kind, item, outcome in _mentioned(turns):
        latest[kind].pop(item, None)
        latest[kind][item] = outcome
    return Index({kind: dict(islice(reversed(items.items()), MOST)) for kind, items in latest.items()})


def with_index(summary: str, index_text: str) -> str:
    """One text of both, from which `parted` has them again."""
    said = summary.replace(HEADING, "")
    return f"{said}\n\n{index_text}" if index_text else said


def parted(text: str) -> tuple[str, Index]:
    summary, found, index_text = text.rpartition(f"\n{HEADING}\n")
    return (summary.rstrip(), _read(index_text)) if found else (text, NOTHING)


def survivors(text: str, folded: Iterable[Turn]) -> float:
    """The share of file names, identifiers, numbers and addresses in the folded turns that the text has.

    Of a tool's result neither plain numbers nor names count: in a listing they are lines and variables.
    """
    there = set(_facts(text))
    wanted: set[tuple[Kind, str]] = set()
    for turn in folded:
        said = utterance(turn.raw)
        for part in _parts(said):
            wanted.update(_facts(part, of_a_result=said.is_result))
    return len(wanted & there) / len(wanted) if wanted else 1.0


def _line(kind: Kind, item: str, outcome: str) -> str:
    return f"{item} → {outcome}" if kind is Kind.CALL else item


def _told(chosen: Sequence[tuple[Kind, str]]) -> str:
    lines = [HEADING] if chosen else []
    for kind in Kind:
        items = [line for own, line in chosen if own is kind]
        if kind in _IN_LINES:
            lines += [f"{kind}: {item}" for item in items]
        elif items:
            lines.append(f"{kind}: {' '.join(items)}")
    return "\n".join(lines)


def _read(text: str) -> Index:
    kinds: dict[Kind, dict[str, str]] = {kind: {} for kind in Kind}
    for line in text.split("\n"):
        name, _, rest = line.partition(": ")
        match _KINDS.get(name):
            case None:
                continue
            case Kind.CALL:
                call, _, outcome = rest.rpartition(" → ")
                kinds[Kind.CALL][call] = outcome
            case Kind.COMMAND:
                kinds[Kind.COMMAND][rest] = ""
            case kind:
                kinds[kind] |= dict.fromkeys(rest.split(), "")
    return Index(kinds)


_KINDS = {kind.value: kind for kind in Kind}


# What is mentioned, oldest first.


def _mentioned(turns: Iterable[Turn]) -> Iterator[tuple[Kind, str, str]]:
    pending: dict[str, str] = {}
    for turn in turns:
        said = utterance(turn.raw)
        for call in said.calls:
            pending[call.id] = _brief(call)
            yield Kind.CALL, pending[call.id], "no result"
        if said.is_result:
            if called := pending.get(said.answers):
                yield Kind.CALL, called, outcome(said.text)
            yield from _in_a_result(said.text)
        else:
            yield from _in_talk(said)


def _in_talk(said: Utterance) -> Iterator[tuple[Kind, str, str]]:
    for text in _parts(said):
        for kind, item in _items(text):
            # A model mentions numbers by the dozen; those that a user gives are mostly meant.
            if kind is not Kind.NUMBER or (said.role == "user" and not item.isdigit()):
                yield kind, item, ""
    for command in _commands(said.text):
        yield Kind.COMMAND, command, ""


def _in_a_result(text: str) -> Iterator[tuple[Kind, str, str]]:
    taken = dict.fromkeys(_IN_RESULTS, 0)
    for kind, item in _items(text):
        if kind in taken and taken[kind] < MOST_OF_A_RESULT:
            taken[kind] += 1
            yield kind, item, ""


def _parts(said: Utterance) -> Iterator[str]:
    yield said.text
    for call in said.calls:
        # Arguments are JSON: its escapes would stick to the words.
        yield call.arguments.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _commands(text: str) -> Iterator[str]:
    """Lines after a prompt, and in blocks that are said to be a shell's."""
    in_shell = False
    for line in text[:_LOOKED_AT].split("\n"):
        if line.startswith("```"):
            in_shell = line[3:].strip().lower() in _SHELLS
        elif (line.startswith("$ ") or (in_shell and not line.startswith("#"))) and (
            command := _one_line(line.removeprefix("$ "), _LONGEST_CALL)
        ):
            yield command


_SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal", "powershell"})


def _brief(call: Call) -> str:
    return _one_line(str(call), _LONGEST_CALL)


def outcome(result: str) -> str:
    """How a call ended: well or not, and the first line of what came back."""
    first = _one_line(result.strip().partition("\n")[0], _LONGEST_OUTCOME).replace("→", "->")
    head, tail = result[:400].lstrip(), result[-400:]
    failed = _ERROR.match(head) or _FAILED.search(head) or _FAILED.search(tail)
    ending = "error" if failed else "ok"
    return f"{ending}: {first}" if first else ending


_ERROR = re.compile(
    r"(?:[\w.]{0,60}(?:error|exception)\b|traceback|fatal|failed|permission denied|command not found)"
    r"|[^\w\"]{0,3}(?:error|exception)\W",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"exit(?:ed)?(?: with)?(?: code| status)?[ :=]{1,3}-?[1-9]|\"(?:is_?error|isError)\": ?true"
    r"|\"(?:ok|success)\": ?false|\"error\": ?[\"{]",
    re.IGNORECASE,
)


def _one_line(text: str, longest: int) -> str:
    """Told in one line, and with nothing in it that acts."""
    return " ".join(without_middle(harmless(text[: 8 * longest]), longest, " … ").split())


# What a word is.

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'`<>\\|{}\[\]⟦⟧]{2,500}+", re.IGNORECASE)
# A comma only where it parts the thousands of a number.
_WORD = re.compile(r"[\w./\\:@#$%~+-]++(?:(?<=\d),\d{3}(?!\d))*+%?")
_EDGES = ".:+\\@~-"
_EXTENSIONS = (
    "py pyi ipynb js jsx ts tsx mjs cjs vue svelte html htm css scss less json jsonl yaml yml toml ini cfg"
    " conf env lock md mdx rst txt log csv tsv parquet xml svg png jpg jpeg gif webp pdf doc docx xls xlsx"
    " ppt pptx zip tar gz tgz bz2 xz whl jar c h cc cpp cxx hpp cs go rs rb php java kt kts scala swift mm pl"
    " pm r jl lua ex exs erl hs clj ml fs sql sqlite db sh bash zsh fish ps1 bat cmd tf hcl proto graphql"
    " gradle properties plist patch diff snap bin so dll exe wasm onnx gguf pt ckpt mp3 mp4 wav"
)
_FILE = re.compile(rf"[\w@~+.-]*[\w@~+-]\.(?:{_EXTENSIONS.replace(' ', '|')})", re.IGNORECASE)
# From a root, or of three names at least: two are more often a choice (and/or) than a path.
_PATH = re.compile(
    r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w@+.~-]+(?:[/\\][\w@+.~-]+)*|[\w@+.~-]+(?:[/\\][\w@+.~-]+){2,}"
)
_AT_A_LINE = re.compile(r"(?::\d+){1,2}$")
# Amounts, dates, times, versions, with what they are measured in.
_NUMBER = re.compile(r"[$€£]?\d[\d.,:/-]*(?:T[\d:.]+|e[+-]?\d+)?%?[A-Za-z]{0,3}")
# Letters and several digits in one: tickets, hashes, keys; but no "30-minute". In capitals one digit will do.
_CODE = re.compile(
    r"#?(?!\d+(?:-[a-z]+)+$)(?=(?:[^\W\d]|-)*\d[\w-]*\d)(?=[\d_-]*[^\W\d_])\w[\w-]{3,}"
    r"|(?=[A-Z]*\d)[A-Z0-9]{5,}"
)
_NAME = re.compile(r"[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w+|(?:[A-Z][a-z0-9]+){2,}")
_SHORTEST_NAME = 6


def _items(text: str) -> Iterator[tuple[Kind, str]]:
    """Each once, in the order in which they are first mentioned."""
    text = without_middle(text, _LOOKED_AT, " … ")
    for word in dict.fromkeys(_URL.findall(text)):
        yield Kind.URL, word[:_LONGEST_ITEM].rstrip(".,;:!?)*")
    words = _WORD.findall(_URL.sub(" ", text).replace("</", " "))  # the end of a tag is no path
    for word in dict.fromkeys(words):
        if 1 < len(word) <= _LONGEST_ITEM and (item := _classified(word)):
            yield item


@lru_cache(maxsize=4096)
def _classified(word: str) -> tuple[Kind, str] | None:
    word = word.rstrip(_EDGES) if word[0] in "./~" else word.strip(_EDGES)
    if _NUMBER.fullmatch(word):
        return (Kind.NUMBER, word) if sum(map(str.isdigit, word)) > 1 else None
    word = _AT_A_LINE.sub("", word)
    if _PATH.fullmatch(word) or _FILE.fullmatch(_last_name(word)):
        return Kind.FILE, word
    if _CODE.fullmatch(word):
        return Kind.IDENTIFIER, word
    return (Kind.NAME, word) if len(word) >= _SHORTEST_NAME and _NAME.fullmatch(word) else None


def _last_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _facts(text: str, *, of_a_result: bool = False) -> Iterator[tuple[Kind, str]]:
    """Artefacts as they are compared: a file by its name, wherever it lies; a number without its commas."""
    for kind, item in _items(text):
        if of_a_result and (kind is Kind.NAME or item.isdigit()):
            continue
        match kind:
            case Kind.FILE:
                yield kind, _last_name(item)
            case Kind.NUMBER:
                yield kind, item.replace(",", "").strip("$€£.:-/")
            case _:
                yield kind, item
