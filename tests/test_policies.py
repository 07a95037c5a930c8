"""Whose word on folding counts: the request's, the model's, the settings'."""

from __future__ import annotations

import pytest

from proxy.fold.lengths import Lengths
from proxy.policies import RETAINED, Policies
from proxy.request import Wishes
from proxy.settings.sections import Compression
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from tests.fold.chats import chat

UNKNOWN = KnownModel()


def policies(host: str = "localhost", **settings: object) -> Policies:
    return Policies(Compression.model_validate(settings), host)


def of_the_map(retain: int | str) -> KnownModel:
    return KnownModel(ModelFacts(retain_tokens=retain), {"retain_tokens": Origin.MAP})


def of_the_user(retain: int | str) -> KnownModel:
    return KnownModel(ModelFacts(retain_tokens=retain), {"retain_tokens": Origin.SETTING})


def test_the_strategy_is_the_requests_the_models_or_the_settings() -> None:
    model = KnownModel(ModelFacts(strategy="extractive"))
    assert policies().strategy(UNKNOWN, Wishes()) == "summarize"
    assert policies(strategy="off").strategy(UNKNOWN, Wishes()) == "off"
    assert policies().strategy(model, Wishes()) == "extractive"
    assert policies().strategy(model, Wishes(strategy="off")) == "off"
    assert policies(strategy="off").strategy(UNKNOWN, Wishes(strategy="summarize")) == "summarize"


def test_where_folding_is_not_enabled_nobody_can_wish_for_it() -> None:
    assert policies(enabled=False).strategy(UNKNOWN, Wishes(strategy="summarize")) == "off"


@pytest.mark.parametrize(
    ("wished", "model", "general", "retained"),
    [
        (None, UNKNOWN, None, RETAINED),
        (None, UNKNOWN, 300, 300),
        (None, UNKNOWN, "10%", 2_000),
        (None, of_the_map(700), None, 700),
        (None, of_the_map(700), 300, 300),
        (None, of_the_user(700), 300, 700),
        (None, of_the_user("5%"), 300, 1_000),
        (50, of_the_user(700), 300, 50),
        ("1%", of_the_user(700), 300, 200),
    ],
)
def test_what_is_retained_is_the_requests_word_the_users_on_the_model_his_general_one_or_the_maps(
    wished: int | str | None, model: KnownModel, general: int | str | None, retained: int
) -> None:
    policy = policies(retain_tokens=general).fold(
        model, Wishes(retain=wished), 20_000, Lengths(), may_start=True
    )
    assert policy.retain_tokens == retained


def test_the_floor_and_whether_a_fold_may_be_begun_are_passed_on() -> None:
    lengths = Lengths(room=20_000)
    policy = policies(min_tokens=77).fold(UNKNOWN, Wishes(), 20_000, lengths, may_start=False)
    assert (policy.min_tokens, policy.may_start, policy.lengths) == (77, False, lengths)


@pytest.mark.parametrize(
    "host", ["api.openai.com", "eu.api.openai.com", "me.openai.azure.com", "openrouter.ai", "api.x.ai"]
)
def test_a_provider_that_takes_system_messages_anywhere_gets_a_summary_in_one(host: str) -> None:
    assert policies(host).role(chat("s u a")) == "system"
    assert policies(host).role(chat("u a")) == "system"
    assert policies(host).role(chat("d u d a")) == "developer"
    assert policies(host).role(chat("d s u a")) == "system"


@pytest.mark.parametrize("host", ["localhost", "", "127.0.0.1", "api.openai.com.example.org"])
def test_any_other_server_gets_it_as_a_users(host: str) -> None:
    assert policies(host).role(chat("s u a")) == "user"
    assert policies(host).role(chat("d u a")) == "user"


@pytest.mark.parametrize("role", ["system", "user", "assistant", "append"])
def test_the_role_that_the_user_has_set_is_the_one(role: str) -> None:
    assert policies("api.openai.com", summary_role=role).role(chat("d u a")) == role
    assert policies("localhost", summary_role=role).role(chat("d u a")) == role
