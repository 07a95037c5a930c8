"""What a request may wish, and how it is told that it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from proxy.errors import BadRequest
from proxy.request import Wishes
from proxy.web.wishes import MODES, STRATEGIES, wishes_of

Wished = Callable[..., Awaitable[Wishes]]


@pytest.fixture
async def wished() -> AsyncIterator[Wished]:
    """The wishes of a request with these headers, or what it is refused with."""
    mode, found = "", Wishes()
    refused: BadRequest | None = None

    async def handle(request: web.Request) -> web.Response:
        nonlocal found, refused
        try:
            found = wishes_of(request, mode)
        except BadRequest as refusal:
            refused = refusal
        return web.Response()

    application = web.Application()
    application.router.add_post("/", handle)

    async def wish(of_settings: str = "compress", **headers: str) -> Wishes:
        nonlocal mode
        mode = of_settings
        named = {_header(name): value for name, value in headers.items()}
        async with client.post("/", headers=named):
            if refused is not None:
                raise refused
            return found

    async with TestClient(TestServer(application)) as client:
        yield wish


def _header(name: str) -> str:
    """`Retain_Tokens` is `X-Tailfold-Retain-Tokens`."""
    return f"X-Tailfold-{name.replace('_', '-')}"


async def test_without_a_wish_it_is_as_the_settings_have_it(wished: Wished) -> None:
    assert await wished() == Wishes("compress", None, None, None)
    assert await wished("observe") == Wishes("observe")


@pytest.mark.parametrize("mode", MODES)
async def test_any_mode_may_be_wished(wished: Wished, mode: str) -> None:
    assert await wished("off", Mode=mode) == Wishes(mode)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_any_strategy_may_be_wished(wished: Wished, strategy: str) -> None:
    assert await wished("observe", Strategy=strategy) == Wishes("observe", strategy)


@pytest.mark.parametrize(("said", "share"), [("0.8", 0.8), ("1", 1.0), ("1e-3", 0.001), (" 0.5 ", 0.5)])
async def test_a_threshold_is_a_share(wished: Wished, said: str, share: float) -> None:
    assert (await wished(Threshold=said)).threshold == share


@pytest.mark.parametrize(("said", "retain"), [("500", 500), ("10%", "10%"), (" 2.50 % ", "2.5%")])
async def test_what_is_retained_is_a_number_or_a_share(wished: Wished, said: str, retain: int | str) -> None:
    assert (await wished(Retain_Tokens=said)).retain == retain


async def test_all_may_be_wished_at_once_whatever_the_case_of_their_names(wished: Wished) -> None:
    wishes = {"mode": "observe", "STRATEGY": "extractive", "Threshold": "0.5", "retain_TOKENS": "10%"}
    assert await wished("off", **wishes) == Wishes("observe", "extractive", 0.5, "10%")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *[("Mode", said) for said in ("", "Compress", "on")],
        *[("Strategy", said) for said in ("", "best", "summarize, off")],
        *[("Threshold", said) for said in ("", "0", "1.01", "-0.5", "nan", "inf", "half", "80%", "1e400")],
        *[
            ("Retain_Tokens", said)
            for said in ("", "0", "-5", "0%", "101%", "some", "1.5", "1e3", "9" * 20, "²")
        ],
    ],
)
async def test_what_cannot_be_wished_is_refused_and_the_header_named(
    wished: Wished, name: str, said: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        await wished(**{name: said})
    assert refused.value.message.startswith(f"{_header(name)} ")
    assert refused.value.message.endswith(".")
