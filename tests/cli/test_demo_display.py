from __future__ import annotations

from proxy.cli.demo_display import Display
from proxy.cli.demo_figures import Step, Totals, Turn

PLAIN = Display(window=1000, turns=3, colour=False)


def turn(received: int, sent: int, *actions: str, fold: str | None = None, refused: bool = False) -> Turn:
    return Turn(7, (Step(received, sent, 500, actions, 12 if fold else 0, fold, refused=refused),))


def test_a_bar_shows_what_was_sent_and_what_was_left_out_of_it() -> None:
    line = PLAIN.line(turn(750, 250, "fold", fold="f1"))
    bar = "#" * 12 + "-" * 11 + "|" + "-" * 12 + "." * 12
    assert line == f"   7 {bar}      750 received     250 sent  fold, 12 messages [f1]"


def test_a_history_longer_than_the_bar_fills_it() -> None:
    assert "-" * 24 + " " in PLAIN.line(turn(900_000, 250, "reuse"))


def test_a_refusal_is_told_whatever_was_done() -> None:
    assert PLAIN.line(turn(1200, 1200, "pass", refused=True)).endswith("sent  refused")


def test_colours_are_for_terminals() -> None:
    coloured = Display(1000, 3, colour=True)
    for display, has_colours in ((PLAIN, False), (coloured, True)):
        text = "\n".join([*display.opening(), display.line(turn(750, 250, "fold", fold="f1"))])
        assert ("\x1b[" in text) is has_colours
        assert text.isascii() is not has_colours


def test_the_totals_are_told_in_words() -> None:
    totals = Totals.of([turn(2000, 400, "fold", fold="f1")], 1000, [100])
    assert list(PLAIN.closing(totals)) == [
        "",
        "turns     1, in 1 request; 0 refused",
        "folds     1",
        "received  2,000 tokens",
        "sent      500 tokens, 100 of them for 1 summary call",
        "saved     75%",
        "cached    0% of the conversation's prompts, by the provider",
        "without   1 turn would have been refused, larger than the window of 1,000 tokens",
    ]
