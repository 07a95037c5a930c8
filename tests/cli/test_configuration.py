"""`tailfold check-config` and `tailfold config`, and the files that are made from the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from proxy.cli import reference
from proxy.config_files import config_dir, variable
from proxy.settings import FIELDS, MASK, SECTIONS, Settings, load
from tests.cli.command import tailfold

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_shipped_yaml_names_every_setting_with_its_default() -> None:
    loaded = load({"config": config_dir() / "default.yaml"}, {})
    assert loaded.settings == Settings()
    assert "default" not in loaded.origins.values()


def test_the_shipped_yaml_is_up_to_date() -> None:
    assert (config_dir() / "default.yaml").read_text() == reference.default_yaml(), (
        "run: tailfold config default"
    )


def test_the_shipped_yaml_explains_every_setting() -> None:
    unwrapped = " ".join(reference.default_yaml().replace("#", " ").split())
    for field in (*FIELDS.values(), *SECTIONS.values()):
        assert field.description
        assert " ".join(field.description.split()) in unwrapped


def test_the_shipped_yaml_means_the_same_to_any_other_reader() -> None:
    plain = yaml.safe_load(reference.default_yaml())
    assert Settings.model_validate(plain) == Settings()


def test_the_shipped_schema_is_up_to_date() -> None:
    shipped = (config_dir() / "tailfold.schema.json").read_text()
    assert shipped == reference.json_schema(), "run: tailfold config schema"


def test_the_schema_knows_every_setting_and_refuses_others() -> None:
    schema = json.loads(reference.json_schema())
    assert schema["additionalProperties"] is False
    assert schema["properties"].keys() == Settings.model_fields.keys()
    for section in schema["$defs"].values():
        assert section["additionalProperties"] is False


@pytest.mark.parametrize("key", FIELDS)
def test_the_docs_have_every_setting_with_default_variable_and_meaning(key: str) -> None:
    row = next(line for line in reference.table().splitlines() if line.startswith(f"| `{key}` |"))
    assert f"`{variable(key)}`" in row
    assert row in DOCS.read_text().splitlines(), "run: tailfold config table"


@pytest.mark.parametrize("command", ["default", "schema", "table"])
def test_everything_made_from_the_model_can_be_printed(command: str, tmp_path: Path) -> None:
    expected = {
        "default": reference.default_yaml,
        "schema": reference.json_schema,
        "table": reference.table,
    }[command]()
    assert tailfold("config", command, home=tmp_path).stdout == expected


def test_a_good_configuration_is_ok_and_its_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("port: 9000\n")
    told = tailfold("check-config", "--config", str(file), home=tmp_path)
    assert (told.returncode, told.stdout, told.stderr) == (0, f"ok: {file}\n", "")


def test_no_file_is_ok_too(tmp_path: Path) -> None:
    assert tailfold("check-config", home=tmp_path).stdout == "ok: no configuration file\n"


def test_a_bad_configuration_is_told_by_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("timeouts:\n  idle: never\n")
    told = tailfold("check-config", home=tmp_path, env={"TAILFOLD_CONFIG": str(file)})
    assert told.returncode == 2
    assert told.stderr.startswith(f"file {file}, line 2: timeouts.idle: should be a valid number")


def test_the_settings_in_effect_are_shown_with_their_origins(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("workers: 2\n")
    environ = {"TAILFOLD_CONFIG": str(file), "TAILFOLD_TIMEOUTS__IDLE": "7"}
    told = tailfold("config", "show", "--origin", "--port", "9", home=tmp_path, env=environ).stdout
    shown = dict(line.split("  # ") for line in told.splitlines())
    origins = {entry.strip(): origin for entry, origin in shown.items()}
    assert len(origins) == len(FIELDS)
    assert origins["port: 9"] == "flag --port"
    assert origins["timeouts.idle: 7"] == "environment TAILFOLD_TIMEOUTS__IDLE"
    assert origins["workers: 2"] == f"file {file}"
    assert origins["limits.head: 64KiB"] == "default"


def test_what_is_shown_can_be_used_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text(tailfold("config", "show", "--mode", "off", home=tmp_path).stdout)
    assert load({"config": file}, {}).settings.mode == "off"


@pytest.mark.parametrize("flags", [(), ("--json",), ("--origin",), ("--json", "--origin")])
def test_secrets_are_masked_however_they_are_shown(flags: tuple[str, ...], tmp_path: Path) -> None:
    environ = {
        "TAILFOLD_ADMIN__TOKEN": "t0ken",
        "TAILFOLD_STORE": "redis://:s3cret@host/0",
        "TAILFOLD_SECRET": "s3cret" * 8,
    }
    told = tailfold("config", "show", *flags, home=tmp_path, env=environ)
    assert told.returncode == 0
    assert told.stdout.count(MASK) == 3
    assert "t0ken" not in told.stdout
    assert "s3cret" not in told.stdout


def test_settings_as_json_carry_values_and_origins(tmp_path: Path) -> None:
    plain = json.loads(tailfold("config", "show", "--json", home=tmp_path).stdout)
    with_origin = json.loads(tailfold("config", "show", "--json", "--origin", home=tmp_path).stdout)
    assert plain["limits.chat_body"] == 134217728
    assert with_origin["port"] == {"value": 8080, "origin": "default"}
    assert plain.keys() == with_origin.keys() == FIELDS.keys()
