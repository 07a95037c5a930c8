from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proxy.cli.doctor.finding import Verdict
from proxy.cli.doctor.vocabularies import check
from proxy.counting.vocabularies import bundled_folder


async def test_those_that_are_installed_pass() -> None:
    (finding,) = await check()
    assert finding.verdict is Verdict.PASS
    assert "o200k_base, cl100k_base" in finding.found


@pytest.mark.parametrize(("damage", "said"), [(b"", "damaged"), (None, "cannot be read")])
async def test_one_that_is_damaged_or_missing_fails(tmp_path: Path, damage: bytes | None, said: str) -> None:
    for file in bundled_folder().iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    cl100k = tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    assert cl100k.exists()
    if damage is None:
        cl100k.unlink()
    else:
        cl100k.write_bytes(damage)
    (finding,) = await check(tmp_path)
    assert finding.verdict is Verdict.FAIL
    assert f"cl100k_base is {said}" in finding.found or f"cl100k_base {said}" in finding.found
