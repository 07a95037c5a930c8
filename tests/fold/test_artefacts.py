from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fold.artefacts import (
    HEADING,
    MOST,
    MOST_OF_A_RESULT,
    NOTHING,
    Kind,
    index,
    outcome,
    parted,
    survivors,
    with_index,
)
from proxy.fold.history import Turn
from tests.fold.words import assistant, calls, count, recorded, result, user

EVERYTHING = 10**9


def found(text: str, kind: Kind) -> list[str]:
    return list(index([user(text)]).kinds[kind])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            Kind.FILE,
            [
                "README.md",
                "src/app/main.py",
                "./run.sh",
                "/etc/passwd",
                "C:\\Users\\a.txt",
                "a/b/c",
                "~/.env",
            ],
        ),
        (Kind.URL, ["https://example.com/a?b=1&c=2", "postgres://db:5432/x", "http://localhost:8080"]),
        (
            Kind.IDENTIFIER,
            ["JIRA-123", "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "sara_doe_496", "FQ8APE", "e3b0c44298fc"],
        ),
        (Kind.NAME, ["get_user_details", "getUserName", "UserProfile"]),
        (Kind.NUMBER, ["$5,000", "95%", "200ms", "2024-03-15", "09:00", "1,234,567", "2024-05-15T15:00:00"]),
    ],
)
def test_every_kind_is_found_in_a_sentence(kind: Kind, words: list[str]) -> None:
    for word in words:
        assert found(f"Please look at {word}, and tell.", kind) == [word]
        assert found(f"(see `{word}`)", kind) == [word]


@pytest.mark.parametrize(
    "text", ["and/or", "e.g. this", "application/json", "30-minute", "the 3rd", "v1", "</note>", "a 7"]
)
def test_plain_words_are_no_artefacts(text: str) -> None:
    assert index([user(text)]) == NOTHING


def test_a_line_number_is_no_part_of_a_file_name() -> None:
    assert found("src/a.py:12:4: error in b.py:7", Kind.FILE) == ["b.py", "src/a.py"]


def test_the_newest_comes_first_and_a_second_mention_makes_new() -> None:
    turns = [user("a.py b.py"), assistant("c.py"), user("a.py")]
    assert list(index(turns).kinds[Kind.FILE]) == ["a.py", "c.py", "b.py"]


def test_a_call_is_told_with_its_last_outcome() -> None:
    turns = [
        *(calls("run", '{"cmd":"make"}', "1"), result("Error: no rule\nmore", "1")),
        *(calls("read", '{"path":"a.py"}', "2"), result("", "2")),
        *(calls("run", '{"cmd":"make"}', "3"), result("all built", "3")),
        calls("finish", "{}", "4"),
    ]
    assert index(turns).kinds[Kind.CALL] == {
        "finish({})": "no result",
        'run({"cmd":"make"})': "ok: all built",
        'read({"path":"a.py"})': "ok",
    }


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("3 passed", "ok: 3 passed"),
        ("", "ok"),
        ("  \n done \n more", "ok: done"),
        ("Traceback (most recent call last):\n x", "error: Traceback (most recent call last):"),
        ("ValueError: bad", "error: ValueError: bad"),
        ("Error: no such user", "error: Error: no such user"),
        ('{"error": "gone"}', 'error: {"error": "gone"}'),
        ('{"error": null, "ok": true}', 'ok: {"error": null, "ok": true}'),
        ("out\n[Command finished with exit code 1]", "error: out"),
        ("out\n[Command finished with exit code 0]", "ok: out"),
        ("a → b", "ok: a -> b"),
        ("errors are values", "ok: errors are values"),
    ],
)
def test_an_outcome_is_well_or_not_and_the_first_line(text: str, ending: str) -> None:
    assert outcome(text) == ending


def test_commands_are_lines_after_a_prompt_or_in_a_shell_block() -> None:
    text = "Run:\n$ make check\n```bash\n# not this\npip install x\n\n```\n```python\nprint()\n```\nbye"
    assert found(text, Kind.COMMAND) == ["pip install x", "make check"]


def test_a_long_listing_does_not_drive_out_what_was_opened() -> None:
    listing = result(" ".join(f"dir/sub/file{number}.py" for number in range(1000)))
    files = index([user("open main.py"), calls("ls", "{}"), listing]).kinds[Kind.FILE]
    assert len(files) == MOST_OF_A_RESULT + 1
    assert "main.py" in files


def test_of_each_kind_only_so_many_are_remembered() -> None:
    files = list(index([user(f"file{number}.py") for number in range(1000)]).kinds[Kind.FILE])
    assert len(files) == MOST
    assert files[0] == "file999.py"


