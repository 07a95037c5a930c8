"""Asking a model of another provider through litellm.

The provider's key is the one that litellm finds in the environment: a caller's is for the upstream alone.
litellm takes seconds to import and goes on loading parts of itself when it is used, so it is imported at the
first call, and everything of it happens apart from the event loop that serves.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import warnings
from functools import cache
from typing import Any

import orjson
import structlog

from proxy.summarizer.apart import Apart
from proxy.summarizer.forms import Form, Forms, Refused
from proxy.summarizer.wanted import TOO_LONG, SummaryFailed, Wanted, Written, pause_in, reason_of, written_in
from proxy.windows.overflow import longest_answer, out_of_window

log = structlog.get_logger("tailfold")

_ENVIRONMENT = {
    # Otherwise it fetches these from GitHub.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # Otherwise it reads the next .env file, and every variable in it would be ours from then on.
    "LITELLM_MODE": "PRODUCTION",
}
# Its lines quote prompts, and at level debug keys.
_LOGGERS = ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router", "litellm")
_CALLBACKS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "service_callback",
    "_async_success_callback",
    "_async_failure_callback",
)
# One for the process: what litellm keeps for later belongs to the loop in which it was made.
_APART = Apart("litellm")
_REFUSALS = frozenset({400, 422})
_MOST_CAUSES = 16
_TIMEOUT = 408  # litellm's own, too


class LitellmSummarizer:
    """Asks `Wanted.preferred` alone, which is the operator's choice. `Wanted.model` is what a client has
    written: to litellm a name can be any provider, and even an address.
    """

    def __init__(self, *, temperature: float | None, timeout: float) -> None:
        self._temperature = temperature
        self._timeout = timeout
        self._forms = Forms()

    async def write(self, wanted: Wanted) -> Written:
        if wanted.preferred is None:
            raise SummaryFailed("no_model")
        try:
            async with asyncio.timeout(self._timeout):
                return await _APART.run(self._by(wanted.preferred, wanted))
        except TimeoutError:
            raise SummaryFailed("timeout") from None
        except Refused as refused:
            raise SummaryFailed(refused.reason, window=refused.window) from None

    async def _by(self, model: str, wanted: Wanted) -> Written:
        return await self._forms.ask(model, wanted, lambda form: self._asked(model, wanted, form))

    async def _asked(self, model: str, wanted: Wanted, form: Form) -> Written:
        litellm = _imported()
        await asyncio.sleep(0)  # whoever would not wait so long is noticed here to have gone
        try:
            answer = await litellm.acompletion(
                model=model,
                messages=orjson.loads(form.messages(wanted)),
                **form.fields(wanted, self._temperature),
                timeout=self._timeout,
                num_retries=0,
                max_retries=0,  # of the SDKs beneath it
                drop_params=True,
            )
            body = answer.model_dump(warnings=False)
        except Exception as failure:  # noqa: BLE001 - whatever it raises is a summary that was not written
            too_long = isinstance(failure, litellm.ContextWindowExceededError)
            raise (_too_long(failure) if too_long else _told(failure, model)) from None
        return written_in(body, model)


def _too_long(failure: Exception) -> Refused:
    refused = out_of_window(None, str(failure))
    return Refused(TOO_LONG, "", window=refused.limit if refused else None)


def _told(failure: Exception, model: str) -> SummaryFailed | Refused:
    """What litellm raises, without what it says: that may quote the prompt."""
    status = getattr(failure, "status_code", None)
    headers = getattr(failure, "litellm_response_headers", None)
    if status == _TIMEOUT:
        return SummaryFailed("timeout")
    if status in _REFUSALS:
        if out_of_window(None, str(failure)) is not None:
            return _too_long(failure)
        return Refused(reason_of(status), str(failure), answer=longest_answer(str(failure)))
    if not isinstance(status, int) or (status >= 500 and headers is None):
        # It calls everything a 500 that never came to an answer, a missing key as well as a dead host.
        log.warning("no answer through litellm", model=model[:128], failure=type(_first_of(failure)).__name__)
        return SummaryFailed("no_answer")
    return SummaryFailed(reason_of(status), pause_in(headers.get("retry-after") if headers else None))


def _first_of(failure: BaseException) -> BaseException:
    """What it all began with."""
    for _ in range(_MOST_CAUSES):
        failure = failure.__cause__ or failure.__context__ or failure
    return failure


@cache
def _imported() -> Any:
    os.environ.update(_ENVIRONMENT)
    _silence()
    # Millions of objects that stay: looking for garbage among them would stop every thread, now and later.
    gc.disable()
    try:
        litellm: Any = importlib.import_module("litellm")
    except Exception as broken:
        raise SummaryFailed("litellm_unavailable") from broken
    finally:
        gc.freeze()
        gc.enable()
    _silence()  # once more: it has put its handlers in
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    for name in _CALLBACKS:
        setattr(litellm, name, [])
    return litellm


def _silence() -> None:
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
        logger.disabled = True
    # These quote the answer.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
