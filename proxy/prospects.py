"""Is another fold of a line worth what it costs? What came of those before it says so. Pure."""

from __future__ import annotations

from collections.abc import Container

import msgspec
from msgspec.structs import replace

# After so many folds in vain, or so many in a row that have freed too little, none is begun any more …
MOST_UNUSED = 2
MOST_FUTILE = 3
# … until so many requests in a row have gone on from the one before. A summary has paid for itself by then.
WORTH_ITS_COST = 12


class Prospects(msgspec.Struct, frozen=True, array_like=True):
    """Of a line. Never changed: what happens to the line makes new ones."""

    making: bytes | None = None  # the prefix of the fold that was begun last …
    until: float = 0.0  # … and until when it counts as being made
    begun: int = 0  # folds, since one was last sure to have been worth its cost
    unused: int = 0  # folds in vain
    futile: int = 0  # folds in a row that have freed too little
    steady: int = 0  # requests in a row that have gone on from the one before
    trims: bool = False  # folds were lost with turns that the client has left out
    doubted: bool = False  # it was long when it was first seen, and may be the rest of something else

    @property
    def has_something_to_lose(self) -> bool:
        return self.begun > 0 or self.unused > 0

    def may_start(self, hearsay: int = 0) -> bool:
        """`hearsay` is how many folds under the conversation's name came to nothing."""
        unused = max(self.unused, hearsay) if self.doubted else self.unused
        return unused < MOST_UNUSED and self.futile < MOST_FUTILE

    def began(self, prefix: bytes, until: float) -> Prospects:
        begun = self.begun if prefix == self.making else self.begun + 1
        return replace(self, making=prefix, until=until, begun=begun, doubted=False)

    def doubtful(self) -> Prospects:
        """Of a line that is not known to go on from another request."""
        return self if self.making is not None else replace(self, doubted=True)

    def folded(self, *, enough: bool) -> Prospects:
        """With a fold that the request before did not have."""
        return replace(self, futile=0 if enough else self.futile + 1)

    def went_on(self, *, reusing: bool) -> Prospects:
        """From the request before, as it was; with the same fold, or not."""
        steady = self.steady + 1
        if steady >= WORTH_ITS_COST:
            return replace(self, steady=steady, begun=0, unused=0, trims=False, doubted=False)
        # An edit now and then does no harm to folds that are used. Whoever leaves turns out will do so again.
        unused = 0 if reusing and not self.trims else self.unused
        return replace(self, steady=steady, unused=unused)

    def rewritten(self, chain: Container[bytes], *, left_out: bool) -> Prospects:
        """Something else is said where the line was known; turns of it were left out, or not."""
        if self.making is None or self.making in chain:
            return replace(self, steady=0) if left_out else self
        trims = self.trims or left_out
        in_vain = max(1, self.begun) if trims else 1
        return Prospects(unused=self.unused + in_vain, futile=self.futile, trims=trims)
