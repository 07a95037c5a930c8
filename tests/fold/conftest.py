"""How hard properties are tried: a hundred examples every day, ten thousand by `make test-thorough`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "thorough", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
