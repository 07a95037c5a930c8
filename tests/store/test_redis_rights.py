"""One list of rights: what a hint says is what the docs say, and what the tests of the store live with."""

from __future__ import annotations

import pytest

from proxy.store import redis_rights
from tests.store.reaching import DOCS

RIGHTS = {name: value for name, value in vars(redis_rights).items() if name.isupper()}
TEXT = DOCS.read_text().replace("\\|", "|")


@pytest.mark.parametrize("name", RIGHTS)
def test_the_rights_that_hints_name_are_those_of_the_docs(name: str) -> None:
    assert RIGHTS[name] in TEXT


def test_there_is_one_list_of_them() -> None:
    pages = [page.name for page in DOCS.parent.rglob("*.md") if "ACL SETUSER" in page.read_text()]
    assert pages == [DOCS.name]
