"""The model: what may be set, who wins, and how a mistake is told."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from proxy.config_files import single_layer, variable
from proxy.counting.images import RULES
from proxy.settings import (
    FIELDS,
    MASK,
    Admin,
    Limits,
    Loaded,
    Log,
    Settings,
    SettingsError,
    Timeouts,
    Tls,
    is_loopback,
    load,
    masked,
    printable,
    revealed,
    values_of,
)
from proxy.settings.redis_address import address_in
from proxy.settings.sections import ImageRule
from proxy.settings.values import retained_tokens


def problems(flags: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(flags or {}, environ or {})
    return list(caught.value.problems)


def only_problem(**environ: str) -> str:
    [problem] = problems(environ=environ)
    return problem


@pytest.fixture
def yaml(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "tailfold.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_defaults_are_those_of_a_local_proxy_for_openai() -> None:
    settings = Settings()
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8080, 1)
    assert settings.upstream == "https://api.openai.com/v1"
    assert settings.mode == "compress"
    assert settings.usage.ask
    assert settings.timeouts == Timeouts(
        connect=5, first_byte=600, idle=300, head=30, body=30, keepalive=75, drain=30
    )
    assert settings.limits == Limits(
        chat_body=134217728, in_flight=1073741824, connections=4096, head=65536, body_rate=1024
    )
    assert settings.tls == Tls(ca_file=None, verify=True)
    assert settings.admin == Admin(token=None, hosts=())
    assert not settings.metrics.open
    assert settings.log == Log(level="info", format="auto")


def test_every_setting_is_explained() -> None:
    assert [key for key, field in FIELDS.items() if not field.description] == []


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.port = 1
    with pytest.raises(ValidationError):
        settings.timeouts.idle = 1.0


def test_settings_made_directly_do_not_read_the_environment() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from proxy.settings import Settings; print(Settings().port)"],
        env={**os.environ, "TAILFOLD_PORT": "1234"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "8080"


def test_importing_the_settings_brings_no_heavy_library_along() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import proxy.cli, sys, json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {
        "litellm",
        "aiohttp",
        "tiktoken",
        "redis",
        "prometheus_client",
        "uvloop",
        "openai",
        "cryptography",
    }
    assert heavy.isdisjoint(json.loads(told.stdout))


# Who wins.


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_file(yaml: Any) -> None:
    file = yaml("port: 1\nworkers: 1\nmode: observe\n")
    environ = {"TAILFOLD_PORT": "2", "TAILFOLD_WORKERS": "2", "TAILFOLD_CONFIG": file}
    loaded = load({"port": "3", "workers": None}, environ)
    assert (loaded.settings.port, loaded.settings.workers, loaded.settings.mode) == (3, 2, "observe")
    assert loaded.origins["port"] == "flag --port"
    assert loaded.origins["workers"] == "environment TAILFOLD_WORKERS"
    assert loaded.origins["mode"] == f"file {file}"
    assert loaded.origins["host"] == "default"
    assert loaded.file == Path(file)


def test_the_config_flag_wins_over_its_variable(yaml: Any) -> None:
    loaded = load({"config": yaml("port: 5\n")}, {"TAILFOLD_CONFIG": "/nowhere.yaml"})
    assert loaded.settings.port == 5


def test_a_fallback_counts_only_where_nobody_else_said_anything() -> None:
    fallback = single_layer("upstream", "http://fallback/v1", "environment OPENAI_BASE_URL")
    assert load({}, {}, fallback=fallback).origins["upstream"] == "environment OPENAI_BASE_URL"
    assert load({"upstream": "http://said/v1"}, {}, fallback=fallback).settings.upstream == "http://said/v1"


@given(st.dictionaries(st.sampled_from(["flag", "variable"]), st.integers(0, 65535)))
def test_the_origin_always_names_the_source_of_the_value(ports: dict[str, int]) -> None:
    environ = {"TAILFOLD_PORT": str(ports["variable"])} if "variable" in ports else {}
    loaded = load({"port": ports.get("flag")}, environ)
    expected = {"flag --port": ports.get("flag"), "environment TAILFOLD_PORT": ports.get("variable")}
    assert loaded.settings.port == expected.get(loaded.origins["port"], 8080)
    assert loaded.origins["port"].startswith("flag") == ("flag" in ports)


def test_every_setting_can_be_given_as_a_variable(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("")
    given = {
        "host": "::1",
        "port": "0",
        "workers": "3",
        "upstream": "http://localhost:1/v1",
        "store": "memory://",
        "mode": "off",
        "secret": "a secret of some length",
        "models": '{"my-model": {"window": 8192}}',
        "usage.ask": "false",
        "windows.ask": "false",
        **{f"compression.{name}": "0.25" for name in ("threshold", "soft_ratio", "margin")},
        "compression.enabled": "false",
        "compression.strategy": "extractive",
        "compression.retain_tokens": "10%",
        "compression.min_tokens": "0",
        "compression.summary_role": "user",
        "compression.summary_max_tokens": "500",
        "summarizer.model": "anthropic/claude-haiku-4-5",
        "summarizer.via": "litellm",
        "summarizer.prompt": "coding",
        "summarizer.on_prefix": "true",
        "summarizer.timeout": "5",
        "summarizer.temperature": "0",
        "summarizer.max_wait": "0",
        "summarizer.daily_tokens": "1000",
        "history.store_messages": "false",
        "history.ttl": "60",
        "encryption.keys": "k1:" + "A" * 43,
        "notify.headers": "false",
        "notify.events": "false",
        **{key: "1.5" for key in FIELDS if key.startswith("timeouts.")},
        "redis.timeout": "0.1",
        "redis.pause": "10",
        **{key: "2048" for key in FIELDS if key.startswith("limits.")},
        "tls.ca_file": str(pem),
        "tls.verify": "false",
        "admin.token": "t0ken",
        "admin.hosts": "a.example, B.example",
        "metrics.open": "true",
        "log.level": "debug",
        "log.format": "json",
    }
    loaded = load({}, {variable(key): value for key, value in given.items()})
    assert given.keys() == FIELDS.keys()
    assert all(loaded.origins[key] == f"environment {variable(key)}" for key in FIELDS)
    defaults = values_of(Settings())
    assert [key for key, value in values_of(loaded.settings).items() if value == defaults[key]] == []
    assert loaded.settings.admin.hosts == ("a.example", "b.example")


@pytest.mark.parametrize("said", ["0", "-1", "0%", "101%", "ten", "1.5", "true"])
def test_a_tail_is_a_number_of_tokens_or_a_share_of_the_room(said: str) -> None:
    with pytest.raises(SettingsError, match=r"tokens, or a share|share of more than 0%"):
        load({}, {"TAILFOLD_COMPRESSION__RETAIN_TOKENS": said})


@pytest.mark.parametrize(("said", "tokens"), [(700, 700), ("25%", 1_000), ("12.5%", 500)])
def test_a_share_of_the_room_becomes_tokens(said: int | str, tokens: int) -> None:
    assert retained_tokens(said, 4_000) == tokens


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load({}, {"TAILFOLD_PORT": "", "TAILFOLD_CONFIG": ""}) == Loaded(
        Settings(), dict.fromkeys(FIELDS, "default")
    )


# Single values.


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("128MiB", 128 * 1024**2),
        ("64 kib", 65536),
        ("1GiB", 1024**3),
        ("1.5KiB", 1536),
        ("2kB", 2000),
        ("7", 7),
    ],
)
def test_sizes_may_be_written_with_units(text: str, count: int) -> None:
    assert load({}, {"TAILFOLD_LIMITS__HEAD": text}).settings.limits.head == count


@pytest.mark.parametrize("text", ["", "MiB", "-1KiB", "1 mile", "0", "1e3", "nan", "1KiBiB"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate({"head": text})


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_a_positive_number(seconds: str) -> None:
    assert only_problem(TAILFOLD_TIMEOUTS__IDLE=seconds).startswith("environment TAILFOLD_TIMEOUTS__IDLE: ")


def test_the_upstream_loses_its_trailing_slash() -> None:
    assert Settings(upstream="http://localhost:1/v1/").upstream == "http://localhost:1/v1"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("api.openai.com/v1", "full URL"),
        ("ftp://example.com", "full URL"),
        ("https://", "full URL"),
        ("https://u:s3cret@example.com/v1", "user or password"),
        ("https://example.com/v1?key=s3cret", "query"),
        ("https://example.com/v1#s3cret", "fragment"),
        ("https://example.com:99999/v1", "valid URL"),
        ("https://exa mple.com/v1", "valid URL"),
        ("https://[::1/v1", "valid URL"),
    ],
)
def test_a_wrong_upstream_is_explained_without_repeating_a_password(url: str, complaint: str) -> None:
    problem = only_problem(TAILFOLD_UPSTREAM=url)
    assert complaint in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:///relative.db",
        "sqlite:////absolute/path.db",
        "redis://localhost:6379/0",
        "rediss://u:p@host/0",
        "redis+sentinel://:p@a:26379,b:26379/main",
        "redis+cluster://a:1,b:2",
    ],
)
def test_every_kind_of_store_is_taken(url: str) -> None:
    assert Settings(store=url, secret=SecretStr("s" * 32)).store_url == url


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster"])
def test_a_shared_store_needs_a_secret_and_says_how_to_make_one(scheme: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(
            {"store": f"{scheme}://:hunter2@host/main" if "sent" in scheme else f"{scheme}://:hunter2@host"},
            {},
        )
    (problem,) = refused.value.problems
    assert "TAILFOLD_SECRET" in problem
    assert "token_urlsafe" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:s3cret@h/db",
        "sqlite://s3cret",
        "sqlite:///",
        "redis://:s3cret@",
        "s3cret",
        "redis:s3cret",
        "memory://s3cret",
        "memory:///s3cret",
        "memory://?s3cret",
    ],
)
def test_a_wrong_store_is_refused_without_repeating_it(url: str) -> None:
    problem = only_problem(TAILFOLD_STORE=url)
    assert problem.startswith("environment TAILFOLD_STORE: should ")
    assert "s3cret" not in problem


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster"])
@pytest.mark.parametrize("password", ["s3/cret", "s3?cret", "s3#cret", "s3[cret", "s3]cret/"])
def test_a_password_that_should_be_escaped_is_understood_or_it_is_told_how_and_never_repeated(
    scheme: str, password: str
) -> None:
    path = "/main" if scheme == "redis+sentinel" else "/0"
    url = f"{scheme}://user:{password}@host:6379{path}"
    try:
        load({}, {"TAILFOLD_STORE": url, "TAILFOLD_SECRET": "s" * 32})
    except SettingsError as refused:
        [problem] = refused.problems
        assert "%3F" in problem
        assert "s3" not in problem
        assert "cret" not in problem
    else:
        assert "+" in scheme
        assert address_in(url).password == password


@pytest.mark.parametrize("name", ["absent.pem", "empty.pem"])
def test_a_file_of_authorities_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.pem").touch()
    problem = only_problem(
        TAILFOLD_STORE=f"rediss://:s3cret@h/0?ca={tmp_path}/{name}", TAILFOLD_SECRET="s" * 32
    )
    assert problem.startswith("environment TAILFOLD_STORE: names a file behind ca= that has no certificates")
    assert "s3cret" not in problem


def test_the_default_store_is_a_file_in_the_users_state_folder() -> None:
    assert Settings().store is None
    assert Settings().store_url.startswith("sqlite:////")
    assert Settings().store_url.endswith("/tailfold.db")


@pytest.mark.parametrize("host", ["", "http://127.0.0.1", "127.0.0.1:80", "local host"])
def test_a_host_is_a_host_alone(host: str) -> None:
    with pytest.raises(ValidationError):
        Settings(host=host)


def test_brackets_around_an_address_are_dropped() -> None:
    assert Settings(host="[::1]").host == "::1"


def test_a_certificate_file_has_to_exist() -> None:
    assert "does not point to a file" in only_problem(TAILFOLD_TLS__CA_FILE="/nowhere/ca.pem")


@pytest.mark.parametrize("names", ["https://a.example", "a.example:80", "*.example"])
def test_host_names_are_bare(names: str) -> None:
    assert "bare host names" in only_problem(TAILFOLD_ADMIN__HOSTS=names)


# Values that have to go together.


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_a_loopback_address_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).host == host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "::ffff:10.0.0.1", "0", "127.1"]
)
def test_any_other_address_needs_one_and_the_message_tells_how_to_make_it(host: str) -> None:
    problem = only_problem(TAILFOLD_HOST=host)
    assert problem.startswith(f"environment TAILFOLD_HOST: {host} can be reached from other machines")
    assert "TAILFOLD_ADMIN__TOKEN" in problem
    assert "admin.token" in problem
    assert 'python -c "import secrets; print(secrets.token_urlsafe(32))"' in problem
    assert load({}, {"TAILFOLD_HOST": host, "TAILFOLD_ADMIN__TOKEN": "t"}).settings.host == host


@pytest.mark.parametrize("token", [" ", "two words", "line\nbreak", "käse"])
def test_a_token_that_cannot_stand_in_a_header_is_refused_unseen(token: str) -> None:
    problem = only_problem(TAILFOLD_ADMIN__TOKEN=token)
    assert (
        problem
        == "environment TAILFOLD_ADMIN__TOKEN: should be printable ASCII without spaces, and not empty"
    )


@pytest.mark.parametrize(
    ("host", "upstream"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080/v1"),
        ("127.0.0.1", "http://LOCALHOST:8080"),
        ("localhost", "http://[::1]:8080/v1"),
        ("0.0.0.0", "https://localhost:8080/v1"),
        ("192.168.1.5", "http://192.168.1.5:8080/v1"),
    ],
)
def test_an_upstream_at_the_own_address_is_refused(host: str, upstream: str) -> None:
    problem = only_problem(TAILFOLD_HOST=host, TAILFOLD_UPSTREAM=upstream, TAILFOLD_ADMIN__TOKEN="t")
    assert problem.startswith("environment TAILFOLD_UPSTREAM: ")
    assert "would forward to itself" in problem


@pytest.mark.parametrize(
    "upstream", ["http://127.0.0.1:8081/v1", "http://example.com:8080/v1", "http://localhost/v1"]
)
def test_an_upstream_elsewhere_is_fine(upstream: str) -> None:
    assert Settings(upstream=upstream).upstream == upstream


# How mistakes are told.


def test_an_unknown_variable_is_refused_with_the_nearest_known_one() -> None:
    problem = only_problem(TAILFOLD_TIMEOUT__IDLE="3")
    assert problem.startswith("environment TAILFOLD_TIMEOUT__IDLE: unknown setting; ")
    assert problem.endswith("the nearest known one is TAILFOLD_TIMEOUTS__IDLE")


def test_variables_of_other_programs_are_none_of_our_business() -> None:
    assert load({}, {"PORT": "x", "TAILFOLDER": "y"}).settings == Settings()


def test_all_problems_are_told_at_once_each_with_its_place(yaml: Any) -> None:
    file = yaml("mode: sometimes\n\nprot: 3\ntimeouts:\n  idle: -1\ntls: on\n")
    told = problems(
        {"config": file, "port": "many"}, {"TAILFOLD_LIMITS__HEAD": "small", "TAILFOLD_PROT": "1"}
    )
    assert sorted(told) == sorted(
        [
            "environment TAILFOLD_PROT: unknown setting; the nearest known one is TAILFOLD_PORT",
            f"file {file}, line 3: prot: unknown setting; the nearest known one is port",
            f"file {file}, line 6: tls: should be a section with ca_file, verify",
            "flag --port: should be a valid integer, unable to parse string as an integer (got 'many')",
            f"file {file}, line 1: mode: should be 'compress', 'observe' or 'off' (got 'sometimes')",
            f"file {file}, line 5: timeouts.idle: should be greater than 0 (got '-1')",
            "environment TAILFOLD_LIMITS__HEAD: should be a number of bytes or a size such as 64KiB, 128MiB "
            "or 1GiB (got 'small')",
        ]
    )


def test_a_wrong_token_in_a_file_is_not_repeated(yaml: Any) -> None:
    told = problems({"config": yaml("admin:\n  token: 123456789\n")})
    assert len(told) == 1
    assert "123456789" not in told[0]


def test_an_unknown_keyword_is_refused_without_its_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"admin": {"tokne": "s3cret"}})
    assert "s3cret" not in str(caught.value)


# Showing and handing on.


def test_secrets_are_not_in_what_is_shown() -> None:
    settings = Settings(
        store="redis://:s3cret@h/0", secret=SecretStr("k" * 32), admin=Admin(token=SecretStr("t0ken"))
    )
    shown = printable(settings)
    assert shown.keys() == FIELDS.keys()
    assert (shown["store"], shown["admin.token"]) == (f"redis://:{MASK}@h/0", MASK)
    assert "s3cret" not in repr(settings) + str(shown)
    assert "t0ken" not in repr(settings) + str(shown)


@given(st.text("abcXYZ0/:@?&=#%", min_size=1).map(lambda text: f"s3cret{text}s3cret"))
def test_a_masked_url_never_shows_the_password(password: str) -> None:
    assert "s3cret" not in masked(f"redis://user:{password}@host:6379/0?socket_timeout=1")


def test_a_masked_url_is_otherwise_the_same() -> None:
    assert masked("redis://u:p@h:1,g:2/main?sentinel_password=x&db=1") == (
        f"redis://u:{MASK}@h:1,g:2/main?sentinel_password={MASK}&db=1"
    )
    assert masked("sqlite:////home/me@work/tailfold.db") == "sqlite:////home/me@work/tailfold.db"
    assert masked("memory://") == "memory://"


def test_settings_survive_being_handed_to_another_process(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("")
    settings = Settings(
        host="0.0.0.0",
        admin=Admin(token=SecretStr("t0ken"), hosts=("a",)),
        tls=Tls(ca_file=pem),
        store="redis://:p@h/0",
        secret=SecretStr("s" * 32),
    )
    assert Settings.model_validate(json.loads(json.dumps(revealed(settings)))) == settings


def test_models_are_told_by_name_or_pattern(yaml: Any) -> None:
    file = yaml("models:\n  my-model: {window: 8192}\n  claude-*:\n    threshold: 0.9\n")
    models = load({"config": file}, {}).settings.models
    assert models["my-model"].window == 8192
    assert models["claude-*"].threshold == 0.9


def test_models_can_stand_in_a_variable_as_json() -> None:
    loaded = load({}, {"TAILFOLD_MODELS": '{"my-model": {"window": 8192}}'})
    assert loaded.settings.models["my-model"].window == 8192
    assert loaded.origins["models"] == "environment TAILFOLD_MODELS"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{m: {window: 0}}", "line 1: models: m: window: should be greater than 0"),
        ("{m: {window: true}}", "line 1: models: m: window: should be a number"),
        ("{'': {window: 5}}", "line 1: models: an entry has no name"),
        ("{m: {windw: 5}}", "line 1: models: m: windw: unknown; known are window, "),
        ("{m: {encoding: p50k}}", "line 1: models: m: encoding: should be 'o200k_base' or 'cl100k_base'"),
        ("{m: {images: by weight}}", "line 1: models: m: images: should be 'tiles-85-170', 'tiles-70-140', "),
        ("{m: {excludes_answer: true}}", "line 1: models: m: excludes_answer says what is in a window: "),
        ("[m]", "line 1: models: should be a valid dictionary"),
        ("\n  m: {window: 5}\n  m: {window: 6}", "line 3: models.m is given twice (first in line 2)"),
    ],
)
def test_a_mistake_in_a_model_is_told_with_its_name(yaml: Any, text: str, complaint: str) -> None:
    [problem] = problems({"config": yaml(f"models: {text}\n")})
    assert complaint in problem


def test_the_rules_for_images_are_those_that_can_be_counted_by() -> None:
    assert set(get_args(ImageRule)) == set(RULES)


def test_a_variable_for_models_that_is_no_json_is_refused() -> None:
    assert "should be JSON such as" in only_problem(TAILFOLD_MODELS="my-model")


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    problem = only_problem(TAILFOLD_SECRET="hunter2")
    assert "at least 16 characters" in problem
    assert "hunter2" not in problem


def test_the_secret_is_masked_when_shown_and_handed_to_workers_in_clear() -> None:
    settings = Settings(secret=SecretStr("a secret of some length"))
    assert printable(settings)["secret"] == MASK
    assert revealed(settings)["secret"] == "a secret of some length"


# Keys for what is stored.

KEY, OTHER = base64.b64encode(bytes(range(32))).decode(), base64.b64encode(b"o" * 32).decode()


def test_keys_come_in_their_order_in_either_alphabet_padded_or_not() -> None:
    awkward = b"\xfb\xff" * 16
    urlsafe = base64.urlsafe_b64encode(awkward).decode().rstrip("=")
    loaded = load({}, {"TAILFOLD_ENCRYPTION__KEYS": f" new:{KEY} , 2026-11_a.b:{urlsafe}"})
    keys = loaded.settings.encryption.by_id
    assert list(keys.items()) == [("new", bytes(range(32))), ("2026-11_a.b", awkward)]


def test_without_keys_nothing_is_encrypted() -> None:
    assert Settings().encryption.by_id == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (KEY, "key 1 should be id:base64key"),
        (f":{KEY}", "key 1 should be id:base64key"),
        (f"{KEY}:k1", "key 1 should be id:base64key"),
        (f"my key:{KEY}", "key 1 should be id:base64key"),
        (f"{'i' * 33}:{KEY}", "key 1 should be id:base64key"),
        (f"käse:{KEY}", "key 1 should be id:base64key"),
        (f"k1:{KEY},", "key 2 should be id:base64key"),
        ("k1:", "key 1 should be 32 random bytes in base64"),
        (f"k1:{KEY[:-5]}", "key 1 should be 32 random bytes in base64"),
        (f"k1:{KEY[:20]}!{KEY[20:]}", "key 1 should be 32 random bytes in base64"),
        (f"k1:{KEY},k2:ä{OTHER}", "key 2 should be 32 random bytes in base64"),
        (f"k1:{KEY},k1:{OTHER}", "key 2 repeats the id or the bytes of an earlier one"),
        (f"k1:{KEY},k2:{KEY}", "key 2 repeats the id or the bytes of an earlier one"),
    ],
)
def test_a_wrong_key_is_told_by_its_number_and_never_repeated(text: str, complaint: str) -> None:
    problem = only_problem(TAILFOLD_ENCRYPTION__KEYS=text)
    assert problem.startswith(f"environment TAILFOLD_ENCRYPTION__KEYS: {complaint}")
    for word in re.findall(r"[\w+/=]{5,}", text):
        assert word not in problem


def test_no_keys_at_all_is_no_way_to_say_that_nothing_is_to_be_encrypted(yaml: Any) -> None:
    [problem] = problems({"config": yaml('encryption:\n  keys: ""\n')})
    assert "line 2: encryption.keys: key 1 should be id:base64key" in problem


def test_the_way_to_make_a_key_that_is_told_makes_one() -> None:
    problem = only_problem(TAILFOLD_ENCRYPTION__KEYS="k1:short")
    command = problem.partition("To make one: ")[2]
    made = subprocess.run(command, shell=True, env=os.environ, capture_output=True, text=True, check=True)
    assert load({}, {"TAILFOLD_ENCRYPTION__KEYS": made.stdout.strip()}).settings.encryption.by_id.keys() == {
        "k1"
    }


def test_keys_are_masked_when_shown_and_handed_to_workers_in_clear() -> None:
    settings = load({}, {"TAILFOLD_ENCRYPTION__KEYS": f"k1:{KEY}"}).settings
    assert printable(settings)["encryption.keys"] == MASK
    assert KEY not in repr(settings) + str(printable(settings)) + str(values_of(settings))
    assert Settings.model_validate(json.loads(json.dumps(revealed(settings)))) == settings
