"""Log lines: readable on a terminal, JSON otherwise. Never message text, never a key."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import IO, Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LOST = "log lines could not be written"


def configure(level: str, style: str) -> None:
    """`style` is auto, console or json; auto looks whether somebody is watching."""
    number = logging.getLevelNamesMapping()[level.upper()]
    as_json = style == "json" or (style == "auto" and not sys.stderr.isatty())
    processors: list[Processor]
    factory: Any
    sink: Any = Sink(_stderr())
    if as_json:
        # One step instead of four: this is run for every request.
        processors = [json_line]
        factory = structlog.BytesLoggerFactory(file=sink)
    else:
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        processors = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            failure_by_name,
            structlog.dev.ConsoleRenderer(colors=colours),
        ]
        factory = structlog.WriteLoggerFactory(file=sink)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    # Libraries speak up here too, but only when something is wrong.
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_ToStructlog()], force=True)


class Sink:
    """Where lines go. If they cannot be written, because a disk is full or a pipe's reader has left, they are
    lost, and nothing else is: neither a request nor the process. The next one that can be says how many.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lost = 0

    def write(self, line: bytes | str) -> None:
        said = line if isinstance(line, bytes) else line.encode(errors="backslashreplace")
        try:
            if self._lost:
                self._file.write(json_line(None, "warning", {"event": LOST, "lines": self._lost}) + b"\n")
                self._lost = 0
            self._file.write(said)
        except OSError:
            self._lost += 1

    def flush(self) -> None:
        """Nothing is held back."""


def _stderr() -> IO[bytes]:
    """Without a buffer: what stays in it because it cannot be written ends the process with an error."""
    try:
        return open(sys.stderr.fileno(), "wb", buffering=0, closefd=False)
    except (OSError, ValueError):  # somebody has put something else in its place
        return sys.stderr.buffer


def failure_by_name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Say where an exception came from, but not what it says: its text may quote a key or a message."""
    failure = event.pop("exc_info", None)
    if failure is True:
        failure = sys.exc_info()[1]
    if isinstance(failure, BaseException):
        event["failure"] = type(failure).__name__
        frames: list[str] = []
        trace = failure.__traceback__
        while trace is not None:
            frames.append(f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}")
            trace = trace.tb_next
        event["at"] = " > ".join(frames[-6:])
    return event


def json_line(logger: WrappedLogger, method: str, event: EventDict) -> bytes:
    if "exc_info" in event:
        event = failure_by_name(logger, method, event)
    event["level"] = method
    event["timestamp"] = datetime.now(UTC)
    return orjson.dumps(event, default=repr, option=orjson.OPT_UTC_Z)


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        log = structlog.get_logger(record.name)
        # The message before its arguments are put in: they may be anything, a header with a key among them.
        log.log(record.levelno, str(record.msg), logger=record.name, exc_info=failure)
