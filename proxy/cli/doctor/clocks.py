"""Does somebody else's clock say what ours says? Pure.

A wrong clock is never more than a warning: what decides over folds are digests, and in a shared store the
server's time holds. What suffers are expiry, the day of `summarizer.daily_tokens`, and certificates.
"""

from __future__ import annotations

from proxy.cli.doctor.finding import Finding, passes, warns

_CLOSE = 5.0
_FAR = 300.0


def compared(name: str, whose: str, ahead: float) -> Finding:
    """`ahead` is by how many seconds theirs is ahead of ours."""
    if abs(ahead) <= _CLOSE:
        return passes(name, f"goes with {whose}, to {_CLOSE:g} s")
    side = "behind" if ahead > 0 else "ahead of"
    hint = "let this machine or the other set its clock by the network (NTP)"
    if abs(ahead) > _FAR:
        hint += "; so far off, valid certificates may be refused and what is stored expires at a wrong time"
    return warns(name, f"this machine is {abs(ahead):,.0f} s {side} {whose}", hint)
