"""What Tailfold itself says in the head of an answer."""

from __future__ import annotations

from proxy.counting.anchors import Basis
from proxy.headers import Headers
from proxy.sizing import Sized

TOKENS = b"X-Tailfold-Tokens"
LIMIT = b"X-Tailfold-Limit"
WARNING = b"X-Tailfold-Warning"

ROUGH_COUNT = b"rough_count"


def announcement(sized: Sized) -> Headers:
    count = sized.counted.count
    said = [(TOKENS, b"%d" % count.tokens), (LIMIT, b"%d" % sized.budget.room)]
    if count.basis is Basis.ROUGH:
        said.append((WARNING, ROUGH_COUNT))
    return said
