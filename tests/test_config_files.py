"""Reading a YAML file: lines, duplicates, and everything that is not a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config_files import Entry, SettingsError, config_dir, file_layer, flag, read, variable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tailfold.yaml"


def problem_of(path: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        read(path)
    [problem] = caught.value.problems
    return problem


def test_values_are_read_by_dotted_key_with_their_lines(file: Path) -> None:
    file.write_text("port: 1\n\ntimeouts:\n  # a comment\n  idle: 2.5\nadmin:\n  hosts: [a, b]\n")
    assert read(file) == {
        "port": Entry(1, 1),
        "timeouts.idle": Entry(2.5, 5),
        "admin.hosts": Entry(["a", "b"], 7),
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_an_empty_file_sets_nothing(file: Path, text: str) -> None:
    file.write_text(text)
    assert read(file) == {}


def test_off_is_a_word_and_true_is_a_boolean(file: Path) -> None:
    file.write_text("mode: off\nusage: {ask: true}\n")
    assert {key: entry.value for key, entry in read(file).items()} == {"mode": "off", "usage.ask": True}


@pytest.mark.parametrize(
    "text", ["port: 1\nport: 2\n", "log: {level: info}\nlog: {format: json}\n", "a:\n  b: 1\na.b: 2\n"]
)
def test_a_key_given_twice_is_refused_with_both_lines(file: Path, text: str) -> None:
    file.write_text(text)
    assert " is given twice (first in line " in problem_of(file)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a\n- b\n", "found a list"),
        ("just words\n", "found a single value"),
        ("? [a]\n: b\n", "line 1: a key must be plain text, found a list"),
        ("port: 1\n  host: x\n", "line 2, column"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: 2026-13-45\n", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("port: [1\n  x", "expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_what_is_not_a_mapping_is_refused_and_told_where(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    problem = problem_of(file)
    assert problem.startswith(f"file {file}")
    assert complaint in problem


@pytest.mark.parametrize("value", ["*s3cret", "!s3cret", "!!s3cret x", "@s3cret", '"s3cret', "{s3cret"])
def test_an_unquoted_secret_is_not_repeated(file: Path, value: str) -> None:
    file.write_text(f"admin:\n  token: {value}\n")
    assert "s3cret" not in problem_of(file)


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    file.write_bytes(b"port: \xff\xfe\xff")
    assert problem_of(file) == f"file {file}: not valid YAML: not UTF-8 text"


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert problem_of(missing) == f"file {missing}: cannot be read: No such file or directory"
    assert problem_of(tmp_path) == f"file {tmp_path}: cannot be read: Is a directory"


def test_a_file_that_refers_to_itself_is_refused(file: Path) -> None:
    file.write_text("a: &a\n  b: *a\n")
    assert "recursive" in problem_of(file)


def test_a_key_without_its_section_is_recognised(file: Path) -> None:
    file.write_text("first_byte: 3\n")
    layer = file_layer(file, ["port", "timeouts.first_byte"], ["timeouts"])
    assert layer.problems == [
        f"file {file}, line 1: first_byte: unknown setting; the nearest known one is timeouts.first_byte"
    ]


def test_a_section_with_all_its_lines_commented_out_is_fine(file: Path) -> None:
    file.write_text("timeouts:\n  # idle: 3\n")
    assert not file_layer(file, ["timeouts.idle"], ["timeouts"]).problems


def test_a_key_has_one_spelling_as_a_variable_and_one_as_a_flag() -> None:
    assert variable("timeouts.first_byte") == "TAILFOLD_TIMEOUTS__FIRST_BYTE"
    assert flag("log.level") == "--log-level"


def test_the_shipped_configuration_is_found() -> None:
    assert (config_dir() / "default.yaml").is_file()
