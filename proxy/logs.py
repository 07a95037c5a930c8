"""Log lines: readable on a terminal, JSON otherwise. Never message text, never a key."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def configure(level: str, style: str) -> None:
    """`style` is auto, console or json; auto looks whether somebody is watching."""
    number = logging.getLevelNamesMapping()[level.upper()]
    as_json = style == "json" or (style == "auto" and not sys.stderr.isatty())
    processors: list[Processor]
    factory: Any
    if as_json:
        # One step instead of four: this is run for every request.
        processors = [json_line]
        factory = structlog.BytesLoggerFactory(file=sys.stderr.buffer)
    else:
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        processors = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            failure_by_name,
            structlog.dev.ConsoleRenderer(colors=colours),
        ]
        factory = structlog.PrintLoggerFactory(file=sys.stderr)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    # Libraries speak up here too, but only when something is wrong.
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[_ToStructlog()], force=True)


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
