from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.cli.doctor.finding import Finding, Verdict
from proxy.cli.doctor.models import check
from proxy.cli.doctor.upstream import Key
from proxy.settings import Settings
from proxy.simulator import Simulator, SimulatorConfig
from proxy.tasks import Tasks

NOWHERE = "http://127.0.0.1:9/v1"


async def findings(
    *names: str, upstream: str = NOWHERE, key: str | None = None, **settings: Any
) -> Mapping[str, Finding]:
    tasks = Tasks()
    made = Settings.model_validate({"upstream": upstream, **settings})
    found = await check(made, names, Key(key), tasks)
    await tasks.close(timeout=0)
    return {finding.name: finding for finding in found}


async def test_where_none_is_named_it_is_said_how_to() -> None:
    found = await findings(models={"my-*": {"window": 9000}})
    assert found.keys() == {"models"}
    assert "--model" in found["models"].found


async def test_who_says_how_large_a_window_is() -> None:
    config = SimulatorConfig(tells_window=True, model_names=("theirs", "mine"), window=7000)
    async with Simulator(config) as simulator:
        found = await findings(
            "theirs", "gpt-4o", upstream=simulator.base_url, models={"mine": {"window": 9000}}
        )
    assert [each.found for each in found.values()] == [
        "a window of 9,000 tokens, as you have set it",
        "a window of 7,000 tokens, as the upstream says",
        "a window of 128,000 tokens, by the shipped map",
    ]
    assert [*found] == ["model mine", "model theirs", "model gpt-4o"]


async def test_the_upstream_is_asked_with_the_key() -> None:
    config = SimulatorConfig(tells_window=True, model_names=("theirs",), window=7000, api_key="sk-right")
    async with Simulator(config) as simulator:
        with_key = await findings("theirs", upstream=simulator.base_url, key="sk-right")
        without = await findings("theirs", upstream=simulator.base_url)
    assert with_key["model theirs"].verdict is Verdict.PASS
    assert without["model theirs"].verdict is Verdict.WARN


async def test_more_models_than_are_asked_about_at_once() -> None:
    names = [f"model-{number}" for number in range(20)]
    config = SimulatorConfig(tells_window=True, model_names=tuple(names))
    async with Simulator(config) as simulator:
        found = await findings(*names, upstream=simulator.base_url)
    assert {each.verdict for each in found.values()} == {Verdict.PASS}


async def test_an_upstream_that_is_not_to_be_asked_is_not() -> None:
    config = SimulatorConfig(tells_window=True, model_names=("theirs",))
    async with Simulator(config) as simulator:
        found = await findings("theirs", upstream=simulator.base_url, windows={"ask": False})
        assert simulator.arrived == 0
    assert found["model theirs"].verdict is Verdict.WARN


async def test_a_model_that_nobody_knows_is_a_warning_and_looked_up_once() -> None:
    found = await findings("my-model", "my-model")
    assert found.keys() == {"model my-model"}
    assert found["model my-model"].verdict is Verdict.WARN
    assert "nothing is folded" in str(found["model my-model"].hint)
