from __future__ import annotations

import pytest

from tests.deploy.tools import REQUIRED, tool

ABSENT = "a-tool-that-nobody-has"


def test_a_tool_that_is_absent_skips_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{ABSENT} is not installed; it comes with"):
        tool(ABSENT)


def test_where_all_tools_are_asked_for_an_absent_one_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match=f"{ABSENT} is not installed.*{REQUIRED}=1"):
        tool(ABSENT)