def test_within_a_budget_the_newest_of_every_kind_comes_first() -> None:
    turns = [user(" ".join(f"file{number}.py KEY-{number}00" for number in range(100)))]
    text = index(turns).text(60, count)
    assert count(text) <= 60
    assert "file99.py" in text
    assert "KEY-9900" in text
    assert "file0.py" not in text


@pytest.mark.parametrize("most", [-1, 0, 3, 12])
def test_without_room_there_is_no_index(most: int) -> None:
    assert index([user("a.py")]).text(most, count) == ""


words = st.sampled_from(
    [
        *("a.py", "src/b/c.ts", "https://x.example/y", "KEY-123", "some_name_here", "$4,000", "$ make\n"),
        *(HEADING, "Files: fake.py", "\nCall: evil() → ok\n", "→", "⟦", "<|im_start|>", "é", "\u2028"),
        *("plain", "```sh\nls -l\n```\n", f"\n{HEADING}\n"),
    ]
)
texts = st.lists(words, max_size=8).map(" ".join)
groups = st.one_of(
    texts.map(lambda text: [user(text)]),
    texts.map(lambda text: [assistant(text)]),
    st.tuples(texts, texts).map(lambda pair: [calls("run", pair[0]), result(pair[1])]),
)
histories = st.lists(groups, max_size=6)


def flat(history: list[list[Turn]]) -> list[Turn]:
    return [turn for group in history for turn in group]


@given(histories, histories)
def test_made_in_steps_it_is_the_same_as_made_at_once(
    first: list[list[Turn]], then: list[list[Turn]]
) -> None:
    assert index(flat(then), index(flat(first))) == index(flat(first + then))


@given(histories, texts)
def test_it_is_read_again_from_the_text_it_was_written_in(history: list[list[Turn]], summary: str) -> None:
    made = index(flat(history))
    text = with_index(summary, made.text(EVERYTHING, count))
    told, again = parted(text)
    assert again == made
    assert told == summary.replace(HEADING, "").rstrip() or made == NOTHING


@given(histories, st.integers(0, 200))
def test_it_never_takes_more_than_its_budget(history: list[list[Turn]], most: int) -> None:
    text = index(flat(history)).text(most, count)
    assert count(text) <= most
    assert index(flat(history)).text(most, count) == text


@given(st.text())
def test_any_text_can_be_read_for_an_index(text: str) -> None:
    parted(text)
    parted(with_index(text, f"{HEADING}\n{text}"))


def test_survivors_are_what_is_still_there() -> None:
    folded = [user("fix src/a.py and b.py for KEY-100 at https://x.example/y"), result("costs 1,200")]
    everything = "In other/a.py and b.py, KEY-100 (https://x.example/y) costs 1200."
    assert survivors(everything, folded) == 1.0
    assert survivors("a.py was fixed", folded) == 1 / 5
    assert survivors("nothing", folded) == 0.0
    assert survivors("", [user("hello there")]) == 1.0


def test_lines_and_variables_of_a_listing_are_no_facts() -> None:
    assert survivors("main.py", [result("main.py\n  101  my_local_name = 7\n  102  otherName()")]) == 1.0


def test_arguments_are_read_without_their_escapes() -> None:
    folded = [calls("write", '{"text":"one\\nmain.py\\n\\"x_y_z_name\\""}')]
    assert survivors("main.py x_y_z_name", folded) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "/" * 10**6,
            "a/" * 10**6,
            "a_" * 10**6,
            "http://" * 10**5,
            "a1-" * 10**6,
            "1." * 10**6,
            "\\" * 10**6,
        ),
        *("Aa" * 10**6, "```bash\n" * 10**5, ":1" * 10**6, "a+-." * 10**6, "1,111" * 10**5, "→ " * 10**6),
        *(f"{word}{end} " * 5000 for word in ("-a" * 90, "Aa" * 90, "a.b" * 60) for end in "1-!"),
        " ".join(f"a{number}_b" for number in range(10**5)),
    ],
)
def test_megabytes_are_looked_through_in_a_moment(text: str) -> None:
    began = thread_time()
    index([user(text), calls("f", text), result(text)]).text(1000, count)
    survivors(text, [user(text)])
    assert thread_time() - began < 10


def test_real_conversations_keep_what_they_touched() -> None:
    for file, share in (("tau2.jsonl", 0.2), ("tau-bench.jsonl", 0.3)):
        kept = []
        for turns in recorded(file, 20):
            made = index(turns)
            kept.append(survivors(made.text(2000, count), turns))
            assert parted(with_index("s", made.text(EVERYTHING, count))) == ("s", made)
        assert sum(kept) / len(kept) >= share
