"""Where settings are written: flags, environment variables and a YAML file, each a layer of dotted keys.

Which keys exist and what their values may be is the model's business (`proxy.settings`); here every key
and every complaint gets its place: the flag, the variable, or the file and its line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

PREFIX = "TAILFOLD_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"

_BOOL = "tag:yaml.org,2002:bool"
_NULL = "tag:yaml.org,2002:null"


class SettingsError(Exception):
    """Everything that is wrong with the settings, each problem on one line that names its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Layer:
    """One source of settings by dotted key.

    `origin` names the source of a key for people, `place` the very spot to look at when it is wrong.
    """

    values: Mapping[str, object]
    origin: Callable[[str], str]
    place: Callable[[str], str]
    problems: Sequence[str] = ()


def variable(key: str) -> str:
    return PREFIX + key.upper().replace(".", "__")


def flag(key: str) -> str:
    return "--" + key.replace(".", "-").replace("_", "-")


def config_dir() -> Path:
    """The folder of shipped configuration: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "config"
    return installed if installed.is_dir() else package.parent / "config"


def config_path(flags: Mapping[str, object], environ: Mapping[str, str]) -> Path | None:
    path = flags.get("config") or environ.get(CONFIG_VARIABLE)
    return Path(str(path)) if path else None


# The three kinds of layers, and one for whoever has a single value to add.


def flag_layer(flags: Mapping[str, object]) -> Layer:
    given = {key: value for key, value in flags.items() if value is not None and key != "config"}

    def origin(key: str) -> str:
        return f"flag {flag(key)}"

    return Layer(given, origin, origin)


def environment_layer(environ: Mapping[str, str], keys: Collection[str]) -> Layer:
    """Variables that are set but empty count as not set, as compose files and CI systems produce them."""
    known = {variable(key): key for key in keys}
    problems = [
        f"environment {name}: {_unknown(name, [*known, CONFIG_VARIABLE])}"
        for name in environ
        if name.startswith(PREFIX) and name not in known and name != CONFIG_VARIABLE
    ]

    def origin(key: str) -> str:
        return f"environment {variable(key)}"

    values = {key: environ[name] for name, key in known.items() if environ.get(name)}
    return Layer(values, origin, origin, problems)


def file_layer(path: Path, keys: Collection[str], sections: Collection[str]) -> Layer:
    entries = read(path, keys)

    def place(key: str) -> str:
        return f"file {path}, line {entries[key].line}: {key}"

    problems = [
        f"{place(key)}: {problem}"
        for key, entry in entries.items()
        if (problem := _misplaced(key, entry, keys, sections))
    ]
    values = {key: entry.value for key, entry in entries.items() if key in keys}
    return Layer(values, lambda key: f"file {path}", place, problems)


def single_layer(key: str, value: object, origin: str) -> Layer:
    return Layer({key: value}, lambda key: origin, lambda key: origin)


def _misplaced(key: str, entry: Entry, keys: Collection[str], sections: Collection[str]) -> str | None:
    if key in keys:
        return None
    if key not in sections:
        return _unknown(key, [*keys, *sections])
    if entry.value is None:  # a section whose lines are all commented out
        return None
    members = ", ".join(known.partition(".")[2] for known in keys if known.startswith(f"{key}."))
    return f"should be a section with {members}"


def _unknown(name: str, known: Collection[str]) -> str:
    nearest = max(known, key=lambda candidate: _likeness(name.lower(), candidate.lower()))
    return f"unknown setting; the nearest known one is {nearest}"


def _likeness(name: str, known: str) -> float:
    """How alike two names are; a key without its section is still nearly the same word."""
    whole = difflib.SequenceMatcher(None, name, known).ratio()
    last = difflib.SequenceMatcher(None, name, known.rpartition(".")[2]).ratio()
    return max(whole, 0.9 * last)


# The YAML file.


@dataclass(frozen=True)
class Entry:
    value: object
    line: int


class _Loader(yaml.SafeLoader):
    """Safe, and with YAML 1.2's booleans: `mode: off` is the word off, not False."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def read(path: Path, keys: Collection[str] = ()) -> dict[str, Entry]:
    """The file's values by dotted key. Only one level of sections exists, so only one is opened; what is a
    setting of its own stays whole.
    """
    try:
        loader = _Loader(_bytes_of(path))
        try:
            return _entries(loader, path, keys)
        finally:
            loader.dispose()
    # Causes are cut off: a traceback would show the lines of the file, and a token may stand in one.
    except yaml.MarkedYAMLError as error:
        raise _refused(f"{path}{_position(error)}: not valid YAML: {_problem(error)}") from None
    except yaml.YAMLError:  # the only one without a position: bytes that are no text
        raise _refused(f"{path}: not valid YAML: not UTF-8 text") from None
    except ValueError:  # a value of a known form that does not exist, such as the date 2026-13-45
        raise _refused(f"{path}: not valid YAML: a value looks like a date or number but is none") from None
    except RecursionError:
        raise _refused(f"{path}: not valid YAML: nested too deeply") from None


