"""An upstream for summaries alone."""

from __future__ import annotations

from proxy.metrics import Metrics
from proxy.tasks import Tasks
from proxy.upstream import Timeouts, Upstream
from proxy.upstream.pool import Origin


def upstream_at(port: int) -> Upstream:
    origin, timeouts = Origin("127.0.0.1", port, None), Timeouts(5, 30, 30)
    return Upstream(f"http://127.0.0.1:{port}/v1", origin, timeouts, Metrics(), Tasks())
