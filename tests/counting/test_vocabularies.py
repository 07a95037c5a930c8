from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from proxy.counting import vocabularies
from proxy.counting.vocabularies import VocabularyUnavailable, bundled_folder, known, load

ROOT = Path(__file__).parents[2]
NAMES = ("o200k_base", "cl100k_base")
FILES = {
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}


def said_by(program: str, **environment: str) -> str:
    """What a fresh interpreter prints: nothing that the tests have imported is there yet."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_they_are_what_tiktoken_itself_would_load(tmp_path: Path) -> None:
    cache = shutil.copytree(bundled_folder(), tmp_path / "cache")
    compare = """
        import tiktoken
        from proxy.counting import vocabularies

        for name in ("o200k_base", "cl100k_base"):
            ours, theirs = vocabularies.load(name), tiktoken.get_encoding(name)
            print(ours._pat_str == theirs._pat_str, ours.token_byte_values() == theirs.token_byte_values())
            ranks = theirs._mergeable_ranks.items()
            print(all(ours.decode_single_token_bytes(rank) == token for token, rank in ranks))
    """
    assert said_by(compare, TIKTOKEN_CACHE_DIR=str(cache)).split() == ["True"] * 6


def test_a_vocabulary_is_held_in_memory_once() -> None:
    assert sys.getsizeof(load("cl100k_base")._mergeable_ranks) < 1_000


def test_loading_and_counting_need_no_network_and_no_litellm() -> None:
    count_without_sockets = """
        import sys

        def refuse(event, arguments):
            if event.startswith(("socket.", "urllib.")):
                raise OSError("there is no network")

        sys.addaudithook(refuse)

        from proxy.counting.tokenizer import Encodings

        encodings = Encodings()
        print([encodings.load(name).count("Hello, world!") for name in ("o200k_base", "cl100k_base")])
        print(sorted({"litellm", "requests", "aiohttp"} & set(sys.modules)))
    """
    # Not even a folder that tiktoken would look into first can change it.
    said = said_by(count_without_sockets, TIKTOKEN_CACHE_DIR="/nonexistent")
    assert said.splitlines() == ["[4, 4]", "[]"]


@pytest.mark.parametrize("absent", ["litellm", "tiktoken"])
def test_without_a_dependency_they_are_unavailable(absent: str) -> None:
    load_without = f"""
        import sys
        sys.modules["{absent}"] = None

        from proxy.counting.vocabularies import VocabularyUnavailable, load

        try:
            load("o200k_base")
        except VocabularyUnavailable as failure:
            print(failure)
    """
    assert absent in said_by(load_without)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_said_to_be_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(VocabularyUnavailable, match=f"{name} cannot be read: No such file"):
        load(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_folders_place_is_no_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(VocabularyUnavailable, match="Not a directory"):
        load("o200k_base", tmp_path / "file")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["a byte", "cut short", "emptied"])
def test_a_damaged_file_is_refused_and_left_as_it_is(name: str, damage: str, tmp_path: Path) -> None:
    whole = (bundled_folder() / FILES[name]).read_bytes()
    damaged = {"a byte": whole[:-2] + b"0\n", "cut short": whole[: len(whole) // 2], "emptied": b""}[damage]
    file = tmp_path / FILES[name]
    file.write_bytes(damaged)
    with pytest.raises(VocabularyUnavailable, match=f"{name} is damaged"):
        load(name, tmp_path)
    assert file.read_bytes() == damaged


@pytest.mark.parametrize(
    ("asked", "counted_with"),
    [
        ("o200k_base", "o200k_base"),
        ("cl100k_base", "cl100k_base"),
        ("p50k_base", vocabularies.DEFAULT),
        ("", vocabularies.DEFAULT),
    ],
)
def test_an_unknown_name_is_counted_with_the_default(asked: str, counted_with: str) -> None:
    assert known(asked) == counted_with
