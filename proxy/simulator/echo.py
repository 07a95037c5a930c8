"""An answer that says exactly what was received."""

from __future__ import annotations

import base64

from proxy.simulator.answers import Answer, json_answer
from proxy.simulator.recorder import ReceivedRequest

SHOWN_BODY = 64 * 1024


def echo(received: ReceivedRequest) -> Answer:
    shown = len(received.data) <= SHOWN_BODY
    return json_answer(
        {
            "method": received.method,
            "path": received.path,
            # latin-1 gives every byte a character, so nothing is lost and everything is JSON.
            "headers": [
                [name.decode("latin-1"), value.decode("latin-1")] for name, value in received.headers
            ],
            "body_length": len(received.data),
            "body_sha256": received.body_sha256,
            "body": base64.b64encode(received.body).decode() if shown else None,
            "connection": received.connection,
        }
    )
