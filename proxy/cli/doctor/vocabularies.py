"""Are the tokenizers' vocabularies there and undamaged? Nothing is fetched."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proxy.cli.doctor.finding import Finding, fails, passes
from proxy.counting import vocabularies
from proxy.counting.vocabularies import KNOWN, VocabularyUnavailable

_NAME = "vocabularies"


async def check(folder: Path | None = None) -> list[Finding]:
    try:
        for name in KNOWN:
            await asyncio.to_thread(vocabularies.load, name, folder)
    except VocabularyUnavailable as problem:
        hint = "install litellm and tiktoken anew; until then, tokens are estimated by a text's length"
        return [fails(_NAME, str(problem), hint)]
    return [passes(_NAME, f"{', '.join(KNOWN)}: there, with the published checksums")]