def _refused(problem: str) -> SettingsError:
    return SettingsError([f"file {problem}"])


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _refused(f"{path}: cannot be read: {error.strerror or error}") from error


def _entries(loader: _Loader, path: Path, keys: Collection[str]) -> dict[str, Entry]:
    root = loader.get_single_node()
    if root is None or root.tag == _NULL:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise _refused(f"{path}: expected settings as `key: value`, found {_kind(root)}")
    entries: dict[str, Entry] = {}
    for key, value, line in _leaves(root, path, keys):
        if (first := entries.get(key)) is not None:
            raise _refused(f"{path}, line {line}: {key} is given twice (first in line {first.line})")
        entries[key] = Entry(loader.construct_object(value, deep=True), line)
    return entries


def _leaves(
    root: yaml.MappingNode, path: Path, whole: Collection[str]
) -> Iterator[tuple[str, yaml.Node, int]]:
    sections: dict[str, int] = {}
    for name, value, line in _pairs(root, path):
        if not isinstance(value, yaml.MappingNode) or name in whole:
            _refuse_twins(value, name, path)
            yield name, value, line
            continue
        if (first := sections.setdefault(name, line)) != line:
            raise _refused(f"{path}, line {line}: {name} is given twice (first in line {first})")
        for inner, leaf, inner_line in _pairs(value, path):
            yield f"{name}.{inner}", leaf, inner_line


def _refuse_twins(node: yaml.Node, name: str, path: Path) -> None:
    """Inside a value that stays whole YAML would let the last of two equal keys win, without a word."""
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value, line in _pairs(node, path):
        if (first := lines.setdefault(key, line)) != line:
            raise _refused(f"{path}, line {line}: {name}.{key} is given twice (first in line {first})")
        _refuse_twins(value, f"{name}.{key}", path)


def _pairs(mapping: yaml.MappingNode, path: Path) -> Iterator[tuple[str, yaml.Node, int]]:
    for key, value in mapping.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _refused(f"{path}, line {line}: a key must be plain text, found {_kind(key)}")
        yield key.value, value, line


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a single value"


def _position(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


_PYYAMLS_OWN = re.compile(r"\W|<[a-z ]+>")


def _problem(error: yaml.MarkedYAMLError) -> str:
    """PyYAML quotes what it stumbled over, which may be an unquoted secret: name the cause instead."""
    problem = error.problem or "unreadable"
    if "undefined alias" in problem:
        return "a value that begins with * needs quotes"
    if "tag" in problem:
        return "a value that begins with ! needs quotes"
    # Of what stands in quotes, punctuation and <names> are PyYAML's own; the rest is the file's.
    return re.sub(
        r"'([^']*)'", lambda quoted: quoted[0] if _PYYAMLS_OWN.fullmatch(quoted[1]) else "it", problem
    )
