"""The form in which a request goes out."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.budget import Size
from proxy.fold.record import Fold
from proxy.request import Request
from proxy.weighing import Form
from proxy.workshop import Order

# Why a request went out in a lesser form than it should have.
DOES_NOT_FIT = "does_not_fit"
SUMMARY_LATE = "summary_late"
SUMMARY_FAILED = "summary_failed"
FOLDING_PAUSED = "folding_paused"


@dataclass(frozen=True, slots=True)
class Begun:
    """A fold that is being made: of which prefix, and until when it is to be expected."""

    prefix: bytes
    until: float


@dataclass(frozen=True, slots=True)
class Sending:
    """The form in which a request goes out, and what is to be begun when it has been answered."""

    form: Form
    received: Size  # as it came
    freed: int = 0  # by a fold that the line's last request did not have
    prepare: Order | None = None
    begun: Begun | None = None  # while the request was waiting
    warnings: tuple[str, ...] = ()
    waited: float = 0.0  # seconds, for a fold
    would: Fold | None = None  # in observe mode: what it would have been sent with

    @property
    def fold(self) -> Fold | None:
        return self.form.fold


def as_it_came(request: Request) -> Sending:
    return Sending(Form(request.chat, request.sized), request.sized.counted.count)
