"""Telling a text from a heap of crumbs before it is parsed.

Ten megabytes of `[1,1,1,…` become five million objects and 600 MB, and nothing else runs while they are made.
No conversation looks like that; whatever does is taken by its size.
"""

from __future__ import annotations

import re

# Values in one request: some ten thousand messages' worth, parsed in a tenth of a second.
MOST_VALUES = 250_000

# Each value comes after a comma or, if it is the first, after a bracket. Strings are passed over.
_STRING_OR_VALUE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


def is_intricate(json: bytes, most: int = MOST_VALUES) -> bool:
    """Has it more values than anybody writes? Counting stops there, so the answer comes soon in any case."""
    if len(json) <= most or sum(map(json.count, (b",", b"[", b"{"))) <= most:
        return False
    tokens = _STRING_OR_VALUE.finditer(json)
    return any(number >= most for number, _ in enumerate(tokens))
