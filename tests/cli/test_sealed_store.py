"""A store that was encrypted, and a start at which the variable with its keys is missing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import serving, tailfold
from tests.store.servers import Server, server

SECRET = {"TAILFOLD_SECRET": "a secret that is long enough, for a test"}
KEYS = {"TAILFOLD_ENCRYPTION__KEYS": f"k1:{base64.b64encode(b'1' * 32).decode()}"}
FILE = "sqlite:///state.db"


@pytest.fixture(scope="module")
def valkey() -> Iterator[Server]:
    with server() as one:
        yield one


@pytest.fixture(params=["file", "server"])
def encrypted(request: pytest.FixtureRequest, tmp_path: Path, valkey: Server) -> tuple[str, dict[str, str]]:
    """A store that a Tailfold with keys has used, and what its settings need beside them."""
    url, env = (FILE, {}) if request.param == "file" else (valkey.url, SECRET)
    valkey.client.flushall()
    with serving("--store", url, home=tmp_path, env=env | KEYS) as proxy:
        proxy.end()
    return url, env


def content(home: Path, valkey: Server) -> object:
    files = {path.name: hashlib.sha256(path.read_bytes()).digest() for path in home.glob("state.db*")}
    return files, {key: valkey.client.get(key) for key in valkey.client.scan_iter("*")}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_refuses_to_go_on_in_clear_and_writes_nothing(
    encrypted: tuple[str, dict[str, str]], valkey: Server, tmp_path: Path, workers: str
) -> None:
    url, env = encrypted
    before = content(tmp_path, valkey)
    told = tailfold("serve", "--port", "0", "--store", url, "--workers", workers, home=tmp_path, env=env)
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
    assert "TAILFOLD_ENCRYPTION__KEYS" in told.stderr
    assert content(tmp_path, valkey) == before


def test_so_does_a_proxy_for_one_command(encrypted: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    url, env = encrypted
    told = tailfold("run", "--store", url, "--", "true", home=tmp_path, env=env)
    assert told.returncode == 2
    assert "TAILFOLD_ENCRYPTION__KEYS" in told.stderr


def test_nothing_is_imported_in_clear_beside_it(
    encrypted: tuple[str, dict[str, str]], valkey: Server, tmp_path: Path
) -> None:
    url, env = encrypted
    with serving("--store", "sqlite:///plain.db", home=tmp_path, env=SECRET) as proxy:
        proxy.end()
    plain = ("--store", "sqlite:///plain.db", "plain.jsonl")
    assert tailfold("store", "export", *plain, home=tmp_path, env=SECRET).returncode == 0
    before = content(tmp_path, valkey)
    told = tailfold("store", "import", "--store", url, "plain.jsonl", home=tmp_path, env=env)
    assert told.returncode == 1
    assert "set encryption.keys" in told.stderr
    assert content(tmp_path, valkey) == before


def test_a_store_into_which_sealed_values_were_imported_is_one_and_after_a_refused_import_it_is_not(
    tmp_path: Path,
) -> None:
    with serving("--store", "sqlite:///plain.db", home=tmp_path) as proxy:
        proxy.end()
    export = ("store", "export", "--store", "sqlite:///plain.db", "plain.jsonl")
    assert tailfold(*export, home=tmp_path).returncode == 0
    into = ("store", "import", "--store", FILE, "plain.jsonl")
    other = {"TAILFOLD_SECRET": "another secret that is long enough"}
    assert tailfold(*into, home=tmp_path, env=KEYS | other).returncode == 1
    with serving("--store", FILE, home=tmp_path, env=other) as proxy:
        assert proxy.end() == 0
    (tmp_path / "state.db").unlink()
    assert tailfold(*into, home=tmp_path, env=KEYS).returncode == 0
    assert tailfold("serve", "--port", "0", "--store", FILE, home=tmp_path).returncode == 2


def test_with_its_keys_and_after_it_was_cleared_out_it_starts(
    encrypted: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    url, env = encrypted
    with serving("--store", url, home=tmp_path, env=env | KEYS) as proxy:
        assert proxy.end() == 0
    assert "encrypted" not in "".join(proxy.errors)
    assert (
        tailfold("store", "purge", "--all", "--yes", "--store", url, home=tmp_path, env=env).returncode == 0
    )
    with serving("--store", url, home=tmp_path, env=env) as proxy:
        assert proxy.end() == 0
    assert "encrypted" not in "".join(proxy.errors)
