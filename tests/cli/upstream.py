"""A server that answers every GET with an empty list of models and remembers who asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]


@dataclass
class Upstream:
    port: int
    seen: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def listening_upstream() -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            upstream.seen.append(
                Request(self.path, {name.lower(): text for name, text in self.headers.items()})
            )
            body = b'{"object":"list","data":[]}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """The test looks at `seen`; nobody reads a log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        upstream = Upstream(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield upstream
        finally:
            server.shutdown()
            thread.join()
