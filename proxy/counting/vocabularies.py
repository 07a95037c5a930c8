"""The vocabularies that tokens are counted with: read from a dependency's files, never from the network."""

from __future__ import annotations

import binascii
import importlib.util
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken


class VocabularyUnavailable(Exception):
    """The file is missing, or is not what it should be. It is left as it is."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    file: str  # the name under which tiktoken caches it
    sha256: str
    pattern: str  # cuts a text into the pieces within which bytes are merged


# tiktoken gives its patterns only together with a vocabulary that it may fetch, so they are written out here.
_KNOWN = {
    "o200k_base": _Vocabulary(
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
        r"|\s*[\r\n]+"
        r"|\s+(?!\S)"
        r"|\s+",
    ),
    "cl100k_base": _Vocabulary(
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)"
        r"|[^\r\n\p{L}\p{N}]?+\p{L}++"
        r"|\p{N}{1,3}+"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$"
        r"|\s*[\r\n]"
        r"|\s+(?!\S)"
        r"|\s",
    ),
}

DEFAULT = "o200k_base"


KNOWN = tuple(_KNOWN)


def known(name: str) -> str:
    """The vocabulary to count with where `name` is asked for."""
    return name if name in _KNOWN else DEFAULT


def bundled_folder() -> Path:
    litellm = importlib.util.find_spec("litellm")  # finds without importing: the import takes seconds
    if litellm is None or litellm.origin is None:
        raise VocabularyUnavailable("litellm, which carries the vocabularies, is not installed")
    return Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"


def load(name: str, folder: Path | None = None) -> tiktoken.Encoding:
    """Takes about 0.2 s, in whatever thread it is called."""
    vocabulary = _KNOWN[name]
    ranks = _ranks(_checked(name, vocabulary, folder or bundled_folder()))
    try:
        import tiktoken
    except ImportError as failure:  # a native library: on some systems it is there and cannot be loaded
        raise VocabularyUnavailable("tiktoken cannot be imported") from failure
    # Built from the bytes: tiktoken's own loader would fetch a missing file and delete a damaged one.
    encoding = tiktoken.Encoding(name, pat_str=vocabulary.pattern, mergeable_ranks=ranks, special_tokens={})
    # Only there to be pickled and looked at, and nearly half of the memory: the tokenizer has its own copy.
    encoding._mergeable_ranks = {}
    return encoding


def _checked(name: str, vocabulary: _Vocabulary, folder: Path) -> bytes:
    try:
        data = (folder / vocabulary.file).read_bytes()
    except OSError as failure:
        raise VocabularyUnavailable(f"the vocabulary {name} cannot be read: {failure.strerror}") from failure
    if sha256(data).hexdigest() != vocabulary.sha256:
        raise VocabularyUnavailable(
            f"the vocabulary {name} is damaged: its checksum is not the published one"
        )
    return data


def _ranks(data: bytes) -> dict[bytes, int]:
    lines = (line.split() for line in data.splitlines())
    return {binascii.a2b_base64(token): int(rank) for token, rank in lines}
